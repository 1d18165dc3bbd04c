"""Reads tokenizers of Hugging Face folders and compares their ids with attendo's."""

import base64
import json
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from attendo.errors import AttendoError, MessagePart, ModelError, cut_text, list_names, shorten
from attendo.interop.errors import MAX_ERROR_CHARS
from attendo.interop.huggingface.folder import HuggingFaceFolder, JsonField, read_json
from attendo.interop.huggingface.load_pretrained import open_tokenizer
from attendo.interop.huggingface.vocabulary import VocabularyPermutation, number_name
from attendo.model_files import COPY_AGAIN, read_bytes
from attendo.text import CONTROL_PIECES, EOS, UNK, Tokenizer
from attendo.text.imported_sentencepiece import ImportedSentencePiece
from attendo.text.sentencepiece import PieceType, SentencePieceEntry, iter_pieces, open_processor
from attendo.text.tokenizer import MARK, end_source
from attendo.text_model.inputs import ModelSymbols

_MIN_SAME_SHARE = 0.995  # of the texts must be tokenized equally
_MAX_TEXT_CHARS = 40  # of a text in a message
TOKENIZER_JSON = "tokenizer.json"
_CONTROLS = (
    ("<unk>", 0.0, PieceType.UNKNOWN),
    ("<s>", 0.0, PieceType.CONTROL),
    ("</s>", 0.0, PieceType.CONTROL),
)
_REPLACEMENT = "\ufffd"  # in texts of random bytes; transformers splits at it in another way than SentencePiece
BYTE_PIECES = frozenset(f"<0x{byte:02X}>" for byte in range(256))
_SPACE_STEPS = ("normalizer", "pre_tokenizer")  # of tokenizer.json
_MODEL_TYPES = {"Unigram": 1, "BPE": 2}  # ids in SentencePiece's protocol buffer
_MIN_KNOWN_SHARE = 0.9  # of a SentencePiece model's pieces; with fewer it belongs to another vocabulary
_MAX_LISTED_PIECES = 5  # pieces in a message


@dataclass(frozen=True)
class TokenizationComparison:
    """One-line summary of a comparison, and whether it passes."""

    summary: MessagePart
    agrees: bool = True


def compare_tokenizations(
    folder: tuple[Path, str],
    order: VocabularyPermutation,
    tokenizer: Tokenizer,
    added: ModelSymbols | None,
    texts: Sequence[str],
) -> TokenizationComparison:
    """Compare the ids of `texts` by both tokenizers. `folder` is a path and a model_type.

    `added` are the symbols of every source; None: unknown, and special tokens are not compared. Texts with control
    tokens are skipped, because attendo reads control tokens as plain text.
    """
    try:
        theirs = _TransformersTokenizer(folder, order, tokenizer.symbols, added)
        skipped = {*theirs.special, _REPLACEMENT}
        texts = [text for text in map(str.strip, texts) if text and not any(each in text for each in skipped)]
        their_ids = [theirs.encode(text, tokenizer) for text in texts]
    except Exception as error:  # transformers raises errors of many classes; the comparison is optional
        line = (str(error).strip() or type(error).__name__).splitlines()[0]
        reason = error if isinstance(error, AttendoError) else cut_text(line, MAX_ERROR_CHARS)
        return TokenizationComparison(MessagePart("tokenizer_not_compared", reason=reason))
    if not texts:
        return TokenizationComparison(MessagePart("tokenizer_not_compared_without_text"))
    our_ids = [theirs.convert_ids(tokenizer.encode(text)) for text in texts]
    unequal = [n for n, ids in enumerate(our_ids) if ids != their_ids[n]]
    counts = {"same": len(texts) - len(unequal), "count": len(texts), "name": theirs.name}
    if not unequal:
        return TokenizationComparison(MessagePart("texts_have_same_ids", **counts))
    known = _KnownDifferences(order, tokenizer, theirs.unk_id)
    other = [texts[n] for n in unequal if known.remove(our_ids[n]) != known.remove(their_ids[n])]
    counts["text"] = texts[unequal[0]][:_MAX_TEXT_CHARS]
    if not other:
        return TokenizationComparison(MessagePart("texts_differ_by_sentencepiece", **counts))
    summary = MessagePart("texts_have_other_ids", **{**counts, "text": other[0][:_MAX_TEXT_CHARS]})
    return TokenizationComparison(summary, len(other) <= (1 - _MIN_SAME_SHARE) * len(texts))


