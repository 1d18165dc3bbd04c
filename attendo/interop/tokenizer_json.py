"""Vocabularies in tokenizer.json, which is all that newer folders of transformers keep of many tokenizers."""

import base64
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from attendo.errors import ModelError
from attendo.interop.huggingface import HuggingFaceFolder
from attendo.text.sentencepiece_file import PieceKind

FILE = "tokenizer.json"
_CONTROLS = (
    ("<unk>", 0.0, PieceKind.UNKNOWN),
    ("<s>", 0.0, PieceKind.CONTROL),
    ("</s>", 0.0, PieceKind.CONTROL),
)
_MODEL_KINDS = {"Unigram": 1, "BPE": 2}  # as SentencePiece numbers them


def has_pieces(folder: HuggingFaceFolder) -> bool:
    return isinstance(folder.json(FILE).get("model"), dict)


def byte_pairs_from_json(folder: HuggingFaceFolder) -> tuple[tuple[tuple[str, str], ...], dict[str, int]]:
    """Merges of bytes, best first, and the ids of the vocabulary."""
    content, path = folder.json(FILE), folder.path / FILE
    before = folder.told(FILE, "pre_tokenizer").content()
    plain = (
        before.get("type") == "ByteLevel" and not before.get("add_prefix_space") and content.get("normalizer") is None
    )
    if content["model"].get("type") != "BPE" or not plain:
        raise ModelError("tokenizer_not_byte_level", path=path)
    try:
        return tuple(map(_pair, content["model"]["merges"])), _ids(content["model"])
    except (KeyError, TypeError, ValueError, AttributeError):
        raise _damaged(path) from None


def pieces_from_json(folder: HuggingFaceFolder) -> tuple[bytes, dict[str, int]]:
    """A SentencePiece model that cuts texts as the file says, and the ids of its vocabulary, without what is added."""
    content = folder.json(FILE)
    path, model = folder.path / FILE, content["model"]
    if model.get("type") not in _MODEL_KINDS or model.get("byte_fallback"):
        found = f"{model.get('type')}{' with bytes for what is unknown' if model.get('byte_fallback') else ''}"
        raise ModelError(
            "tokenizer_json_type_unsupported", path=path, found=found, supported=" and ".join(_MODEL_KINDS)
        )
    try:
        scores, ids = _unigram(model) if model["type"] == "Unigram" else _byte_pairs(model)
        charsmap = base64.b64decode(_charsmap(content.get("normalizer")) or "")
        special = {token["content"] for token in content.get("added_tokens") or () if token.get("special")}
    except (KeyError, TypeError, ValueError, AttributeError):
        raise _damaged(path) from None
    normal = {piece: score for piece, score in scores.items() if piece not in special}
    return _written(normal, _MODEL_KINDS[model["type"]], charsmap), ids


def _unigram(model: Mapping[str, Any]) -> tuple[dict[str, float], dict[str, int]]:
    scores = {str(piece): float(score) for piece, score in model["vocab"]}
    return scores, {str(piece): number for number, (piece, _) in enumerate(model["vocab"])}


def _byte_pairs(model: Mapping[str, Any]) -> tuple[dict[str, float], dict[str, int]]:
    """SentencePiece joins what makes the best piece, they the best pair: the earlier a pair, the better its piece."""
    ids, ranks = _ids(model), dict[str, int]()
    for rank, pair in enumerate(model["merges"]):
        ranks.setdefault("".join(_pair(pair)), rank)
    return {piece: float(-ranks.get(piece, len(ranks))) for piece in ids}, ids


def _ids(model: Mapping[str, Any]) -> dict[str, int]:
    return {str(piece): int(number) for piece, number in model["vocab"].items()}


def _pair(written: Any) -> tuple[str, str]:
    """Older files have both halves in one text."""
    first, second = written.split(" ") if isinstance(written, str) else written
    return str(first), str(second)


def _damaged(path: Path) -> ModelError:
    return ModelError("tokenizer_json_damaged", path=path)


def _charsmap(normalizer: Any) -> str | None:
    """How characters are changed before all else, in SentencePiece's own form."""
    if not isinstance(normalizer, dict):
        return None
    inside = (_charsmap(each) for each in normalizer.get("normalizers", ()))
    return normalizer.get("precompiled_charsmap") or next((each for each in inside if each), None)


def _written(scores: Mapping[str, float], kind: int, charsmap: bytes) -> bytes:
    """As a protocol buffer: pieces, the kind of model and the ids of control tokens, normalisation. Pieces begin behind
    three control tokens, as others expect it.
    """
    rows = [*_CONTROLS, *((piece, score, PieceKind.NORMAL) for piece, score in scores.items())]
    pieces = b"".join(
        _message(1, _message(1, piece.encode()) + b"\x15" + struct.pack("<f", score) + _number(3, kind_of_piece))
        for piece, score, kind_of_piece in rows
    )
    none = (1 << 64) - 1  # -1: there is no such token
    tokens = {40: 0, 41: 1, 42: 2, 43: none}  # unk, bos, eos, pad
    trainer = _number(3, kind) + b"".join(_number(*each) for each in tokens.items())
    return pieces + _message(2, trainer) + _message(3, _message(2, charsmap))


def _message(number: int, content: bytes) -> bytes:
    return bytes(_variable(number << 3 | 2)) + bytes(_variable(len(content))) + content


def _number(number: int, value: int) -> bytes:
    return bytes(_variable(number << 3)) + bytes(_variable(value))


def _variable(number: int) -> Iterator[int]:
    """Seven bits a byte, the lowest first."""
    while number > 0x7F:
        yield number & 0x7F | 0x80
        number >>= 7
    yield number
