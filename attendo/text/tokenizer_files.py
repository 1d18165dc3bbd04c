"""The JSON file of a tokenizer: its class, and its pieces if it has a list of them."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path

from attendo import model_files
from attendo.errors import ModelError, UsageError, shorten
from attendo.text.tokenizer import CONTROL_PIECES, is_unicode, validate_special_tokens

FORMAT = "attendo.tokenizer"
VERSION = 1


def header_path(folder: Path, name: str) -> Path:
    """Return the path of the JSON file of the tokenizer `name`."""
    return folder / f"{name}.tokenizer.json"


def write_header(
    folder: Path, name: str, kind: str, entries: Sequence[str] | None = None, symbols: Sequence[str] = ()
) -> Path:
    """Write the JSON file with one piece per line, so that it is easy to read and to diff."""
    lines = [f'"format": {json.dumps(FORMAT)}', f'"version": {VERSION}', f'"kind": {json.dumps(kind)}']
    if symbols:
        lines.append(f'"symbols": {_format_list(symbols)}')
    if entries is not None:
        lines.append(f'"pieces": {_format_list((*CONTROL_PIECES, *entries))}')
    path = header_path(folder, name)
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8", newline="\n")
    return path


def read_header(folder: Path, name: str) -> dict[str, object]:
    """Return the validated content of the JSON file. Raise a `ModelError` for another format or version."""
    path = header_path(folder, name)
    try:
        header = model_files.parse_json(read_bytes(path))
    except ValueError as error:
        raise ModelError("tokenizer_json_invalid", path=path, reason=error) from None
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise ModelError("tokenizer_format_unknown", path=path, expected=FORMAT)
    if type(header.get("version")) is not int or header["version"] != VERSION:
        raise ModelError(
            "tokenizer_version_unsupported", path=path, found=shorten(header.get("version")), expected=VERSION
        )
    unknown = sorted(header.keys() - {"format", "version", "kind", "symbols", "pieces"})
    if unknown:
        raise ModelError("tokenizer_key_unknown", path=path, key=shorten(unknown[0]))
    return header


def read_bytes(path: Path) -> bytes:
    """Return the content of a file. Raise a `ModelError` if it cannot be read."""
    return model_files.read_bytes(path, "a model folder needs its tokenizer files")


def parse_symbols(path: Path, header: dict[str, object]) -> tuple[str, ...]:
    """Return the symbols of a tokenizer. Raise a `ModelError` that names a fault."""
    symbols = header.get("symbols", [])
    if not isinstance(symbols, list) or not all(isinstance(symbol, str) for symbol in symbols):
        raise ModelError("tokenizer_symbols_not_strings", path=path)
    try:
        return validate_special_tokens(symbols)
    except UsageError as error:
        raise ModelError("tokenizer_symbols_damaged", path=path, error=error) from None


def parse_pieces(
    path: Path,
    header: dict[str, object],
    from_disk: Callable[[str], str],
    is_piece: Callable[[str], bool],
    required: tuple[str, ...] = (),
) -> tuple[str, ...]:
    """Return the pieces after the control pieces, as in memory. Raise a `ModelError` that names a fault."""
    pieces = header.get("pieces")
    if not isinstance(pieces, list) or not all(isinstance(piece, str) for piece in pieces):
        raise ModelError("tokenizer_pieces_not_strings", path=path)
    if tuple(pieces[: len(CONTROL_PIECES)]) != CONTROL_PIECES:
        raise ModelError("tokenizer_control_pieces_missing", path=path, pieces=" ".join(CONTROL_PIECES))
    entries = tuple(from_disk(piece) for piece in pieces[len(CONTROL_PIECES) :])
    symbols = parse_symbols(path, header)
    if entries[: len(symbols)] != symbols:
        raise ModelError("tokenizer_symbols_misplaced", path=path, piece=CONTROL_PIECES[-1])
    seen: set[str] = set(CONTROL_PIECES)
    for position, piece in enumerate(entries):
        if piece in seen:
            raise ModelError("tokenizer_piece_duplicate", path=path, piece=shorten(piece))
        if not (position < len(symbols) or is_piece(piece)) or not is_unicode(piece):
            raise ModelError("tokenizer_piece_invalid", path=path, piece=shorten(piece), kind=header["kind"])
        seen.add(piece)
    for piece in required:
        if piece not in seen:
            raise ModelError("tokenizer_piece_missing", path=path, piece=piece)
    return entries


def _format_list(texts: Sequence[str]) -> str:
    return "[\n" + ",\n".join(f"  {json.dumps(text, ensure_ascii=False)}" for text in texts) + "\n]"
