"""From text and settings to the two tokenizers of a model."""

from collections.abc import Iterable
from itertools import chain
from pathlib import Path

from attendo.errors import DataError, ModelError
from attendo.text.characters import Characters
from attendo.text.config import Kind, TokenizerConfig
from attendo.text.decomposed import Decomposed
from attendo.text.foreign_pieces import ForeignPieces
from attendo.text.raw_bytes import Bytes
from attendo.text.spaced import Spaced
from attendo.text.subwords import SentencePiece
from attendo.text.tokenizer import Tokenizer
from attendo.text.words import Words


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
