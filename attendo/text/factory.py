"""Building tokenizers from text and settings, and loading them from a model folder."""

from collections.abc import Iterable
from itertools import chain
from pathlib import Path

from attendo.errors import DataError, ModelError, shorten
from attendo.text.byte_level_bpe import BytePairs
from attendo.text.bytes import Bytes
from attendo.text.characters import Characters, Decomposed, Spaced
from attendo.text.config import Kind, TokenizerConfig
from attendo.text.imported_sentencepiece import ForeignPieces
from attendo.text.sentencepiece import SentencePiece
from attendo.text.tokenizer import Tokenizer
from attendo.text.tokenizer_files import header_path, read_header
from attendo.text.words import Words


def load_tokenizer(folder: Path, name: str) -> Tokenizer:
    """The tokenizer saved in `folder` as `name`; files that are missing or damaged are a `ModelError`."""
    path = header_path(folder, name)
    header = read_header(folder, name)
    match header.get("kind"):
        case Words.kind:
            return Words.read(path, header)
        case Characters.kind:
            return Characters.read(path, header)
        case Decomposed.kind:
            return Decomposed.read(path, header)
        case Spaced.kind:
            return Spaced.read(path, header)
        case Bytes.kind:
            return Bytes.read(path, header)
        case SentencePiece.kind:
            return SentencePiece.read(folder, name, header)
        case ForeignPieces.kind:
            return ForeignPieces.read(folder, name, header)
        case BytePairs.kind:
            return BytePairs.read(folder, name, header)
        case kind:
            kinds = (Words, Characters, Decomposed, Spaced, Bytes, SentencePiece, ForeignPieces, BytePairs)
            known = ", ".join(each.kind for each in kinds)
            raise ModelError("tokenizer_kind_unknown", path=path, kind=shorten(kind), known=known)


def build_tokenizers(
    sources: Iterable[str], targets: Iterable[str], config: TokenizerConfig
) -> tuple[Tokenizer, Tokenizer]:
    """Source and target tokenizer, one and the same where joint; each text is read once and not kept.

    The same texts and settings give the same tokenizers, byte for byte, on every machine.
    """
    if config.file is not None:
        source = _read(config.file, config)
        if config.joint:
            return source, source
        return source, _read(config.target_file or config.file, config)
    if config.joint:
        joint = _build(chain(sources, targets), config.kind, config)
        return joint, joint
    return _build(sources, config.kind, config), _build(targets, config.target_kind or config.kind, config)


def _read(path: Path, config: TokenizerConfig) -> Tokenizer:
    try:
        return ForeignPieces.adopt(path.read_bytes(), config.symbols)
    except OSError as error:
        raise DataError("tokenizer_file_unreadable", path=path, reason=error.strerror) from None
    except ModelError as error:
        raise DataError("tokenizer_file_invalid", path=path, error=error) from None


def _build(texts: Iterable[str], kind: Kind, config: TokenizerConfig) -> Tokenizer:
    match kind:
        case "spaced":
            return Spaced.build(texts, config.size, config.symbols)
        case "words":
            return Words.build(texts, config.size, config.symbols)
        case "characters":
            return Characters.build(texts, config.size, config.symbols)
        case "decomposed":
            return Decomposed.build(texts, config.size, config.symbols)
        case "bytes":
            return Bytes(config.symbols)
        case "bpe" | "unigram":
            return SentencePiece.train(texts, config.size, kind, config.symbols)
