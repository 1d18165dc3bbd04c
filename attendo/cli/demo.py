"""`attendo demo`: train on the built-in task, translate, show the attention, say what to do next."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from attendo.recipes.demo import DemoScores
    from attendo.recipes.run import Run

SHOWN_TRANSLATIONS = 10


def demo(
    seed: Annotated[int, typer.Option(help="Another seed: other sentences, other first weights.")] = 1,
    out: Annotated[Path, typer.Option(help="Run folder.")] = Path("runs/demo"),
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
) -> None:
    """Train a small English → Chinese Transformer here and now, and look inside it.

    About two minutes on two CPU cores. Ctrl-C stops early and keeps the model as far as it has come.
    """
    from rich.console import Console

    from attendo.cli.interrupt import interruptible
    from attendo.cli.progress import TrainingProgress
    from attendo.recipes.demo import demo_config, evaluate
    from attendo.recipes.run import Run
    from attendo.text_model import pick_device

    config = demo_config(seed)
    run = Run(config, out, pick_device(device))
    seconds = 0.0
    with TrainingProgress(config.train.steps) as progress, interruptible() as interrupt:
        progress.say_prepared(run.prepared)
        for report in run.train():
            progress.show(report)
            seconds = getattr(report, "seconds", seconds)
            if interrupt:
                break
        folder = run.save()
    if interrupt:
        progress.say(f"stopped early; the model so far is in {folder}: attendo generate {folder}")
        raise typer.Exit(interrupt.exit_code)
    assert run.corpus.endless is not None
    with progress.console.status("translating 1,000 sentence pairs it never saw ..."):
        scores = evaluate(run.model, run.corpus.endless)
    _show(Console(), run, scores, seconds)


def _show(console: "Console", run: "Run", scores: "DemoScores", seconds: float) -> None:
    import torch

    from attendo.explore.heatmap import terminal
    from attendo.recipes.demo import SHOWN, best_map, write_pictures

    head = scores.best_head
    run.model.scores.update(
        exact_match=scores.exact_match, alignment_accuracy=head.accuracy, alignment_head=[head.layer, head.head]
    )
    folder = run.save()
    facts = [
        ("exact match", f"{scores.exact_match:.1%} ({scores.right} of {len(scores.translations)} pairs it never saw)"),
        ("alignment accuracy", f"{head.accuracy:.1%} (decoder layer {head.layer + 1}, head {head.head + 1})"),
        ("training time", f"{seconds:.0f} s on {_hardware(run.model.device, torch.get_num_threads())}"),
        ("parameters", f"{run.prepared.parameters:,}"),
    ]
    trace = run.model.trace(SHOWN)
    pictures = write_pictures(run.folder, trace, head, facts)

    def say(line: str = "") -> None:
        console.print(line, highlight=False, markup=False, soft_wrap=True)

    say()
    for name, value in facts:
        say(f"{name} {value}")
    say()
    for each in scores.shown(SHOWN_TRANSLATIONS):
        say(f"{'✓' if each.right else '✗'} {each.pair.source}")
        say(f"  {each.text}" + ("" if each.right else f"   (expected: {each.pair.target})"))
    say()
    console.print(terminal(best_map(trace, head), console.width))
    say()
    say(f"pictures  {'  '.join(map(str, pictures))}")
    say(f"model     {folder}")
    say()
    say("Next:")
    say(f"  echo '{SHOWN}' | attendo generate {folder}")
    say(f"  attendo describe {folder}")
    say("  attendo train --source a.en --target a.de --out runs/mine     # your own sentences, line by line")


def _hardware(device: object, threads: int) -> str:
    return f"{threads} CPU threads" if str(device) == "cpu" else str(device)