class _KnownDifferences:
    """Differences of transformers from SentencePiece, of which attendo follows SentencePiece.

    transformers drops byte fallback, so it returns unk for characters that SentencePiece writes in bytes. It also drops
    the space before a piece of its own, such as MADLAD's `<2de>`. `their_unk` is the id that it returns for unk:
    transformers 5 returns 2, as of T5, for MADLAD too, where 2 is eos.
    """

    def __init__(self, order: VocabularyPermutation, tokenizer: Tokenizer, their_unk: int | None) -> None:
        pieces = iter_pieces(tokenizer.model) if isinstance(tokenizer, ImportedSentencePiece) else ()
        types = {piece.text: piece.type for piece in pieces}
        entries = tokenizer.entries if isinstance(tokenizer, ImportedSentencePiece) else ()
        names = {order.rows[number]: name for number, name in enumerate(entries, start=len(CONTROL_PIECES))}
        self._types = {row: types.get(name) for row, name in names.items()}
        self._spaces = {row for row, name in names.items() if name == MARK}
        self._unk, self._their_unk = order.rows[UNK], their_unk

    def remove(self, ids: Sequence[int]) -> list[int]:
        """Return ids with unk for each run of bytes, and without a space before a piece that is never split."""
        found: list[int] = []
        for position, each in enumerate(ids):
            is_byte = self._types.get(each) == PieceType.BYTE
            if each == self._their_unk and position < len(ids) - 1:
                is_byte = True
            if is_byte and found and found[-1] == self._unk:
                continue
            if self._types.get(each) == PieceType.USER_DEFINED and found and found[-1] in self._spaces:
                found.pop()
            found.append(self._unk if is_byte else each)
        return found


class _TransformersTokenizer:
    """Source tokenizer of transformers, set to the language of attendo's prefix or suffix."""

    def __init__(
        self,
        folder: tuple[Path, str],
        order: VocabularyPermutation,
        symbols: Sequence[str],
        added: ModelSymbols | None,
    ) -> None:
        path, model_type = folder
        has_prefix = model_type == "mbart" and added is not None and bool(added.before)
        self._tokenizer = open_tokenizer(path, model_type, "MBart50Tokenizer" if has_prefix else None)
        self.name = type(self._tokenizer).__name__
        if model_type == "blenderbot" and not appends_eos(self._tokenizer):
            added = None
        if hasattr(self._tokenizer, "punc_normalizer"):
            self._tokenizer.punc_normalizer = str  # disables sacremoses, which attendo does not use
        self.special = {str(each) for each in self._tokenizer.all_special_tokens}
        self._order, self._added = order, added
        if added is not None and added.source_tokens and hasattr(self._tokenizer, "src_lang"):
            language = (*added.before, *added.after)[0]
            self._tokenizer.src_lang = language_code(symbols[language - EOS - 1])

    def encode(self, text: str, tokenizer: Tokenizer) -> list[int]:
        """Return the ids. transformers 5 leaves out the normalisation of `MBartTokenizer`, so attendo's is applied."""
        if self.name == "MBartTokenizer" and isinstance(tokenizer, ImportedSentencePiece):
            text = tokenizer.normalize(text)
        return list(self._tokenizer(text, add_special_tokens=self._added is not None)["input_ids"])

    @property
    def unk_id(self) -> int | None:
        """The id of unknown characters, which is not the unk token in transformers 5 for MADLAD."""
        backend = getattr(self._tokenizer, "backend_tokenizer", None)
        return None if backend is None else json.loads(backend.to_str())["model"].get("unk_id")

    def convert_ids(self, ids: Sequence[int]) -> list[int]:
        """Convert attendo's ids to theirs, with the symbols of the model and eos."""
        return self._order.to_theirs(ids if self._added is None else end_source(self._added.wrap_source(ids)))


def appends_eos(tokenizer: Any) -> bool:
    """Return False for a tokenizer that leaves out EOS, as transformers 5 builds it from Blenderbot's vocab.json."""
    return list(tokenizer("a")["input_ids"])[-1:] == [tokenizer.eos_token_id]


def language_code(symbol: str) -> str:
    """Return the language code of a symbol, without the underscores of M2M100."""
    return symbol.strip("_") if symbol.startswith("__") else symbol


def has_tokenizer_model(folder: HuggingFaceFolder) -> bool:
    return isinstance(folder.read_json(TOKENIZER_JSON).get("model"), dict)


