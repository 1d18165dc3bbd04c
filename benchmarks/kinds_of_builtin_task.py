"""Trains the kinds of generation on the built-in task, for a comparison that needs no data set and no GPU.

    python benchmarks/kinds_of_builtin_task.py --out runs/three-kinds
    python benchmarks/generation_kinds.py ... (the command above prints the arguments)
    python benchmarks/kinds_of_builtin_task.py --out runs/three-kinds --updates 20

All networks have about the same number of parameters. The kinds that predict all tokens at once start from the
autoregressive network and take as many steps again. An interrupted training is resumed.

`--updates` measures the cost of an update instead: all kinds take turns in one process, so that the ratios are right on
a busy machine too.
"""

import argparse
import time
from contextlib import ExitStack, closing
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import torch

from attendo.cli.progress import train_with_progress
from attendo.demo_task import BuiltinTask
from attendo.runs.config import RunConfig
from attendo.runs.demo import demo_config
from attendo.runs.run import Run
from attendo.train.loop import Step

_WARM_UP = 3  # updates that are not timed
BASE = "autoregressive"
STEPS = 1500
# Differences from the autoregressive network. 5 layers without cross-attention, or 12 + 1 narrow ones, have as many
# weights as 2 + 2 layers.
NETWORKS: dict[str, dict[str, Any]] = {
    BASE: {},
    "deep_encoder": {"num_encoder_layers": 12, "num_decoder_layers": 1, "d_model": 80, "d_ff": 296},
    "decoder_only": {"prefix_lm": True, "num_encoder_layers": 0, "num_decoder_layers": 5, "d_ff": 448},
}
KINDS: dict[str, dict[str, Any]] = {
    "masked": {"kind": "masked"},
    "ctc": {"kind": "ctc"},
    "graph": {"kind": "graph", "upsample": 3},
}
SYSTEMS = (
    "greedy={out}/autoregressive/model",
    "beam5={out}/autoregressive/model:beam=5",
    "drafted_ctc={out}/autoregressive/model:draft={out}/ctc/model",
    "deep_encoder={out}/deep_encoder/model",
    "decoder_only={out}/decoder_only/model",
    "masked4={out}/masked/model:passes=4:length_candidates=1:merge_repeats=true",
    "masked10={out}/masked/model:passes=10:length_candidates=5:merge_repeats=true",
    "ctc={out}/ctc/model",
    "graph={out}/graph/model:merge_repeats=true",
    "graph_viterbi={out}/graph/model:graph_search=viterbi:merge_repeats=true",
    "graph_beam5={out}/graph/model:beam=5:merge_repeats=true",
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/three-kinds"))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--updates", type=int, default=0, help="updates of each kind that are timed")
    arguments = parser.parse_args()
    out: Path = arguments.out
    if arguments.updates:
        _compare_updates(out / BASE / "model", arguments.updates)
        return
    for name in (*NETWORKS, *KINDS):
        _train(make_config(name, arguments.seed, out / BASE / "model"), out / name)
    files = _write_test(out, arguments.seed)
    systems = [each.format(out=out) for each in SYSTEMS]
    options = ("--compare greedy,beam5", f"--json {out}/kinds.json")
    print("python benchmarks/generation_kinds.py", *files, *options, *systems, sep=" \\\n    ")


def make_config(name: str, seed: int, start: Path) -> RunConfig:
    """Return the settings of a training: those of the demo with pre-norm, which suits every kind and depth."""
    demo = demo_config(seed)
    train = demo.train.replace(steps=STEPS, validate_every=500, save_every=500)
    if name in KINDS:
        return RunConfig(
            seed=seed, start_from=start, data={"task": "builtin"}, model=KINDS[name], train=train, about=demo.about
        )
    joint = name == "decoder_only"  # one row needs one vocabulary
    return RunConfig(
        seed=seed,
        preset="tiny",
        data={"task": "builtin"},
        tokenizer={"kind": "words", "joint": joint},
        model={**demo.model, "norm": "pre", **NETWORKS[name]},
        train=train,
        about=demo.about,
    )


def _train(config: RunConfig, folder: Path) -> None:
    device = torch.device("cpu")
    is_begun = (folder / "run.toml").is_file()
    run = Run.resume(folder, device) if is_begun else Run.begin(config, folder, device)
    outcome = train_with_progress(run)
    if outcome.stopped:
        raise SystemExit(outcome.exit_code)


def _compare_updates(start: Path, count: int) -> None:
    """Print the median time per target token of each kind, relative to the autoregressive network."""
    costs: dict[str, list[float]] = {name: [] for name in (*NETWORKS, *KINDS)}
    with TemporaryDirectory() as folder, ExitStack() as stack:
        trainings = {}
        for name in costs:
            config = make_config(name, seed=1, start=start).replace(data={"task": "builtin", "pairs": 5000})
            run = Run.begin(config, Path(folder) / name, torch.device("cpu"))
            for _ in run.prepare():
                pass
            trainings[name] = stack.enter_context(closing(run.train()))
        for number in range(_WARM_UP + count):
            for name, training in trainings.items():
                begun = time.perf_counter()
                step = next(report for report in training if isinstance(report, Step))
                if number >= _WARM_UP:
                    costs[name].append((time.perf_counter() - begun) / step.tokens)
    for name, cost in costs.items():
        ratio = median(own / first for own, first in zip(cost, costs[BASE], strict=True))
        print(f"{name:15} {ratio:.2f}")


def _write_test(out: Path, seed: int) -> tuple[str, ...]:
    """Write the held-out pairs, and return the options that name them."""
    pairs = BuiltinTask(seed).heldout()
    (out / "test.en").write_text("".join(f"{pair.source}\n" for pair in pairs), "utf-8")
    (out / "test.zh").write_text("".join(f"{pair.target}\n" for pair in pairs), "utf-8")
    return f"--source {out}/test.en", f"--reference {out}/test.zh"


if __name__ == "__main__":
    main()
