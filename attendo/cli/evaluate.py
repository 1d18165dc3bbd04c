"""`attendo evaluate`: translate a text and score it against its references."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from attendo.cli.generate import Beam, LengthPenalty
from attendo.errors import DataError, UsageError

if TYPE_CHECKING:
    from attendo.metrics import Score
    from attendo.text_model import Result, TextModel

LINES_AT_ONCE = 512  # of like length, between two moves of the bar


def evaluate(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="Model folder, such as runs/demo/model.")],
    source: Annotated[Path, typer.Option(help="Text to translate, one sentence a line (plain, .gz or .xz).")],
    reference: Annotated[Path, typer.Option(help="What it should become, line by line beside it.")],
    metric: Annotated[
        str, typer.Option(help="bleu, chrf, exact_match, word_error_rate; several with commas between.")
    ] = "bleu,chrf",
    beam: Beam = None,
    length_penalty: LengthPenalty = None,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    output: Annotated[Path | None, typer.Option(help="File for the translations.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Score a model on text that it did not learn from.

    One line a score: its name, its value, and the signature that says how it was computed.
    """
    names = _names(metric)
    sources, references = _read(source, reference)
    if output is not None:
        _check_output(output, source, reference)

    from attendo.metrics import score
    from attendo.text_model import load

    text_model = load(model, device)
    config = text_model.generation.changed(beam=beam, length_penalty=length_penalty)
    results = _translate(text_model, sources, config.beam, config.length_penalty)
    texts = [result.text for result in results]
    if output is not None:
        output.write_text("".join(f"{text}\n" for text in texts), "utf-8")
    _say_faults(results)
    scores = [score(name, texts, references) for name in names]
    if as_json:
        facts = {"model": str(model), "lines": len(texts), "cut": sum(result.cut for result in results)}
        facts |= {"beam": config.beam, "length_penalty": config.length_penalty}
        print(json.dumps({**facts, "scores": {each.name: _as_json(each) for each in scores}}))
        return
    for each in scores:
        print(f"{each.name} {each.value:.2f} {each.signature}")


def _names(metric: str) -> list[str]:
    from attendo.metrics import check_metric

    names = list(dict.fromkeys(name.strip() for name in metric.split(",") if name.strip()))
    if not names:
        raise UsageError("--metric names no score: give at least one, such as bleu")
    for name in names:
        check_metric(name)
    return names


def _read(source: Path, reference: Path) -> tuple[list[str], list[str]]:
    from attendo.data.parallel import read_lines

    sources, references = list(read_lines(source)), list(read_lines(reference))
    if len(sources) != len(references):
        raise DataError(
            f"{source} has {len(sources)} lines but {reference} has {len(references)}: they must have equally many"
        )
    if not sources:
        raise DataError(f"{source} is empty: there is nothing to translate")
    return sources, references


def _check_output(output: Path, *inputs: Path) -> None:
    """Before the long work: it must not replace what is read, and it must be possible to write."""
    for path in inputs:
        if output.exists() and output.samefile(path):
            raise UsageError(f"--output {output} would replace {path}: name another file")
    output.open("a").close()


def _translate(model: "TextModel", sources: Sequence[str], beam: int, length_penalty: float) -> "list[Result]":
    """In the order of the sources; like lengths together, so that little is padded."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    order = sorted(range(len(sources)), key=lambda n: len(sources[n]))
    results: dict[int, Result] = {}
    with Progress(console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task("translating", total=len(sources))
        for first in range(0, len(order), LINES_AT_ONCE):
            group = order[first : first + LINES_AT_ONCE]
            found = model.generate([sources[n] for n in group], beam=beam, length_penalty=length_penalty)
            results.update(zip(group, found, strict=True))
            progress.advance(task, len(group))
    return [results[n] for n in range(len(sources))]


def _say_faults(results: "Sequence[Result]") -> None:
    cut, unknown = sum(result.cut for result in results), sum(bool(result.unknown) for result in results)
    if unknown:
        print(f"{unknown} of {len(results)} lines have words that the vocabulary does not have", file=sys.stderr)
    if cut:
        print(f"{cut} of {len(results)} answers were cut at the length limit", file=sys.stderr)


def _as_json(score: "Score") -> dict[str, str | float | bool]:
    return {"value": score.value, "signature": score.signature, "higher_is_better": score.higher_is_better}