def read_bpe_json(folder: HuggingFaceFolder) -> tuple[tuple[tuple[str, str], ...], dict[str, int]]:
    """Return byte-level merges, best first, and the vocabulary ids."""
    content, path = folder.read_json(TOKENIZER_JSON), folder.path / TOKENIZER_JSON
    before = folder.json_field(TOKENIZER_JSON, "pre_tokenizer").content()
    plain = before.get("type") == "ByteLevel" and content.get("normalizer") is None
    if content["model"].get("type") != "BPE" or not plain:
        raise ModelError("tokenizer_not_byte_level", path=path)
    try:
        return tuple(map(_parse_merge, content["model"]["merges"])), _vocabulary_ids(content["model"])
    except (KeyError, TypeError, ValueError, AttributeError):
        raise _make_damaged_error(path) from None


def read_sentencepiece_json(folder: HuggingFaceFolder) -> tuple[bytes, dict[str, int]]:
    """Return an equivalent SentencePiece model, without special tokens, and the vocabulary ids.

    Byte fallback is on if all 256 byte pieces are there: transformers 5 writes `byte_fallback: false` for every T5.
    """
    content = folder.read_json(TOKENIZER_JSON)
    path, model = folder.path / TOKENIZER_JSON, content["model"]
    try:
        kind = model.get("type")
        if kind not in _MODEL_TYPES:
            raise _make_type_error(path, str(kind))
        scores, ids = _unigram_scores(model) if kind == "Unigram" else _bpe_scores(model)
        if model.get("byte_fallback") and not scores.keys() >= BYTE_PIECES:
            raise _make_type_error(path, f"{kind} + byte_fallback")
        charsmap = base64.b64decode(_find_charsmap(content.get("normalizer")) or "")
        added = {token["content"]: bool(token.get("special")) for token in content.get("added_tokens") or ()}
    except (KeyError, TypeError, ValueError, AttributeError):
        raise _make_damaged_error(path) from None
    special = {*(name for name, is_special in added.items() if is_special), *(name for name, _, _ in _CONTROLS)}
    types = dict.fromkeys(added, PieceType.USER_DEFINED)
    if scores.keys() >= BYTE_PIECES:
        types |= dict.fromkeys(BYTE_PIECES, PieceType.BYTE)
    rows = [
        (piece, score, types.get(piece, PieceType.NORMAL)) for piece, score in scores.items() if piece not in special
    ]
    # Llama's normalizer only replaces spaces. Those of T5 and fairseq, which have a table, also drop repeated ones.
    keeps_spaces = kind == "BPE" and not charsmap and content.get("normalizer") is not None
    # Llama's adds a space before the text, Gemma's does not.
    adds_space = not (kind == "BPE" and _only_replaces_spaces(content))
    return _serialize_sentencepiece(rows, _MODEL_TYPES[kind], charsmap, (adds_space, keeps_spaces)), ids


def _only_replaces_spaces(content: Mapping[str, Any]) -> bool:
    """Return True if a tokenizer.json writes spaces as `▁`, and adds none before a text."""
    kinds = [part.get("type") if isinstance(part := content.get(name), dict) else None for name in _SPACE_STEPS]
    return kinds in (["Replace", "Split"], ["Replace", None])


def _make_type_error(path: Path, found: str) -> ModelError:
    return ModelError("tokenizer_json_type_unsupported", path=path, found=found, supported=" and ".join(_MODEL_TYPES))


def add_user_pieces(model: bytes, pieces: Sequence[str]) -> bytes:
    """Return a SentencePiece model with more pieces, which are never split."""
    return model + _encode_pieces((piece, 0.0, PieceType.USER_DEFINED) for piece in pieces)


def _unigram_scores(model: Mapping[str, Any]) -> tuple[dict[str, float], dict[str, int]]:
    scores = {str(piece): float(score) for piece, score in model["vocab"]}
    return scores, {str(piece): number for number, (piece, _) in enumerate(model["vocab"])}


def _bpe_scores(model: Mapping[str, Any]) -> tuple[dict[str, float], dict[str, int]]:
    """Return scores and ids. SentencePiece merges by piece score, so earlier merges give higher scores."""
    ids, ranks = _vocabulary_ids(model), dict[str, int]()
    for rank, pair in enumerate(model["merges"]):
        ranks.setdefault("".join(_parse_merge(pair)), rank)
    return {piece: float(-ranks.get(piece, len(ranks))) for piece in ids}, ids


def _vocabulary_ids(model: Mapping[str, Any]) -> dict[str, int]:
    return {str(piece): int(number) for piece, number in model["vocab"].items()}


