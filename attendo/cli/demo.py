"""The `attendo demo` command: trains on the built-in task, translates and shows the attention."""

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from attendo.cli.options import Device, Threads

if TYPE_CHECKING:
    from attendo.runs.demo import DemoScores
    from attendo.runs.run import Run

SHOWN_TRANSLATIONS = 10


def demo(
    seed: Annotated[
        int, typer.Option(min=0, max=2**63 - 1, help="Seed of the sentences and of the initial weights.")
    ] = 1,
    out: Annotated[Path, typer.Option(help="Run folder.")] = Path("runs/demo"),
    device: Device = "auto",
    threads: Threads = None,
) -> None:
    """Train a small English → Chinese Transformer and show its attention.

    Takes about two minutes on two CPU cores. Ctrl-C stops early and keeps the model.
    """
    from attendo.cli.progress import train_with_progress
    from attendo.demo_task import BuiltinTask
    from attendo.runs.demo import demo_config, evaluate
    from attendo.runs.run import Run
    from attendo.text_model import pick_device

    run = Run.begin(demo_config(seed), out, pick_device(device), overwrite=_is_demo(out))
    outcome = train_with_progress(run)
    if outcome.stopped:
        outcome.print_line(f"stopped early; the model as far as it has come: attendo generate {outcome.model_folder}")
        raise typer.Exit(outcome.exit_code)
    outcome.print_line("translating 1,000 sentence pairs it never saw ...")
    scores = evaluate(run.model, BuiltinTask(seed))
    run.model.scores.update(scores.summary())
    run.model.save(outcome.model_folder)
    _show(run, scores, _collect_facts(run, scores, outcome.seconds))


def _is_demo(folder: Path) -> bool:
    """Return True if the folder has an earlier demo run, which may be replaced."""
    from attendo.runs.config import read_run_file

    path = folder / "run.toml"
    return path.is_file() and read_run_file(path).get("data", {}).get("task") == "builtin"


def _collect_facts(run: "Run", scores: "DemoScores", seconds: float) -> list[tuple[str, str]]:
    import torch

    head, device = scores.best_head, run.model.device
    threads = torch.get_num_threads()
    on_cpu = f"{threads} CPU thread{'s' if threads > 1 else ''}"
    hardware = on_cpu if device.type == "cpu" else torch.cuda.get_device_name(device)
    return [
        (
            "exact match",
            f"{scores.exact_match:.1%} ({scores.num_correct} of {len(scores.translations)} pairs it never saw)",
        ),
        ("alignment accuracy", f"{head.accuracy:.1%} (decoder layer {head.layer}, head {head.head}, counted from 0)"),
        ("training time", f"{seconds:.0f} s on {hardware}"),
        ("parameters", f"{sum(weight.numel() for weight in run.model.network.parameters()):,}"),
    ]


def _show(run: "Run", scores: "DemoScores", facts: list[tuple[str, str]]) -> None:
    from rich.console import Console

    from attendo.explore.heatmap_terminal import render_map_terminal
    from attendo.runs.demo import EXAMPLE_SENTENCE, make_attention_map, write_pictures

    trace = run.model.trace(EXAMPLE_SENTENCE)
    pictures = write_pictures(run.folder, trace, scores.best_head, facts)
    lines = ["", *(f"{name} {value}" for name, value in facts), ""]
    for each in scores.select_examples(SHOWN_TRANSLATIONS):
        expected = "" if each.is_correct else f"   (expected: {each.pair.target})"
        lines += [f"{'✓' if each.is_correct else '✗'} {each.pair.source}", f"  {each.text}{expected}"]
    print("\n".join((*lines, "")))
    console = Console()
    console.print(render_map_terminal(make_attention_map(trace, scores.best_head), console.width))
    folder = run.folder / "model"
    print(
        "",
        f"pictures  {'  '.join(map(str, pictures))}",
        f"model     {folder}",
        "",
        "Next:",
        f"  echo '{EXAMPLE_SENTENCE}' | attendo generate {folder}",
        f"  attendo describe {folder}",
        f"  attendo explore {folder}     # look inside and change things, in the browser",
        f"  attendo serve {folder}       # an API that clients of others already speak",
        "  attendo train --source a.en --target a.de --out runs/mine     # your own sentences, line by line",
        *([] if find_spec("fastapi") else ["explore and serve need: pip install 'attendo[serve]'"]),
        sep="\n",
    )
