"""`attendo evaluate`: translate a text, score it against its references, and compare it with another translation."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from attendo.cli.generate import Beam, LengthPenalty, Like
from attendo.errors import DataError, UsageError

if TYPE_CHECKING:
    from attendo.metrics import Comparison, Score
    from attendo.text_model import Result, TextModel

LINES_AT_ONCE = 512  # of like length, between two moves of the bar


def evaluate(
    model: Annotated[
        Path, typer.Argument(metavar="MODEL", help="Model folder, such as runs/demo/model, or an exported one.")
    ],
    source: Annotated[Path, typer.Option(help="Text to translate, one sentence a line (plain, .gz or .xz).")],
    reference: Annotated[Path, typer.Option(help="What it should become, line by line beside it.")],
    metric: Annotated[
        str,
        typer.Option(
            help="bleu, chrf, ter, rouge1, rouge2, rougeL, exact_match, word_error_rate; several with commas between."
        ),
    ] = "bleu,chrf",
    compare: Annotated[
        Path | None,
        typer.Option(metavar="OTHER", help="Model folder or file of translations to compare with (paired bootstrap)."),
    ] = None,
    beam: Beam = None,
    length_penalty: LengthPenalty = None,
    like: Like = None,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    output: Annotated[Path | None, typer.Option(help="File for the translations.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Score a model on text that it did not learn from.

    One line a score: its name, its value, and the signature that says how it was computed. With --compare a table: both
    scores, their difference, and whether it is more than chance.
    """
    names = _names(metric)
    sources, references = _read(source, reference)
    others = _read_other(compare, source, sources)
    if output is not None:
        _check_output(output, source, reference, *([] if compare is None else [compare]))

    from attendo import metrics
    from attendo.interop.opening import load

    text_model = load(model, device)
    other_model = load(compare, device) if compare is not None and others is None else None
    options = {"beam": beam, "length_penalty": length_penalty, "like": like}
    results = _translate(text_model, sources, options)
    texts = [result.text for result in results]
    if output is not None:
        output.write_text("".join(f"{text}\n" for text in texts), "utf-8")
    _say_faults(results, f"{model}: " if other_model else "")
    if other_model is not None:
        results_of_other = _translate(other_model, sources, options)
        _say_faults(results_of_other, f"{compare}: ")
        others = [result.text for result in results_of_other]
    facts = {"model": str(model), "lines": len(texts), "cut": sum(result.cut for result in results)}
    config = text_model.settings(**options)
    facts |= {"beam": config.beam, "length_penalty": config.length_penalty}
    if others is None:
        _tell([metrics.score(name, texts, references) for name in names], facts if as_json else None)
    else:
        comparisons = [metrics.compare(name, texts, others, references) for name in names]
        _tell_compared(comparisons, (model, compare), facts if as_json else None)


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
    _check_lines(source, sources, reference, references)
    if not sources:
        raise DataError(f"{source} is empty: there is nothing to translate")
    return sources, references


def _read_other(other: Path | None, source: Path, sources: Sequence[str]) -> list[str] | None:
    """The lines of a file; a model has yet to write them."""
    if other is None or other.is_dir():
        return None
    if not other.exists():
        raise UsageError(f"--compare {other}: neither a model folder nor a file of translations")

    from attendo.data.parallel import read_lines

    others = list(read_lines(other))
    _check_lines(source, sources, other, others)
    return others


def _check_lines(source: Path, sources: Sequence[str], beside: Path, lines: Sequence[str]) -> None:
    if len(sources) != len(lines):
        raise DataError(f"{source} has {len(sources)} lines but {beside} has {len(lines)}: they must have equally many")


def _check_output(output: Path, *inputs: Path) -> None:
    """Before the long work: it must not replace what is read, and it must be possible to write."""
    for path in inputs:
        if output.exists() and output.samefile(path):
            raise UsageError(f"--output {output} would replace {path}: name another file")
    output.open("a").close()


def _translate(model: "TextModel", sources: Sequence[str], options: dict[str, Any]) -> "list[Result]":
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
            found = model.generate([sources[n] for n in group], **options)
            results.update(zip(group, found, strict=True))
            progress.advance(task, len(group))
    return [results[n] for n in range(len(sources))]


def _say_faults(results: "Sequence[Result]", model: str) -> None:
    cut, unknown = sum(result.cut for result in results), sum(bool(result.unknown) for result in results)
    if unknown:
        print(f"{model}{unknown} of {len(results)} lines have words that the vocabulary does not have", file=sys.stderr)
    if cut:
        print(f"{model}{cut} of {len(results)} answers were cut at the length limit", file=sys.stderr)


def _tell(scores: "Sequence[Score]", facts: dict[str, Any] | None) -> None:
    """As one JSON object where there are facts to go with the scores."""
    if facts is not None:
        print(json.dumps({**facts, "scores": {each.name: _as_json(each) for each in scores}}))
        return
    for each in scores:
        print(f"{each.name} {each.value:.2f} {each.signature}")


def _tell_compared(
    comparisons: "Sequence[Comparison]", names: tuple[object, object], facts: dict[str, Any] | None
) -> None:
    if facts is not None:
        scores = {each.one.name: _as_json(each.one) for each in comparisons}
        compared = {each.one.name: _compared_as_json(each) for each in comparisons}
        print(json.dumps({**facts, "scores": scores, "other": str(names[1]), "comparisons": compared}))
        return
    rows = [("score", "model", "other", "difference", "95% interval", "p"), *map(_row, comparisons)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for first, *rest in rows:
        cells = [cell.rjust(width) for cell, width in zip(rest, widths[1:], strict=True)]
        print("  ".join([first.ljust(widths[0]), *cells]))
    for each in comparisons:
        print(f"{each.one.name}: {_in_words(each, *names)}")
    for each in comparisons:
        print(f"{each.one.name} {each.signature}")


def _row(each: "Comparison") -> tuple[str, ...]:
    low, high = each.interval
    values = (f"{each.one.value:.2f}", f"{each.other.value:.2f}", f"{each.difference:+.2f}")
    return (each.one.name, *values, f"{low:+.2f} to {high:+.2f}", f"{each.p_value:.3f}")


def _in_words(each: "Comparison", model: object, other: object) -> str:
    if each.significant:
        better, worse = (model, other) if each.one_is_better else (other, model)
        return f"{better} is better than {worse}, significant at 0.05"
    if each.p_value < 0.05:
        return "not significant at 0.05: p is below it, but the interval holds 0"
    return "not significant at 0.05"


def _as_json(score: "Score") -> dict[str, str | float | bool]:
    return {"value": score.value, "signature": score.signature, "higher_is_better": score.higher_is_better}


def _compared_as_json(each: "Comparison") -> dict[str, Any]:
    return {
        "other": each.other.value,
        "difference": each.difference,
        "interval": list(each.interval),
        "p_value": each.p_value,
        "significant": each.significant,
        "signature": each.signature,
    }
