"""The `attendo score` command: log-probabilities of given targets."""

import json
import math
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from attendo.cli.language import say
from attendo.cli.options import Device, JsonLines, ModelOrExport, Threads
from attendo.cli.output import format_unknown_words, print_stderr
from attendo.cli.stdin import name_line_in_errors
from attendo.errors import DataError, UsageError

if TYPE_CHECKING:
    from attendo.text import Tokenizer
    from attendo.text_model import ScoredTarget

PAIRS_AT_ONCE = 1024


def score(
    model: ModelOrExport,
    source: Annotated[Path, typer.Option(help="Source text, one sentence per line (plain, .gz or .xz).")],
    target: Annotated[Path, typer.Option(help="Target text, line by line.")],
    normalise: Annotated[
        bool, typer.Option("--normalise", help="Divide by the number of tokens, EOS included.")
    ] = False,
    words: Annotated[bool, typer.Option("--words", help="Also print the score of every token, EOS included.")] = False,
    as_json: JsonLines = False,
    device: Device = "auto",
    threads: Threads = None,
) -> None:
    """Print the log-probability of every target line given its source line.

    The score is the sum over the target tokens and EOS. It is at most 0, and higher is more probable. For a
    decoder-only model the target continues the source and has no EOS. Lines with words outside the vocabulary are
    reported on standard error; such words are scored as the unknown token.
    """
    from attendo.data.corpus_files import read_parallel_lines
    from attendo.runs.load import load

    if words and as_json:
        raise UsageError("words_with_json")
    text_model = load(model, device)
    pairs, before = read_parallel_lines(source, target), 0
    while block := list(islice(pairs, PAIRS_AT_ONCE)):
        sources, targets = ([pair[side] for pair in block] for side in (0, 1))
        with name_line_in_errors(source, before):
            found = text_model.score_tokens(sources, targets)
        _report_unknown(source, sources, text_model.source_tokenizer, before)
        _report_unknown(target, targets, text_model.target_tokenizer, before)
        for scored in found:
            print(_format_score(scored, normalise, words, as_json))
        before += len(block)
    if not before:
        raise DataError("file_is_empty", path=source)


def _report_unknown(file: Path, texts: Sequence[str], tokenizer: "Tokenizer", lines_before: int) -> None:
    from attendo.text.tokenizer import strip_line_end

    for number, text in enumerate(texts, start=lines_before + 1):
        if words := tokenizer.unknown(strip_line_end(text)):
            print_stderr(
                say(
                    "{file} line {number}: {unknown_words}",
                    file=file,
                    number=number,
                    unknown_words=format_unknown_words(words),
                )
            )


def _format_score(scored: "ScoredTarget", normalise: bool, words: bool, as_json: bool) -> str:
    tokens = len(scored.pieces)
    value = scored.log_probability / (tokens if normalise else 1)
    if as_json:  # JSON has no infinity
        numbers = [each if math.isfinite(each) else None for each in (value, *scored.log_probabilities)]
        content = {"score": numbers[0], "tokens": tokens, "pieces": scored.pieces, "log_probabilities": numbers[1:]}
        return json.dumps(content, ensure_ascii=False, allow_nan=False)
    each = " ".join(f"{number:.6f}" for number in scored.log_probabilities)
    return f"{value:.6f} ||| WordScores= {each}" if words else f"{value:.6f}"