def _parse_merge(merge: Any) -> tuple[str, str]:
    """Return both halves of a merge. Older files store them in one string."""
    first, second = merge.split(" ") if isinstance(merge, str) else merge
    return str(first), str(second)


def _make_damaged_error(path: Path) -> ModelError:
    return ModelError("tokenizer_json_damaged", path=path)


def _find_charsmap(normalizer: Any) -> str | None:
    """Return the normalisation table in SentencePiece's format."""
    if not isinstance(normalizer, dict):
        return None
    charsmaps = (_find_charsmap(each) for each in normalizer.get("normalizers", ()))
    return normalizer.get("precompiled_charsmap") or next((each for each in charsmaps if each), None)


def _serialize_sentencepiece(
    rows: Sequence[tuple[str, float, PieceType]], model_type: int, charsmap: bytes, spaces: tuple[bool, bool]
) -> bytes:
    """Return a protocol buffer with pieces, model type, ids of control tokens and normalisation.

    Three control tokens precede the pieces, as other readers expect. `spaces` are whether one is added before a text,
    and whether repeated ones are kept.
    """
    pieces = _encode_pieces((*_CONTROLS, *rows))
    none = (1 << 64) - 1  # -1: token missing
    tokens = {40: 0, 41: 1, 42: 2, 43: none}  # unk, bos, eos, pad
    has_bytes = any(kind_of_piece == PieceType.BYTE for _, _, kind_of_piece in rows)
    settings = {3: model_type, 35: int(has_bytes), **tokens}
    trainer = b"".join(_encode_varint_field(*each) for each in settings.items())
    adds_space, keeps_spaces = spaces
    normalizer = _encode_message(2, charsmap) + (b"" if adds_space else _encode_varint_field(3, 0))
    normalizer += _encode_varint_field(4, 0) if keeps_spaces else b""
    return pieces + _encode_message(2, trainer) + _encode_message(3, normalizer)


def _encode_pieces(rows: Iterable[tuple[str, float, PieceType]]) -> bytes:
    return b"".join(
        _encode_message(
            1,
            _encode_message(1, piece.encode())
            + b"\x15"
            + struct.pack("<f", score)
            + _encode_varint_field(3, kind_of_piece),
        )
        for piece, score, kind_of_piece in rows
    )


def _encode_message(number: int, content: bytes) -> bytes:
    return bytes(_encode_varint(number << 3 | 2)) + bytes(_encode_varint(len(content))) + content


def _encode_varint_field(number: int, value: int) -> bytes:
    return bytes(_encode_varint(number << 3)) + bytes(_encode_varint(value))


def _encode_varint(number: int) -> Iterator[int]:
    """Yield seven bits per byte, lowest first."""
    while number > 0x7F:
        yield number & 0x7F | 0x80
        number >>= 7
    yield number


def read_vocabulary(path: Path) -> dict[str, int]:
    """Read a vocabulary from pieces to ids. Ids must be unique."""
    vocabulary = read_json(path)
    ids = list(vocabulary.values())
    if not ids or not all(type(each) is int and each >= 0 for each in ids) or len(set(ids)) < len(ids):
        raise ModelError("vocabulary_ids_invalid", path=path)
    return vocabulary


def require_fit(path: Path, vocabulary: Mapping[str, int], size: int) -> None:
    """Raise a `ModelError` if an id has no row in the network's tables. Rows without a piece are allowed."""
    piece, last = max(vocabulary.items(), key=lambda each: each[1])
    if last >= size:
        raise ModelError(
            "vocabulary_exceeds_network", path=path, piece=shorten(piece), token_id=shorten(last), size=size
        )


def read_sentencepiece_model(path: Path, vocabulary: Mapping[str, int]) -> bytes:
    """Read a SentencePiece model. At least 90% of its pieces must be in the vocabulary."""
    model = read_bytes(path, COPY_AGAIN)
    check_sentencepiece_model(path, model, vocabulary)
    return model


def check_sentencepiece_model(
    path: Path, model: bytes, vocabulary: Mapping[str, int], min_share: float = _MIN_KNOWN_SHARE
) -> None:
    """Raise a `ModelError` unless at least this share of the pieces is in the vocabulary."""
    normal = [piece.text for piece in read_pieces(path, model) if piece.type == PieceType.NORMAL]
    known = len(normal) - len(_missing_pieces(model, vocabulary))
    if not normal or known < min_share * len(normal):
        raise ModelError("sentencepiece_vocabulary_mismatch", path=path, known=known, count=len(normal))


