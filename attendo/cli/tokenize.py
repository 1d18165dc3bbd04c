"""The `attendo tokenize` and `attendo detokenize` commands: a model's tokenizer as a text filter."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from attendo.cli.stdin import read_input_blocks, to_single_line
from attendo.errors import DataError, UsageError

if TYPE_CHECKING:
    from attendo.text import Tokenizer

Model = Annotated[Path, typer.Argument(metavar="MODEL", help="Model folder, exported folder or checkpoint.")]
Side = Annotated[Literal["source", "target"], typer.Option(help="Tokenizer to use: source or target.")]


def tokenize(
    model: Model,
    side: Side = "source",
    ids: Annotated[bool, typer.Option("--ids", help="Print ids, which attendo detokenize reads.")] = False,
) -> None:
    """Print the pieces of every line of standard input.

    Pieces are for reading. Only ids can be converted back into the same text.
    """
    sys.stdout.reconfigure(encoding="utf-8")  # type: ignore[union-attr]  # same as the input, for any locale
    tokenizer = _load_tokenizer(model, side)
    for lines in read_input_blocks("strict"):
        for numbers in tokenizer.encode_many(lines):
            print(to_single_line(" ".join(map(str, numbers) if ids else tokenizer.pieces(numbers))))
        sys.stdout.flush()


def detokenize(model: Model, side: Side = "target") -> None:
    """Print the text of every line of ids on standard input."""
    sys.stdout.reconfigure(encoding="utf-8")  # type: ignore[union-attr]
    tokenizer, number = _load_tokenizer(model, side), 0
    for lines in read_input_blocks("strict"):
        for line in lines:
            number += 1
            try:
                print(to_single_line(tokenizer.decode([int(each) for each in line.split()])))
            except ValueError:
                raise DataError("line_not_token_ids", line=number) from None
            except UsageError as error:
                raise DataError("line_token_ids_invalid", line=number, error=error) from None
        sys.stdout.flush()


def _load_tokenizer(model: Path, side: Literal["source", "target"]) -> "Tokenizer":
    from attendo.runs.load import load

    text_model = load(model, "cpu")
    return text_model.source_tokenizer if side == "source" else text_model.target_tokenizer
