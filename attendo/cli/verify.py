"""The `attendo verify` and `attendo verify-resume` commands: equality of engines and of resumed training."""

import json
import math
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from attendo.cli.language import count_columns, list_names, pad_columns, say, translate
from attendo.cli.options import Changes, Data, Device, Threads
from attendo.cli.output import print_stderr
from attendo.errors import DataError, UsageError

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

    from attendo.runs.verify import PathComparison
    from attendo.runs.verify_resume import ResumeComparison
    from attendo.text_model import TextModel

_MAX_COLUMNS = 3  # searches in one table; a graph has more, so it gets several tables


def verify(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="Model folder or exported folder.")],
    source: Annotated[
        Path | None, typer.Option(help="Sentences to compare, one per line, instead of the model's own.")
    ] = None,
    draft: Annotated[
        Path | None,
        typer.Option(metavar="MODEL", help="Draft model: compare speculative decoding with greedy search too."),
    ] = None,
    lines: Annotated[int, typer.Option(min=1, help="Maximum number of sentences.")] = 64,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per comparison.")] = False,
    device: Device = "auto",
    threads: Threads = None,
    precision: Annotated[
        Literal["auto", "fp32", "bf16", "fp16"],
        typer.Option(help="Precision of the network; tolerances depend on it."),
    ] = "auto",
) -> None:
    """Compare outputs and scores across engines, batch sizes, paddings and caches.

    An exported folder has one engine, so its outputs are compared across batch sizes. It needs --source.

    Exit code 0: all are equal. 1: a difference, which is printed.
    """
    from attendo.data.corpus_files import read_lines
    from attendo.interop.load import load
    from attendo.runs.verify import verify as verify_stored
    from attendo.runs.verify import verify_exported
    from attendo.text_model.backends import EXTERNAL_ENGINES

    text_model = load(model, device)
    exported = text_model.backend.name in EXTERNAL_ENGINES
    if exported and precision != "auto":
        raise UsageError("verify_precision_for_exported_model", precision=precision, model=model)
    sample = [] if exported else [text for text, _ in text_model.stored_model.sample]
    texts = sample if source is None else [line for line in read_lines(source) if line.strip()]
    texts = _drop_long_texts(text_model, texts[:lines])
    if not texts:
        raise DataError("verify_without_sentences", path=source or model)
    found = []
    draft_model = None if draft is None else load(draft, device)
    comparisons = (
        verify_exported(text_model, texts)
        if exported and draft_model is None
        else verify_stored(text_model, texts, precision, draft_model)
    )
    for each in comparisons:
        found.append(each)
        if as_json:
            print(json.dumps(_to_json(each), ensure_ascii=False), flush=True)
        elif typer.get_text_stream("stderr").isatty():
            names = {"path": translate(each.path), "what": translate(each.what)}
            print_stderr(say("same      {path}, {what}" if each.equal else "DIFFERENT {path}, {what}", **names))
    if not as_json:
        _print_comparisons(found)
    raise typer.Exit(0 if all(each.equal for each in found) else 1)


def _drop_long_texts(model: "TextModel", texts: list[str]) -> list[str]:
    from attendo.runs.verify import is_too_long, max_sentence_tokens

    short = [text for text in texts if not is_too_long(model, text)]
    if left_out := len(texts) - len(short):
        limit = max_sentence_tokens(model)
        print_stderr(
            say(
                "{left_out} of {num_texts} sentences have more than {limit} tokens and are left out",
                left_out=left_out,
                num_texts=len(texts),
                limit=limit,
            )
        )
    return short


def _to_json(each: "PathComparison") -> dict[str, Any]:
    """Return a comparison as JSON. JSON has no infinity or NaN, so those become None."""
    largest = each.largest if math.isfinite(each.largest) else None
    return {**asdict(each), "largest": largest, "equal": each.equal}


