"""The `attendo doctor` command: checks a run's data and network before training."""

import json
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

import typer

from attendo.cli.language import pad_columns, say, translate
from attendo.cli.options import Changes, Data, Device, Source, Target
from attendo.cli.output import print_stderr
from attendo.errors import DataError, ModelError, UsageError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from attendo.doctor import Finding
    from attendo.runs.config import RunConfig
    from attendo.runs.run import Run

COLOURS = {"ok": "green", "note": "cyan", "warning": "yellow", "fault": "red"}


def doctor(
    run_file: Annotated[Path | None, typer.Argument(metavar="RUN.toml", help="Settings of the run.")] = None,
    source: Source = None,
    target: Target = None,
    test_source: Annotated[
        Path | None, typer.Option(help="Source text of a test set, to find test pairs in the training text.")
    ] = None,
    test_target: Annotated[Path | None, typer.Option(help="Target text of the test set, line by line.")] = None,
    data: Data = None,
    change: Changes = None,
    quick: Annotated[bool, typer.Option("--quick", help="Run only the checks that attendo train runs.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per finding.")] = False,
    show: Annotated[bool, typer.Option("--show", help="Also print the settings chosen from the data.")] = False,
    processes: Annotated[
        int | None,
        typer.Option(min=1, help="Estimate only the memory of each of N training processes, without the network."),
    ] = None,
    device: Device = "auto",
) -> None:
    """Check a run's network and data for problems, without training.

    The exit code is 0 without a fault, 3 for a fault in the data, 4 for a fault in the network.
    """
    from attendo.cli.train import check_ahead, make_config

    if run_file is None and not (source and target):
        raise UsageError("doctor_input_missing")
    if (test_source is None) != (test_target is None):
        raise UsageError("test_pair_incomplete")
    if quick and test_source is not None:
        raise UsageError("quick_with_test_text")
    check_ahead(device)
    chosen: list[str] = []
    files = {"source": source, "target": target, "folder": data}
    config = make_config(run_file, files, change or [], report=chosen.append)
    findings = []
    for finding in _examine(config, device, quick, (test_source, test_target), processes):
        findings.append(finding)
        if as_json:
            print(json.dumps(finding.as_json(), ensure_ascii=False), flush=True)
        else:
            _report_finding(finding)
    if not as_json:
        _print_findings(findings)
    for line in chosen if show else ():
        print_stderr(line)
    raise typer.Exit(_exit_code(findings))


def _examine(
    config: "RunConfig",
    device: str,
    quick: bool,
    test: tuple[Path | None, Path | None],
    processes: int | None,
) -> Iterator["Finding"]:
    """Prepare the text in a temporary folder and yield all findings."""
    from attendo.cli.progress import show_preparation
    from attendo.data.config import CorpusConfig
    from attendo.data.filtering import TooManyBadLinesError
    from attendo.doctor import examine, report_too_many_bad_lines
    from attendo.doctor.duplicates import read_test_pairs
    from attendo.runs.run import Run
    from attendo.text_model import pick_device

    if processes is None:  # one process here: the weights are whole
        config = config.replace(train=config.train.replace(sharding="none", cpu_offload=False))
    with TemporaryDirectory(prefix="attendo-doctor-") as folder:
        run = Run(config, Path(folder), pick_device(device))
        try:
            show_preparation(run.prepare())
        except TooManyBadLinesError:
            listing = run.data_folder.with_name(f"{run.data_folder.name}.bad-lines.tsv")
            yield report_too_many_bad_lines(listing, config.data.max_bad_ratio)
            return
        if processes is not None:
            yield _estimate_memory(run, processes)
            return
        run.build()
        given = CorpusConfig(source=test[0], target=test[1]) if test[0] is not None else None
        yield from examine(run, quick, {} if quick else read_test_pairs(config, given))


def _estimate_memory(run: "Run", processes: int) -> "Finding":
    from attendo.doctor.process_memory import check_process_memory

    data = run.data
    sizes = (data.source_tokenizer.vocab_size, data.target_tokenizer.vocab_size)
    return check_process_memory(run.config.make_model_config(*sizes), run.config.train, data, processes, run.device)


def _report_finding(finding: "Finding") -> None:
    """Print a finding's level and name at once. The final table has the details."""
    from rich.console import Console

    Console(stderr=True).print(
        f"[{COLOURS[finding.level]}]{pad_columns(translate(finding.level), 8)}[/] {translate(finding.check)}",
        highlight=False,
    )


def _print_findings(findings: list["Finding"]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, show_lines=False)
    table.add_column(say("check"), no_wrap=True)
    table.add_column(say("level"), no_wrap=True)
    table.add_column(say("found"))
    for finding in findings:
        level = Text(translate(finding.level), COLOURS[finding.level])
        table.add_row(translate(finding.check), level, _format_finding(finding))
    Console().print(table)


def _format_finding(finding: "Finding") -> "RenderableType":
    """Return a finding as `Text`, because an example sentence may look like markup."""
    from rich.text import Text

    advice = (f"→ {translate(finding.advice)}",) if finding.advice else ()
    examples = (f"  {translate(example)}" for example in finding.examples)
    return Text("\n".join((translate(finding.found), *examples, *advice)))


def _exit_code(findings: list["Finding"]) -> int:
    about = {finding.about for finding in findings if finding.level == "fault"}
    if not about:
        return 0
    return DataError.exit_code if "data" in about else ModelError.exit_code
