"""The `attendo generate` command: a text filter that writes one output per input line."""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TextIO

import typer

from attendo.cli.decoding_options import add_decoding_options, read_glossary, take_decoding_options
from attendo.cli.options import Threads
from attendo.cli.stdin import LineCounter, read_input_blocks, replace_text_file
from attendo.errors import DataError, MessagePart, ModelError, UsageError

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
    glossary: Annotated[
        Path | None,
        _own("Content", "Terms and their translations: a .tsv file with a term, a tab and its translation per line."),
    ] = None,
    alignments_of: Annotated[
        Literal["words", "pieces"] | None,
        _own("Output", "Unit of alignments: words of the text or tokenizer pieces."),
    ] = None,
    as_json: Annotated[bool, _own("Output", "Print one JSON object per line, with detailed scores.", "--json")] = False,
    output: Annotated[
        Path | None,
        _own(
            "Output", "Write to this file, replaced when all is done; with --input, to this folder.", "--output", "-o"
        ),
    ] = None,
    errors: Annotated[Literal["strict", "replace"], _own("Output", "Invalid UTF-8: an error, or U+FFFD.")] = "strict",
    input_: Annotated[
        str | None,
        _own("Corpora", "Folder or pattern of shards; each has an output shard in --output.", "--input", metavar="DIR"),
    ] = None,
    workers: Annotated[
        int | None, _own("Corpora", "With --input: processes of this machine; default: 1.", min=1, max=1000)
    ] = None,
    ray: Annotated[
        str | None,
        _own(
            "Corpora",
            "With --input: compute on Ray, on this machine or the cluster at ADDRESS; --workers limits the actors.",
            metavar="[ADDRESS]",
        ),
    ] = None,
    source_field: Annotated[
        str | None,
        _own(
            "Corpora", "Field or column of the source, by name or .tsv number; default: source, or 1.", metavar="NAME"
        ),
    ] = None,
    output_field: Annotated[
        str | None, _own("Corpora", "New field or column of the output; default: output.", metavar="NAME")
    ] = None,
    device: Annotated[str, _own("Machine", "auto, cpu, cuda or cuda:N.")] = "auto",
    threads: Threads = None,
    **given: Any,
) -> None:
    """Translate (or otherwise transform) lines of standard input.

    Given texts are used instead of standard input. Order is kept and an empty line stays empty. Outputs cut at the
    length limit, unknown words and lines split into sentences are reported on standard error. Defaults are stored in
    the model folder (generation.json). With --n-best, lines are printed in Marian's format. With --input and --output,
    the same command continues an interrupted one.
    """
    options = take_decoding_options(given)
    if alignments_of is not None:
        options["alignments"] = True
    if glossary is not None:
        options["glossary"] = str(glossary)
    if input_ is None:
        _reject_unused(workers=workers, ray=ray, source_field=source_field, output_field=output_field)
    sys.stdout.reconfigure(encoding="utf-8")  # type: ignore[union-attr]  # same as the input, for any locale
    from attendo.cli.output import OutputStyle

    style = OutputStyle(as_json, options.get("n_best") is not None, alignments_of == "pieces")
    if input_ is not None:
        from attendo.cli.generate_corpus import CorpusCommand, generate_corpus

        if texts is not None or output is None:
            raise UsageError("corpus_option_conflict")
        fields = {"source": source_field, "output": output_field or "output", "errors": errors}
        command = CorpusCommand(model, ensemble or [], draft, device, options, style, fields)
        generate_corpus(command, input_, output, workers, ray)
        return
    from attendo.runs.load import load_models

    options = read_glossary(options)
    text_model = load_models(model, ensemble or [], draft, device)
    blocks = read_input_blocks(errors) if texts is None else iter([list(texts)])
    with nullcontext(sys.stdout) if output is None else replace_text_file(output) as out:
        _generate_all(text_model, blocks, options, style.format_lines, out)


def _reject_unused(**options: object) -> None:
    if given := [name for name, value in options.items() if value is not None]:
        raise UsageError("corpus_option_without_input", option=given[0])


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
        yield generate_results(model, texts, options)
    except (TooLongError, NotANumberError) as error:
        yield generate_results(model, texts[: error.number], options)
        kind = DataError if isinstance(error, TooLongError) else ModelError
        line = MessagePart("input_line", line=lines_before + error.number + 1)
        raise kind(error.code, **{**error.values, "text": line}) from None


def generate_results(model: "TextModel", texts: Sequence[str], options: Mapping[str, Any]) -> "list[Result]":
    """Generate a result per text. An empty line stays empty, even if a decoder-only model could continue it."""
    from attendo.text_model.results import EMPTY_RESULT

    results = model.generate(texts, **options)
    return (
        [each if text.strip() else EMPTY_RESULT for text, each in zip(texts, results, strict=True)]
        if model.continues_text
        else results
    )