def _print_comparisons(found: list["PathComparison"]) -> None:
    from rich.console import Console

    from attendo.runs.verify import SUB_LAYERS

    layers, others = ([each for each in found if (each.what == SUB_LAYERS) == wanted] for wanted in (True, False))
    console = Console()
    if layers:
        console.print(
            _build_table(say("sub-layer"), layers, [SUB_LAYERS], say("kernels beside the formula written out"))
        )
    beside = say("the textbook") if layers else say("all sentences together")
    searches = list(dict.fromkeys(each.what for each in others))
    for first in range(0, len(searches), _MAX_COLUMNS):
        columns = searches[first : first + _MAX_COLUMNS]
        shown = [each for each in others if each.what in columns]
        console.print(_build_table(say("path"), shown, columns, say("answers beside those of {beside}", beside=beside)))
    for each in found:
        if not each.equal and each.example:
            print(
                say(
                    "{path}, {what}: {example}",
                    path=translate(each.path),
                    what=translate(each.what),
                    example=each.example,
                )
            )
    wrong = sum(not each.equal for each in found)
    for each in found:
        if not each.count:
            print(
                say(
                    "{path}, {what}: there was nothing to compare", path=translate(each.path), what=translate(each.what)
                )
            )
    print(
        say("all paths agree")
        if not wrong
        else say("{wrong} of {num_found} comparisons differ", wrong=wrong, num_found=len(found))
    )


def _build_table(first: str, found: list["PathComparison"], columns: list[str], title: str) -> "Table":
    """Build a table with a row per path and a column per comparison."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left")
    table.add_column(first, no_wrap=True)
    for name in columns:
        table.add_column(translate(name))
    for path in dict.fromkeys(each.path for each in found):
        cells = {each.what: _format_cell(each) for each in found if each.path == path}
        table.add_row(translate(path), *(cells.get(name, "") for name in columns))
    return table


def _format_cell(each: "PathComparison") -> "Text":
    from rich.text import Text

    if not each.count:
        return Text(say("nothing"), "yellow")
    if not each.equal:
        text = (
            say("{different:,} of {count:,} differ", different=each.different, count=each.count)
            if each.different
            else say("off by {largest:.1e}", largest=each.largest)
        )
        return Text(text, "red")
    ties = say(", {ties} ties", ties=each.ties) if each.ties else ""
    return Text(say("same {largest:.0e}{ties}", largest=each.largest, ties=ties), "green")


def verify_resume(
    run_file: Annotated[Path, typer.Argument(metavar="RUN.toml", help="Settings of the run.")],
    steps: Annotated[int, typer.Option(min=2, help="Steps to train.")] = 20,
    data: Data = None,
    change: Changes = None,
    device: Device = "auto",
    threads: Threads = None,
) -> None:
    """Train some steps twice, once stopped and resumed several times, and compare both bit for bit.

    Exit code 0: equal losses, weights, optimizer and random state. 1: a difference; a fix is suggested.
    """
    import os
    from tempfile import TemporaryDirectory

    from attendo.cli.progress import show_preparation
    from attendo.cli.train import make_config
    from attendo.runs.corpora import prepare_corpora
    from attendo.runs.verify_resume import ResumeVerification, TrialStep, suggest_fix
    from attendo.text_model import pick_device

    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise UsageError("verify_resume_under_torchrun")
    config = make_config(run_file, {"folder": data}, change or [])
    kind = pick_device(device).type
    with TemporaryDirectory(prefix="attendo-") as name:
        folder = Path(name)
        prepared = config.data.prepared or folder / "prepared"
        if config.data.prepared is None:
            show_preparation(prepare_corpora(config, prepared))
        verification = ResumeVerification(config, prepared.absolute(), steps, kind)
        compared = []
        for report in verification.run(folder):
            if isinstance(report, TrialStep):
                print_stderr(say("{description} ...", description=translate(report.description)))
            else:
                compared.append(report)
    _print_resume_comparisons(compared, verification.stops)
    if not all(each.equal for each in compared):
        print(say("not the same run: {fix}", fix=translate(suggest_fix(verification.config, kind))))
        raise typer.Exit(1)
    print(say("the same run, bit for bit"))


def _print_resume_comparisons(compared: "list[ResumeComparison]", stops: list[int]) -> None:
    """Print each compared item: equal, or the largest difference."""
    print(say("stopped after step {names} and resumed by a new process each time:", names=list_names(stops)))
    width = max(count_columns(translate(each.name)) for each in compared)
    for each in compared:
        result = say("equal")
        if not each.equal:
            result = say(
                "{unequal} of {count} differ, by {largest:.2g} at most ({location})",
                unequal=each.unequal,
                count=each.count,
                largest=each.largest,
                location=each.location,
            )
        print(f"  {pad_columns(translate(each.name), width)}  {result}")
