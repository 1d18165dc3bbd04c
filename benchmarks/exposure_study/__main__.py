"""The command line of the study."""

import argparse
import json
import os
import sys
from pathlib import Path

from attendo.atomic_files import replace_file

from . import __doc__ as description
from .plan import TASKS, TREATMENTS, Plan, Study, read_plan


def main() -> None:
    """Parse the command line and run one of the commands. Each imports only what it needs."""
    arguments = _parse_arguments()
    if arguments.command == "report":
        from .report import write_report

        write_report(arguments.json, arguments.figure)
    elif arguments.command == "train-shuffled":
        from .shuffled_risk import train_shuffled

        train_shuffled(arguments.file, arguments.folder, arguments.device)
    elif arguments.command == "run":
        from .jobs import run

        study = _make_study(_make_plan(arguments), arguments)
        run(study, arguments.at_once, arguments.minutes, arguments.stages)
    elif arguments.command == "evaluate":
        from .evaluation import evaluate

        evaluate(_make_study(read_plan(arguments.out), arguments), arguments.name)
    else:
        from .collection import collect

        found = collect(_make_study(read_plan(arguments.out), arguments), arguments.jobs)
        content = json.dumps(found, ensure_ascii=False, separators=(",", ":"))
        replace_file(arguments.json, f"{content}\n".encode())


def _make_study(plan: Plan, arguments: argparse.Namespace) -> Study:
    device = "" if arguments.command == "collect" else arguments.device
    return Study(plan, arguments.data.absolute(), arguments.out.absolute(), device)


def _make_plan(arguments: argparse.Namespace) -> Plan:
    names = {"all", "base", "continued", *TREATMENTS}
    for change in arguments.change:
        if change.partition(":")[0] not in names or "=" not in change:
            sys.exit(f"--set wants NAME:SETTING=VALUE with a NAME of {', '.join(sorted(names))}: {change}")
    for given, known in ((arguments.tasks, TASKS), (arguments.treatments, TREATMENTS)):
        if unknown := [name for name in given.split(",") if name not in known]:
            sys.exit(f"unknown: {', '.join(unknown)}; known: {', '.join(known)}")
    return Plan(
        tasks=tuple(arguments.tasks.split(",")),
        seeds=tuple(map(int, arguments.seeds.split(","))),
        treatments=tuple(arguments.treatments.split(",")),
        steps=arguments.steps,
        mrt_steps=arguments.mrt_steps,
        lines=arguments.lines,
        exposure_lines=arguments.exposure_lines,
        changes=tuple(arguments.change),
    )


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog=f"python -m {__package__}", description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    several = {name: commands.add_parser(name) for name in ("run", "evaluate", "collect", "report", "train-shuffled")}
    for name in ("run", "evaluate", "collect"):
        several[name].add_argument("--data", type=Path, default=Path("data"), help="folder of the data sets")
        several[name].add_argument("--out", type=Path, default=Path("runs/exposure"))
    for name in ("run", "evaluate", "train-shuffled"):
        several[name].add_argument("--device", default="auto")
    several["evaluate"].add_argument("--name", required=True)
    several["collect"].add_argument("--json", type=Path, required=True)
    several["collect"].add_argument("--jobs", type=int, default=os.cpu_count())
    several["report"].add_argument("json", type=Path)
    several["report"].add_argument("--figure", type=Path, help="picture to draw: .svg, .png or .pdf")
    several["train-shuffled"].add_argument("file", type=Path)
    several["train-shuffled"].add_argument("folder", type=Path)
    _add_run_arguments(several["run"])
    return parser.parse_args()


def _add_run_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--tasks", default=",".join(TASKS))
    parser.add_argument("--seeds", default="1,2")
    parser.add_argument("--treatments", default=",".join(TREATMENTS))
    parser.add_argument("--steps", type=int, default=2000, help="updates of a continuation")
    parser.add_argument("--mrt-steps", type=int, default=1000, help="updates of minimum risk training")
    parser.add_argument("--lines", type=int, default=2000, help="of each text")
    parser.add_argument("--exposure-lines", type=int, default=1000, help="of each text, for the measures of exposure")
    parser.add_argument(
        "--set", dest="change", action="append", default=[], metavar="NAME:SETTING=VALUE",
        help="change a setting of base, a treatment, continued (all but base) or all: mrt:train.mrt_alpha=0.5",
    )  # fmt: skip
    parser.add_argument("--at-once", type=int, default=10, help="maximum number of processes")
    parser.add_argument("--minutes", type=float, help="time limit; then trainings save and end")
    parser.add_argument("--stages", choices=("all", "train", "evaluate"), default="all")


if __name__ == "__main__":
    main()
