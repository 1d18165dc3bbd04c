"""`attendo generate`: a filter from text to text, one line out for one line in."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TextIO

import typer

from attendo.cli.stdin import LineCounter, read_input_blocks, replace_text_file
from attendo.cli.threads import Threads
from attendo.errors import DataError, ModelError

if TYPE_CHECKING:
    from attendo.text_model import Result, TextModel

# Options of the command itself; the others are the library's, by the same names.
_COMMAND_OPTIONS = (
    "model",
    "texts",
    "ensemble",
    "as_json",
    "errors",
    "device",
    "threads",
    "constraint",
    "n_best",
    "output",
)
_SEARCH, _SAMPLES, _WORDS = "Search", "Samples", "What is said"
_LENGTHS, _OUTPUT, _MACHINE = "Lengths", "Output", "Machine"


def _option(panel: str, help: str, *names: str, **settings: Any) -> Any:  # noqa: A002
    return typer.Option(*names, help=help, rich_help_panel=panel, show_default=False, **settings)


Beam = Annotated[int | None, _option(_SEARCH, "Rows of a sentence; 1 is greedy. By default the model's own.", min=1)]
LengthPenalty = Annotated[
    float | None,
    _option(_SEARCH, "Exponent of average and gnmt, or reward of a token. By default the model's own."),
]
Like = Annotated[
    Literal["fairseq", "hf", "ctranslate2", "marian"] | None,
    _option(_SEARCH, "Settings that mean what this system means by its defaults; other options win."),
]
Normalise = Literal["none", "average", "gnmt", "reward"]
Stop = Literal["first", "settled", "exhaustive", "first_come", "leader", "shrinking"]
Count = int | None
Number = float | None
Names = list[str] | None
Folders = list[Path] | None


def generate(
    model: Annotated[
        Path,
        typer.Argument(
            metavar="MODEL", help="Model folder, such as runs/demo/model, an exported one, or a checkpoint."
        ),
    ],
    texts: Annotated[
        list[str] | None, typer.Argument(metavar="[TEXT]...", help="Texts; standard input is read if there are none.")
    ] = None,
    beam: Beam = None,
    like: Like = None,
    normalise: Annotated[Normalise | None, _option(_SEARCH, "How scores account for length.")] = None,
    length_penalty: LengthPenalty = None,
    word_penalty: Annotated[Number, _option(_SEARCH, "What every token costs, before the score is made.")] = None,
    stop: Annotated[Stop | None, _option(_SEARCH, "When a beam has found enough.")] = None,
    patience: Annotated[Number, _option(_SEARCH, "With --stop first: so many times the beam must be finished.")] = None,
    groups: Annotated[Count, _option(_SEARCH, "Of a diverse beam; they divide the beam evenly.", min=1)] = None,
    diversity: Annotated[Number, _option(_SEARCH, "What a group loses for a token of an earlier one.", min=0)] = None,
    mbr: Annotated[
        Literal["none", "chrf", "bleu"] | None,
        _option(_SEARCH, "Minimum Bayes risk: the answer that agrees most with the others, by this score."),
    ] = None,
    mbr_candidates: Annotated[Count, _option(_SEARCH, "Samples that --mbr chooses from.", min=1)] = None,
    ensemble: Annotated[Folders, _option(_SEARCH, "Another model that answers together with it; repeatable.")] = None,
    sample: Annotated[bool | None, _option(_SAMPLES, "Draw tokens by chance.", "--sample/--no-sample")] = None,
    seed: Annotated[Count, _option(_SAMPLES, "Of what is drawn.")] = None,
    temperature: Annotated[Number, _option(_SAMPLES, "Below 1 more of the probable, above 1 less.")] = None,
    top_k: Annotated[Count, _option(_SAMPLES, "Draw from the k most probable tokens; 0 from all.", min=0)] = None,
    top_p: Annotated[Number, _option(_SAMPLES, "Draw from the fewest that have this probability together.")] = None,
    min_p: Annotated[Number, _option(_SAMPLES, "Draw from those this share as probable as the best.")] = None,
    typical: Annotated[
        Number, _option(_SAMPLES, "Draw from the fewest nearest the entropy with this together.")
    ] = None,
    prefix: Annotated[str | None, _option(_WORDS, "Every answer begins with this.")] = None,
    source_prefix: Annotated[Names, _option(_WORDS, "A symbol before every source, such as its language.")] = None,
    target_prefix: Annotated[Names, _option(_WORDS, "A symbol that every answer begins with; repeatable.")] = None,
    constraint: Annotated[Names, _option(_WORDS, "A phrase that must be said; repeatable.")] = None,
    ban: Annotated[Names, _option(_WORDS, "A word or phrase that must not be said; repeatable.")] = None,
    no_repeat_ngram: Annotated[
        Count, _option(_WORDS, "No sequence of so many tokens twice; 0 allows all.", metavar="N")
    ] = None,
    repetition_penalty: Annotated[
        Number, _option(_WORDS, "Above 1: what was said becomes less probable.", metavar="N")
    ] = None,
    repetition_of: Annotated[
        Literal["log_probabilities", "logits"] | None,
        _option(_WORDS, "What the penalty multiplies: log_probabilities or logits.", metavar="WHAT"),
    ] = None,
    renormalise: Annotated[
        bool | None,
        _option(_WORDS, "What is forbidden leaves its probability to the rest.", "--renormalise/--no-renormalise"),
    ] = None,
    allow_unk: Annotated[
        bool | None, _option(_WORDS, "Whether the unknown token may be said.", "--allow-unk/--no-allow-unk")
    ] = None,
    coverage_penalty: Annotated[
        Number, _option(_WORDS, "Weight of source words not looked at.", metavar="N", min=0)
    ] = None,
    max_length: Annotated[
        Count, _option(_LENGTHS, "Most tokens of an answer; else factor x source + extra.", metavar="N", min=1)
    ] = None,
    min_length: Annotated[Count, _option(_LENGTHS, "Fewest tokens of an answer.", metavar="N", min=1)] = None,
    max_length_factor: Annotated[
        Number, _option(_LENGTHS, "Most tokens of an answer per token of source.", metavar="N")
    ] = None,
    max_length_extra: Annotated[Count, _option(_LENGTHS, "And so many more.", metavar="N")] = None,
    min_length_factor: Annotated[
        Number, _option(_LENGTHS, "Fewest tokens of an answer per token of source.", metavar="N")
    ] = None,
    min_length_extra: Annotated[Count, _option(_LENGTHS, "And so many more.", metavar="N")] = None,
    counts_eos: Annotated[
        bool | None, _option(_LENGTHS, "Whether the end counts as a token.", "--counts-eos/--no-counts-eos")
    ] = None,
    at_limit: Annotated[
        Literal["cut", "end", "free"] | None,
        _option(_LENGTHS, "An answer at its limit is cut, ends by force, or ends as it is."),
    ] = None,
    max_source: Annotated[
        Count, _option(_LENGTHS, "Most tokens of a line; a longer one is an error.", metavar="N", min=1)
    ] = None,
    long_source: Annotated[
        Literal["refuse", "cut"] | None,
        _option(_LENGTHS, "A line of more tokens: an error, or only its first are read."),
    ] = None,
    split: Annotated[
        bool | None,
        _option(
            _LENGTHS,
            "Answer each sentence of a line by itself; by default if the model was trained on single sentences.",
            "--split/--no-split",
        ),
    ] = None,
    n_best: Annotated[Count, _option(_OUTPUT, "As many answers a line, as Marian writes them.", min=1)] = None,
    distinct: Annotated[
        bool | None,
        _option(
            _OUTPUT, "No text twice in --n-best; by default so, but for samples and --like.", "--distinct/--no-distinct"
        ),
    ] = None,
    alignments: Annotated[bool, _option(_OUTPUT, "Which source words were looked at.", "--alignments")] = False,
    alignments_of: Annotated[
        Literal["words", "pieces"] | None,
        _option(_OUTPUT, "Alignments of the words that the text shows, or of the pieces of the tokenizer."),
    ] = None,
    as_json: Annotated[bool, _option(_OUTPUT, "One JSON object a line, with scores taken apart.", "--json")] = False,
    output: Annotated[
        Path | None,
        _option(_OUTPUT, "Write to this file, which is replaced when all is done.", "--output", "-o"),
    ] = None,
    errors: Annotated[
        Literal["strict", "replace"], _option(_OUTPUT, "Bytes that are no UTF-8: an error, or U+FFFD.")
    ] = "strict",
    engine: Annotated[
        Literal["auto", "textbook", "cached", "fast", "onnx", "ctranslate2"] | None,
        _option(_MACHINE, "The first four give the same answers; the others are for folders exported to them."),
    ] = None,
    compile: Annotated[  # noqa: A002
        bool | None, _option(_MACHINE, "Fast engine: a minute for each new size of a batch, then faster.")
    ] = None,
    precision: Annotated[Literal["auto", "fp32", "bf16", "fp16"] | None, _option(_MACHINE, "Of the network.")] = None,
    batch_tokens: Annotated[
        Count, _option(_MACHINE, "Source positions decoded side by side; 0 chooses by the device.", min=0)
    ] = None,
    device: Annotated[str, _option(_MACHINE, "auto, cpu, cuda or cuda:N.")] = "auto",
    threads: Threads = None,
) -> None:
    """Translate (or otherwise transform) lines of standard input.

    Texts that are given are answered instead. Order is kept and an empty line stays empty. What was cut at the length
    limit, had unknown words or was split into sentences is said on standard error. Whatever is left out is as the model
    folder has it (generation.json).
    """
    given = dict(locals())
    for name in _COMMAND_OPTIONS:
        given.pop(name)
    pieces = given.pop("alignments_of") == "pieces"
    given["alignments"] = alignments or alignments_of is not None
    from attendo.cli import output as answers
    from attendo.runs.load import load

    sys.stdout.reconfigure(encoding="utf-8")  # type: ignore[union-attr]  # as the input is, whatever the locale
    text_model = load(model, device)
    if ensemble:
        text_model = text_model.ensemble([load(each, device) for each in ensemble])
    options = {**given, "constraints": constraint, "n_best": n_best or 1}

    def written(number: int, result: "Result") -> Iterator[str]:
        if as_json:
            yield answers.format_json(number, result, all_hypotheses=n_best is not None)
        elif n_best is not None:
            yield from answers.format_n_best(number, result, pieces)
        else:
            yield answers.format_plain(result, pieces)

    blocks = read_input_blocks(errors) if texts is None else iter([list(texts)])
    with nullcontext(sys.stdout) if output is None else replace_text_file(output) as out:
        _generate_all(text_model, blocks, options, written, out)


def _generate_all(
    model: "TextModel",
    blocks: Iterator[list[str]],
    options: dict[str, Any],
    format_result: Callable[[int, "Result"], Iterator[str]],
    out: TextIO,
) -> None:
    from attendo.cli import output as answers

    number, standing, split = 0, LineCounter(), list[int]()
    for texts in blocks:
        for results in _generate_until_error(model, texts, number, options):
            for result in results:
                for warning in answers.list_warnings(number, result, ends=not model.decoder_only):
                    standing.clear()
                    print(warning, file=sys.stderr)
                for line in format_result(number, result):
                    print(line, file=out)
                number += 1
                if result.joined:
                    split.append(len(result.sentences))
            out.flush()
            standing.add(len(results))
    standing.clear()
    if split:
        print(answers.format_split_summary(split, number, by_default=options["split"] is None), file=sys.stderr)


def _generate_until_error(
    model: "TextModel", texts: Sequence[str], lines_before: int, options: dict[str, Any]
) -> "Iterator[list[Result]]":
    """A line that has no answer ends it, but not before the lines above it are answered."""
    from attendo.text_model import NotANumberError, TooLongError
    from attendo.text_model.options import message_without_position

    try:
        yield _generate(model, texts, options)
    except (TooLongError, NotANumberError) as error:
        yield _generate(model, texts[: error.number], options)
        kind = DataError if isinstance(error, TooLongError) else ModelError
        raise kind(
            "line_without_answer", line=lines_before + error.number + 1, problem=message_without_position(error)
        ) from None


def _generate(model: "TextModel", texts: Sequence[str], options: dict[str, Any]) -> "list[Result]":
    """An empty line stays empty, also of a decoder-only model, which could go on from nothing."""
    from attendo.text_model.results import EMPTY_RESULT

    results = model.generate(texts, **options)
    return (
        [each if text.strip() else EMPTY_RESULT for text, each in zip(texts, results, strict=True)]
        if model.decoder_only
        else results
    )
