"""The `attendo generate` command: a text filter that writes one output per input line."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TextIO

import typer

from attendo.cli.options import Threads
from attendo.cli.stdin import LineCounter, read_input_blocks, replace_text_file
from attendo.errors import DataError, MessagePart, ModelError

if TYPE_CHECKING:
    from attendo.text_model import Result, TextModel

# Options of the command itself. The other options have the same names in the library.
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


Beam = Annotated[int | None, _option(_SEARCH, "Beam size; 1 is greedy. Default: the model's own.", min=1)]
LengthPenalty = Annotated[
    float | None,
    _option(_SEARCH, "Exponent of average and gnmt, or reward per token. Default: the model's own."),
]
Like = Annotated[
    Literal["fairseq", "hf", "ctranslate2", "marian"] | None,
    _option(_SEARCH, "Use the default decoding settings of this system; other options win."),
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
            metavar="MODEL", help="Model folder, such as runs/demo/model, an exported folder, or a checkpoint."
        ),
    ],
    texts: Annotated[
        list[str] | None, typer.Argument(metavar="[TEXT]...", help="Texts; default: lines of standard input.")
    ] = None,
    beam: Beam = None,
    like: Like = None,
    normalise: Annotated[Normalise | None, _option(_SEARCH, "Length normalisation of scores.")] = None,
    length_penalty: LengthPenalty = None,
    word_penalty: Annotated[Number, _option(_SEARCH, "Penalty per token, before length normalisation.")] = None,
    stop: Annotated[Stop | None, _option(_SEARCH, "Stop rule of beam search.")] = None,
    patience: Annotated[Number, _option(_SEARCH, "With --stop first: finish this many times the beam size.")] = None,
    groups: Annotated[
        Count, _option(_SEARCH, "Groups of diverse beam search; a divisor of the beam size.", min=1)
    ] = None,
    diversity: Annotated[Number, _option(_SEARCH, "Penalty for a token that an earlier group chose.", min=0)] = None,
    mbr: Annotated[
        Literal["none", "chrf", "bleu"] | None,
        _option(_SEARCH, "Minimum Bayes risk decoding with this metric."),
    ] = None,
    mbr_candidates: Annotated[Count, _option(_SEARCH, "Samples that --mbr chooses from.", min=1)] = None,
    ensemble: Annotated[Folders, _option(_SEARCH, "Another model for an ensemble; repeatable.")] = None,
    sample: Annotated[bool | None, _option(_SAMPLES, "Sample tokens.", "--sample/--no-sample")] = None,
    seed: Annotated[Count, _option(_SAMPLES, "Seed for sampling.")] = None,
    temperature: Annotated[Number, _option(_SAMPLES, "Divides the logits; below 1 favours probable tokens.")] = None,
    top_k: Annotated[Count, _option(_SAMPLES, "Sample from the k most probable tokens; 0 is all.", min=0)] = None,
    top_p: Annotated[Number, _option(_SAMPLES, "Sample from the smallest set with this total probability.")] = None,
    min_p: Annotated[Number, _option(_SAMPLES, "Minimum probability relative to the best token.")] = None,
    typical: Annotated[Number, _option(_SAMPLES, "Typical sampling: total probability nearest the entropy.")] = None,
    prefix: Annotated[str | None, _option(_WORDS, "Text that every output begins with.")] = None,
    source_prefix: Annotated[
        Names, _option(_WORDS, "Symbol before every source, such as its language; repeatable.")
    ] = None,
    target_prefix: Annotated[Names, _option(_WORDS, "Symbol that every output begins with; repeatable.")] = None,
    constraint: Annotated[Names, _option(_WORDS, "Phrase that must be in the output; repeatable.")] = None,
    ban: Annotated[Names, _option(_WORDS, "Word or phrase that must not be in the output; repeatable.")] = None,
    no_repeat_ngram: Annotated[
        Count, _option(_WORDS, "No repeated n-gram of this size; 0 is off.", metavar="N")
    ] = None,
    repetition_penalty: Annotated[
        Number, _option(_WORDS, "Above 1: generated tokens become less probable.", metavar="N")
    ] = None,
    repetition_of: Annotated[
        Literal["log_probabilities", "logits"] | None,
        _option(_WORDS, "Values to penalise: log_probabilities or logits.", metavar="WHAT"),
    ] = None,
    renormalise: Annotated[
        bool | None,
        _option(_WORDS, "Renormalise probabilities after rules are applied.", "--renormalise/--no-renormalise"),
    ] = None,
    allow_unk: Annotated[bool | None, _option(_WORDS, "Allow the unknown token.", "--allow-unk/--no-allow-unk")] = None,
    coverage_penalty: Annotated[
        Number, _option(_WORDS, "Penalty for source tokens without attention.", metavar="N", min=0)
    ] = None,
    max_length: Annotated[
        Count, _option(_LENGTHS, "Maximum output tokens; default: factor x source + extra.", metavar="N", min=1)
    ] = None,
    min_length: Annotated[Count, _option(_LENGTHS, "Minimum output tokens.", metavar="N", min=1)] = None,
    max_length_factor: Annotated[
        Number, _option(_LENGTHS, "Maximum output tokens per source token.", metavar="N")
    ] = None,
    max_length_extra: Annotated[Count, _option(_LENGTHS, "Added to the maximum.", metavar="N")] = None,
    min_length_factor: Annotated[
        Number, _option(_LENGTHS, "Minimum output tokens per source token.", metavar="N")
    ] = None,
    min_length_extra: Annotated[Count, _option(_LENGTHS, "Added to the minimum.", metavar="N")] = None,
    counts_eos: Annotated[
        bool | None, _option(_LENGTHS, "Count EOS as a token of the length.", "--counts-eos/--no-counts-eos")
    ] = None,
    at_limit: Annotated[
        Literal["cut", "end", "free"] | None,
        _option(_LENGTHS, "At the limit: truncate, force EOS, or allow any token."),
    ] = None,
    max_source: Annotated[
        Count, _option(_LENGTHS, "Maximum source tokens; a longer line is an error.", metavar="N", min=1)
    ] = None,
    long_source: Annotated[
        Literal["refuse", "cut"] | None,
        _option(_LENGTHS, "A longer line: an error, or truncated."),
    ] = None,
    split: Annotated[
        bool | None,
        _option(
            _LENGTHS,
            "Split lines into sentences; default: if the model was trained on single sentences.",
            "--split/--no-split",
        ),
    ] = None,
    n_best: Annotated[Count, _option(_OUTPUT, "Number of outputs per line, in Marian's format.", min=1)] = None,
    distinct: Annotated[
        bool | None,
        _option(
            _OUTPUT, "Distinct texts in --n-best; default except with samples and --like.", "--distinct/--no-distinct"
        ),
    ] = None,
    alignments: Annotated[bool, _option(_OUTPUT, "Print word alignments.", "--alignments")] = False,
    alignments_of: Annotated[
        Literal["words", "pieces"] | None,
        _option(_OUTPUT, "Unit of alignments: words of the text or tokenizer pieces."),
    ] = None,
    as_json: Annotated[
        bool, _option(_OUTPUT, "Print one JSON object per line, with detailed scores.", "--json")
    ] = False,
    output: Annotated[
        Path | None,
        _option(_OUTPUT, "Write to this file, replaced when all is done.", "--output", "-o"),
    ] = None,
    errors: Annotated[Literal["strict", "replace"], _option(_OUTPUT, "Invalid UTF-8: an error, or U+FFFD.")] = "strict",
    engine: Annotated[
        Literal["auto", "textbook", "cached", "fast", "onnx", "ctranslate2"] | None,
        _option(_MACHINE, "The first four give equal outputs; the others are for exported folders."),
    ] = None,
    compile: Annotated[  # noqa: A002
        bool | None, _option(_MACHINE, "Compile the fast engine: up to a minute per new batch size.")
    ] = None,
    precision: Annotated[
        Literal["auto", "fp32", "bf16", "fp16"] | None, _option(_MACHINE, "Precision of the network.")
    ] = None,
    batch_tokens: Annotated[Count, _option(_MACHINE, "Source positions per batch; 0 chooses by device.", min=0)] = None,
    device: Annotated[str, _option(_MACHINE, "auto, cpu, cuda or cuda:N.")] = "auto",
    threads: Threads = None,
) -> None:
    """Translate (or otherwise transform) lines of standard input.

    Given texts are used instead of standard input. Order is kept and an empty line stays empty. Outputs cut at the
    length limit, unknown words and lines split into sentences are reported on standard error. Defaults are stored in
    the model folder (generation.json).
    """
    given = dict(locals())
    for name in _COMMAND_OPTIONS:
        given.pop(name)
    pieces = given.pop("alignments_of") == "pieces"
    given["alignments"] = alignments or alignments_of is not None
    from attendo.cli import output as answers
    from attendo.runs.load import load

    sys.stdout.reconfigure(encoding="utf-8")  # type: ignore[union-attr]  # same as the input, for any locale
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
        if model.decoder_only
        else results
    )
