"""The JSON file that every tokenizer has: what it is, and the pieces of those that have a list."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path

from attendo import model_files
from attendo.errors import ModelError, UsageError, shorten
from attendo.text.symbols import checked_symbols
from attendo.text.tokenizer import CONTROL_PIECES, is_unicode

FORMAT = "attendo.tokenizer"
VERSION = 1


def header_path(folder: Path, name: str) -> Path:
    """Where the tokenizer called `name` says what it is."""
    return folder / f"{name}.tokenizer.json"


def write_header(
    folder: Path, name: str, kind: str, entries: Sequence[str] | None = None, symbols: Sequence[str] = ()
) -> Path:
    """Write the JSON file, one piece a line so that a person can read it and compare two of them."""
    lines = [f'"format": {json.dumps(FORMAT)}', f'"version": {VERSION}', f'"kind": {json.dumps(kind)}']
    if symbols:
        lines.append(f'"symbols": {_one_a_line(symbols)}')
    if entries is not None:
        lines.append(f'"pieces": {_one_a_line((*CONTROL_PIECES, *entries))}')
    path = header_path(folder, name)
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8", newline="\n")
    return path


def read_header(folder: Path, name: str) -> dict[str, object]:
    """The checked content of the JSON file; anything else than a tokenizer of this version is a `ModelError`."""
    path = header_path(folder, name)
    try:
        header = model_files.parse_json(read_bytes(path))
    except ValueError as error:
        raise ModelError(f"{path} is not a tokenizer: {error}; copy the model folder again") from None
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise ModelError(f'{path} is not a tokenizer: "format" must be "{FORMAT}"')
    if type(header.get("version")) is not int or header["version"] != VERSION:
        raise ModelError(f"{path} has version {shorten(header.get('version'))}: this attendo reads version {VERSION}")
    surplus = sorted(header.keys() - {"format", "version", "kind", "symbols", "pieces"})
    if surplus:
        raise ModelError(f"{path} has the unknown key {shorten(surplus[0])}: remove it or copy the model folder again")
    return header


def read_bytes(path: Path) -> bytes:
    """The content of a file; one that cannot be read is a `ModelError`."""
    return model_files.read_bytes(path, "a model folder needs its tokenizer files")


def symbol_list(path: Path, header: dict[str, object]) -> tuple[str, ...]:
    """The symbols of a tokenizer; a fault is a `ModelError` that names it."""
    written = header.get("symbols", [])
    if not isinstance(written, list) or not all(isinstance(symbol, str) for symbol in written):
        raise ModelError(f'{path} is damaged: "symbols" must be a list of strings')
    try:
        return checked_symbols(written)
    except UsageError as error:
        raise ModelError(f"{path} is damaged: {error}") from None


def piece_list(
    path: Path,
    header: dict[str, object],
    from_disk: Callable[[str], str],
    is_piece: Callable[[str], bool],
    always: tuple[str, ...] = (),
) -> tuple[str, ...]:
    """The pieces after the control pieces, as they are in memory; a fault is a `ModelError` that names it."""
    written = header.get("pieces")
    if not isinstance(written, list) or not all(isinstance(piece, str) for piece in written):
        raise ModelError(f'{path} is damaged: "pieces" must be a list of strings')
    if tuple(written[: len(CONTROL_PIECES)]) != CONTROL_PIECES:
        raise ModelError(f"{path} is damaged: its pieces must begin with {' '.join(CONTROL_PIECES)}")
    entries = tuple(from_disk(piece) for piece in written[len(CONTROL_PIECES) :])
    symbols = symbol_list(path, header)
    if entries[: len(symbols)] != symbols:
        raise ModelError(f"{path} is damaged: its symbols must be the first pieces after {CONTROL_PIECES[-1]}")
    seen: set[str] = set(CONTROL_PIECES)
    for position, piece in enumerate(entries):
        if piece in seen:
            raise ModelError(f"{path} is damaged: the piece {shorten(piece)} stands in it twice")
        if not (position < len(symbols) or is_piece(piece)) or not is_unicode(piece):
            raise ModelError(f"{path} is damaged: {shorten(piece)} cannot be a piece of a {header['kind']} tokenizer")
        seen.add(piece)
    for piece in always:
        if piece not in seen:
            raise ModelError(f"{path} is damaged: the piece {piece!r} is missing")
    return entries


def _one_a_line(texts: Sequence[str]) -> str:
    return "[\n" + ",\n".join(f"  {json.dumps(text, ensure_ascii=False)}" for text in texts) + "\n]"