def read_pieces(path: Path, model: bytes) -> list[SentencePieceEntry]:
    """Return all pieces of a SentencePiece model; `path` is for the error message."""
    try:
        open_processor(model)
        pieces = list(iter_pieces(model))
    except ModelError:
        raise ModelError("sentencepiece_model_invalid", path=path) from None
    if not pieces:
        raise ModelError("sentencepiece_model_invalid", path=path)
    return pieces


def missing_piece_notes(path: Path, model: bytes, vocabulary: Mapping[str, int]) -> Iterator[MessagePart]:
    """Yield a note with the number of SentencePiece pieces that are missing in the vocabulary."""
    if missing := _missing_pieces(model, vocabulary):
        listing = list_names(map(shorten, missing), _MAX_LISTED_PIECES)
        yield MessagePart("sentencepiece_pieces_unknown", file=path.name, count=len(missing), pieces=listing)


def _missing_pieces(model: bytes, vocabulary: Mapping[str, int]) -> list[str]:
    normal = (piece.text for piece in iter_pieces(model) if piece.type == PieceType.NORMAL)
    return [piece for piece in normal if piece not in vocabulary]


def build_names_and_symbols(
    vocabulary: Mapping[str, int], order: VocabularyPermutation, first: Sequence[int]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names of attendo's ids after the control tokens, and the symbols among them: those in `first`.

    A piece with the name of one of attendo's control tokens gets angle brackets around it. Ids without a piece are
    named by their number.
    """
    pieces_by_id = {each: piece for piece, each in vocabulary.items()}
    names: list[str] = []
    used_names = {*vocabulary, *CONTROL_PIECES}
    for row in order.rows[len(CONTROL_PIECES) :]:
        name = pieces_by_id[row] if row in pieces_by_id else number_name(row, used_names)
        while name in CONTROL_PIECES:
            name = f"<{name}>"
        names.append(name)
        used_names.add(name)
    # A special token that is one of attendo's control tokens needs no symbol.
    behind_controls = order.rows[len(CONTROL_PIECES) : len(CONTROL_PIECES) + len(first)]
    return tuple(names), tuple(names[: len(set(first) & set(behind_controls))])


def non_text_ids(vocabulary: Mapping[str, int]) -> list[int]:
    """Return the ids of `<s>` and `<mask>`, if present."""
    return [vocabulary[piece] for piece in ("<s>", "<mask>") if piece in vocabulary]


def read_added_tokens(folder: HuggingFaceFolder) -> dict[str, int]:
    """Return tokens that the tokenizer files add to the vocabulary, such as languages, with their ids."""
    found = {name: _token_id(field) for name, field in folder.json_fields("added_tokens.json").items()}
    for number, token in folder.json_field("tokenizer_config.json", "added_tokens_decoder").fields().items():
        if not number.isdecimal():
            raise JsonField(token.path, "a key of added_tokens_decoder", number).make_error("needs_token_id")
        found[_token_text(token)] = int(number)
    added_tokens = folder.json_field("tokenizer.json", "added_tokens")
    for token in (JsonField(added_tokens.path, added_tokens.name, each) for each in added_tokens.items()):
        found[_token_text(token)] = _token_id(token.fields().get("id", JsonField(token.path, "added_tokens.id", None)))
    return found


def read_special_flags(folder: HuggingFaceFolder) -> dict[str, bool]:
    """Return whether each added token is special, for the tokens of files that say so."""
    listed = folder.json_field(TOKENIZER_JSON, "added_tokens")
    tokens = [JsonField(listed.path, listed.name, each) for each in listed.items()]
    tokens += folder.json_field("tokenizer_config.json", "added_tokens_decoder").fields().values()
    return {
        _token_text(token): bool(token.fields()["special"].flag()) for token in tokens if "special" in token.fields()
    }


def read_additional_special_tokens(folder: HuggingFaceFolder) -> list[str]:
    """Return the special tokens that follow the vocabulary, in order. Each is a string or an object with `content`."""
    listed = folder.json_field("special_tokens_map.json", "additional_special_tokens")
    each_field = [JsonField(listed.path, listed.name, each) for each in listed.items()]
    return [str(each.value) if isinstance(each.value, str) else _token_text(each) for each in each_field]


def _token_text(token: JsonField) -> str:
    """Return the text of a token."""
    found = token.fields().get("content", JsonField(token.path, f"{token.name}.content", None))
    if (text := found.text()) is None:
        raise found.make_error("needs_text")
    return text


def _token_id(field: JsonField) -> int:
    if (token := field.token()) is None:
        raise field.make_error("needs_token")
    return token
