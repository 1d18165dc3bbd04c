"""The `attendo demo` command: trains on the built-in task, translates and shows the attention."""

from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from attendo.cli.language import current_language, localise, say, translate
from attendo.cli.options import Device, Threads
from attendo.errors import LocalizedText

if TYPE_CHECKING:
    from attendo.explore.head_stats import HeadStats
    from attendo.runs.demo import DemoScores
    from attendo.runs.run import Run

SHOWN_TRANSLATIONS = 10


def demo(
    seed: Annotated[
        int, typer.Option(min=0, max=2**63 - 1, help="Seed of the sentences and of the initial weights.")
    ] = 1,
    kind: Annotated[
        Literal["autoregressive", "masked", "ctc", "graph"],
        typer.Option(help="Kind of the model: token by token, or all tokens at once."),
    ] = "autoregressive",
    out: Annotated[
        Path | None, typer.Option(help="Run folder; default: runs/demo, or runs/demo-KIND for another kind.")
    ] = None,
    device: Device = "auto",
    threads: Threads = None,
) -> None:
    """Train a small English → Chinese Transformer and show its attention.

    Takes about two minutes on two CPU cores. Ctrl-C stops early and keeps the model. A model of kind masked, ctc or
    graph predicts all tokens at once: its passes, its alignment or its graph is shown. It takes 3 to 7 minutes.
    """
    from attendo.cli.progress import train_with_progress
    from attendo.demo_task import BuiltinTask
    from attendo.runs.demo import demo_config, evaluate
    from attendo.runs.run import Run
    from attendo.text_model import pick_device

    folder = out or Path("runs", "demo" if kind == "autoregressive" else f"demo-{kind}")
    run = Run.begin(demo_config(seed, kind), folder, pick_device(device), overwrite=_is_demo(folder))
    outcome = train_with_progress(run)
    if outcome.stopped:
        outcome.print_line(
            say(
                "stopped early; the model as far as it has come: attendo generate {model_folder}",
                model_folder=outcome.model_folder,
            )
        )
        raise typer.Exit(outcome.exit_code)
    outcome.print_line(say("translating 1,000 sentence pairs it never saw ..."))
    scores = evaluate(run.model, BuiltinTask(seed))
    run.model.scores.update(scores.summary())
    run.model.save(outcome.model_folder)
    facts = _collect_facts(run, scores, outcome.seconds)
    print("\n".join(_list_results(scores, facts)))
    pictures = _show_attention(run, scores.best_head) if scores.best_head else _show_parallel(run)
    _print_next_commands(run, pictures)


def _is_demo(folder: Path) -> bool:
    """Return True if the folder has an earlier demo run, which may be replaced."""
    from attendo.runs.config import read_run_file

    path = folder / "run.toml"
    return path.is_file() and read_run_file(path).get("data", {}).get("task") == "builtin"


def _collect_facts(run: "Run", scores: "DemoScores", seconds: float) -> list[tuple[str, str]]:
    import torch

    head, device = scores.best_head, run.model.device
    threads = torch.get_num_threads()
    on_cpu = LocalizedText("{count} CPU threads" if threads > 1 else "{count} CPU thread", count=threads)
    hardware = on_cpu if device.type == "cpu" else torch.cuda.get_device_name(device)
    return [
        (
            "exact match",
            LocalizedText(
                "{exact_match:.1%} ({num_correct} of {num_translations} pairs it never saw)",
                exact_match=scores.exact_match,
                num_correct=scores.num_correct,
                num_translations=len(scores.translations),
            ),
        ),
        *([] if head is None else [("alignment error rate", _describe_head(head))]),
        ("training time", LocalizedText("{seconds:.0f} s on {hardware}", seconds=seconds, hardware=hardware)),
        ("parameters", f"{sum(weight.numel() for weight in run.model.network.parameters()):,}"),
    ]


def _describe_head(head: "HeadStats") -> str:
    return LocalizedText(
        "{error_rate:.1%} (decoder layer {layer}, head {head}, counted from 0)",
        error_rate=head.error_rate,
        layer=head.layer,
        head=head.head,
    )


def _list_results(scores: "DemoScores", facts: list[tuple[str, str]]) -> list[str]:
    lines = ["", *(f"{translate(name)} {localise(value)}" for name, value in facts), ""]
    for each in scores.select_examples(SHOWN_TRANSLATIONS):
        expected = "" if each.is_correct else say("   (expected: {target})", target=each.pair.target)
        lines += [f"{'✓' if each.is_correct else '✗'} {each.pair.source}", f"  {each.text}{expected}"]
    return [*lines, ""]


def _show_attention(run: "Run", head: "HeadStats") -> list[Path]:
    from rich.console import Console

    from attendo.explore.heatmap_terminal import render_map_terminal
    from attendo.runs.demo import EXAMPLE_SENTENCE, make_attention_map, write_pictures

    trace, console = run.model.trace(EXAMPLE_SENTENCE), Console()
    pictures = write_pictures(run.folder, trace, head, current_language())
    title = say("decoder layer {layer}, head {head}", layer=head.layer, head=head.head)
    shown = replace(make_attention_map(trace, head), title=title)
    console.print(render_map_terminal(shown, console.width, current_language()))
    return pictures


def _show_parallel(run: "Run") -> list[Path]:
    """Show how the model reaches its translation of one sentence: passes, graph or alignment."""
    from rich.console import Console

    from attendo.explore.parallel_terminal import render_parallel_trace
    from attendo.runs.demo import EXAMPLE_SENTENCE, write_parallel_pictures

    trace, console = run.model.trace_parallel(EXAMPLE_SENTENCE), Console(highlight=False)
    for paragraph in render_parallel_trace(trace, console.width, current_language()):
        console.print(paragraph)
    return write_parallel_pictures(run.folder, trace, current_language())


def _print_next_commands(run: "Run", pictures: list[Path]) -> None:
    from attendo.runs.demo import EXAMPLE_SENTENCE

    folder = run.folder / "model"
    compare = f"  attendo trace {folder} '{EXAMPLE_SENTENCE}' --beside runs/demo/model     # {say('of attendo demo')}"
    print(
        "",
        say("pictures  {files}", files="  ".join(map(str, pictures))),
        say("model     {folder}", folder=folder),
        "",
        say("Next:"),
        f"  echo '{EXAMPLE_SENTENCE}' | attendo generate {folder}",
        f"  attendo describe {folder}",
        *([] if run.model.kind == "autoregressive" else [compare]),
        f"  attendo explore {folder}     # {say('look inside and change things, in the browser')}",
        f"  attendo serve {folder}       # {say('an API that clients of others already speak')}",
        f"  attendo train --source a.en --target a.de --out runs/mine     # {say('your own sentences, line by line')}",
        *([] if find_spec("fastapi") else [say("explore and serve need: pip install 'attendo[serve]'")]),
        sep="\n",
    )
