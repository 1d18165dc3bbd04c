"""The `attendo generate` command: a text filter that writes one output per input line."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TextIO

import typer

from attendo.cli.decoding_options import add_decoding_options, take_decoding_options
from attendo.cli.options import Threads
from attendo.cli.stdin import LineCounter, read_input_blocks, replace_text_file
from attendo.errors import DataError, MessagePart, ModelError

if TYPE_CHECKING:
    from attendo.text_model import Result, TextModel

Folders = list[Path] | None


def _own(section: str, description: str, *names: str, **details: Any) -> Any:
    return typer.Option(*names, help=description, rich_help_panel=section, show_default=False, **details)


@add_decoding_options(engine=Literal["auto", "textbook", "cached", "fast", "onnx", "ctranslate2"])
def generate(
    model: Annotated[
        Path,
        typer.Argument(
            metavar="MODEL", help="Model folder, such as runs/demo/model, an exported folder, or a checkpoint."
        ),
    ],
    texts: Annotated[
        list[str] | None, typer.Argument(metavar="[TEXT]...", help="Texts; default: lines of standard input.")
    ] = None,
    ensemble: Annotated[Folders, _own("Search", "Another model for an ensemble; repeatable.")] = None,
    draft: Annotated[
        Path | None,
        _own("Search", "Draft model for speculative decoding: same outputs, less time per sentence.", metavar="MODEL"),
    ] = None,
    alignments_of: Annotated[
        Literal["words", "pieces"] | None,
        _own("Output", "Unit of alignments: words of the text or tokenizer pieces."),
    ] = None,
    as_json: Annotated[bool, _own("Output", "Print one JSON object per line, with detailed scores.", "--json")] = False,
    output: Annotated[
        Path | None, _own("Output", "Write to this file, replaced when all is done.", "--output", "-o")
    ] = None,
    errors: Annotated[Literal["strict", "replace"], _own("Output", "Invalid UTF-8: an error, or U+FFFD.")] = "strict",
    device: Annotated[str, _own("Machine", "auto, cpu, cuda or cuda:N.")] = "auto",
    threads: Threads = None,
    **given: Any,
) -> None:
    """Translate (or otherwise transform) lines of standard input.

    Given texts are used instead of standard input. Order is kept and an empty line stays empty. Outputs cut at the
    length limit, unknown words and lines split into sentences are reported on standard error. Defaults are stored in
    the model folder (generation.json). With --n-best, lines are printed in Marian's format.
    """
    options = take_decoding_options(given)
    n_best, pieces = options.get("n_best"), alignments_of == "pieces"
    if alignments_of is not None:
        options["alignments"] = True
    from attendo.cli import output as answers
    from attendo.runs.load import load

    sys.stdout.reconfigure(encoding="utf-8")  # type: ignore[union-attr]  # same as the input, for any locale
    text_model = load(model, device)
    if ensemble:
        text_model = text_model.ensemble([load(each, device) for each in ensemble])
    if draft is not None:
        text_model = text_model.with_draft(load(draft, device))

    def format_result(number: int, result: "Result") -> Iterator[str]:
        if as_json:
            yield answers.format_json(number, result, all_hypotheses=n_best is not None)
        elif n_best is not None:
            yield from answers.format_n_best(number, result, pieces)
        else:
            yield answers.format_plain(result, pieces)

    blocks = read_input_blocks(errors) if texts is None else iter([list(texts)])
    with nullcontext(sys.stdout) if output is None else replace_text_file(output) as out:
        _generate_all(text_model, blocks, options, format_result, out)


def _generate_all(
    model: "TextModel",
    blocks: Iterator[list[str]],
    options: dict[str, Any],
    format_result: Callable[[int, "Result"], Iterator[str]],
    out: TextIO,
) -> None:
    from attendo.cli import output as answers

    number, counter, split = 0, LineCounter(), list[int]()
    for texts in blocks:
        for results in _generate_until_error(model, texts, number, options):
            for result in results:
                for warning in answers.list_warnings(number, result, ends=not model.continues_text):
                    counter.clear()
                    print(warning, file=sys.stderr)
                for line in format_result(number, result):
                    print(line, file=out)
                number += 1
                if result.joined:
                    split.append(len(result.sentences))
            out.flush()
            counter.add(len(results))
    counter.clear()
    if split:
        print(answers.format_split_summary(split, number, by_default="split" not in options), file=sys.stderr)


def _generate_until_error(
    model: "TextModel", texts: Sequence[str], lines_before: int, options: dict[str, Any]
) -> "Iterator[list[Result]]":
    """Yield results. On an error, earlier lines are still answered before it is raised."""
    from attendo.text_model import NotANumberError, TooLongError

    try:
        yield _generate(model, texts, options)
    except (TooLongError, NotANumberError) as error:
        yield _generate(model, texts[: error.number], options)
        kind = DataError if isinstance(error, TooLongError) else ModelError
        line = MessagePart("input_line", line=lines_before + error.number + 1)
        raise kind(error.code, **{**error.values, "text": line}) from None


def _generate(model: "TextModel", texts: Sequence[str], options: dict[str, Any]) -> "list[Result]":
    """Generate a result per text. An empty line stays empty, even if a decoder-only model could continue it."""
    from attendo.text_model.results import EMPTY_RESULT

    results = model.generate(texts, **options)
    return (
        [each if text.strip() else EMPTY_RESULT for text, each in zip(texts, results, strict=True)]
        if model.continues_text
        else results
    )
