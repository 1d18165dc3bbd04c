"""`attendo generate`: a filter from text to text, one line out for one line in."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from attendo.errors import DataError

Beam = Annotated[int | None, typer.Option(min=1, help="Rows of a sentence; 1 is greedy. By default the model's own.")]
LengthPenalty = Annotated[
    float | None,
    typer.Option(min=0, help="Answers rank by log-probability / tokens ** X. By default the model's own."),
]

LINES_AT_ONCE = 1024  # read, sorted by length and decoded together; a terminal is answered line by line


def generate(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="Model folder, such as runs/demo/model.")],
    max_length: Annotated[
        int | None, typer.Option(min=1, help="Most tokens of an answer; by default 2 x source + 20.")
    ] = None,
    beam: Beam = None,
    length_penalty: LengthPenalty = None,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
) -> None:
    """Translate (or otherwise transform) lines of standard input.

    Order is kept and an empty line stays empty. What was cut at the length limit or had unknown words is said on
    standard error.
    """
    from attendo.data.parallel import numbered_lines
    from attendo.text_model import load

    sys.stdout.reconfigure(encoding="utf-8")  # type: ignore[union-attr]  # as the input is, whatever the locale
    text_model = load(model, device)
    lines = numbered_lines(sys.stdin.buffer, "standard input")
    number = 0
    for texts in _together(lines, 1 if sys.stdin.isatty() else LINES_AT_ONCE):
        results = text_model.generate(texts, beam=beam, length_penalty=length_penalty, max_length=max_length)
        for result in results:
            number += 1
            if result.unknown:
                print(f"line {number}: not in the vocabulary: {', '.join(map(repr, result.unknown))}", file=sys.stderr)
            if result.cut:
                print(f"line {number}: cut at {len(result.ids)} tokens; see --max-length", file=sys.stderr)
            print(result.text)
        sys.stdout.flush()


def _together(lines: Iterator[str], size: int) -> Iterator[list[str]]:
    """So many lines at a time. A line that cannot be read ends it, but not before the lines above it are answered."""
    group: list[str] = []
    try:
        for line in lines:
            group.append(line)
            if len(group) == size:
                yield group
                group = []
    except DataError:
        yield group
        raise
    yield group
