"""Builds tokenizers from text and settings, and saves and loads them in a model folder."""

from collections.abc import Iterable
from itertools import chain
from pathlib import Path

from attendo.errors import DataError, ModelError, shorten
from attendo.text.byte_level_bpe import ByteLevelBPE
from attendo.text.bytes import Bytes
from attendo.text.characters import Characters, NFDCharacters, WhitespaceTokenizer
from attendo.text.config import TokenizerConfig, TokenizerKind
from attendo.text.imported_sentencepiece import ImportedSentencePiece
from attendo.text.sentencepiece import SentencePiece
from attendo.text.tokenizer import Tokenizer, header_path, read_header
from attendo.text.words import Words


def save_tokenizers(folder: Path, source: Tokenizer, target: Tokenizer) -> None:
    """Save both tokenizers in a folder. A joint vocabulary is saved once."""
    sides = {"joint": source} if source is target else {"source": source, "target": target}
    for name, tokenizer in sides.items():
        tokenizer.save(folder, name)


def load_tokenizer(folder: Path, name: str) -> Tokenizer:
    """Load the tokenizer `name` of a folder. Raise a `ModelError` if files are missing or damaged."""
    path = header_path(folder, name)
    header = read_header(folder, name)
    match header.get("kind"):
        case Words.kind:
            return Words.read(path, header)
        case Characters.kind:
            return Characters.read(path, header)
        case NFDCharacters.kind:
            return NFDCharacters.read(path, header)
        case WhitespaceTokenizer.kind:
            return WhitespaceTokenizer.read(path, header)
        case Bytes.kind:
            return Bytes.read(path, header)
        case SentencePiece.kind:
            return SentencePiece.read(folder, name, header)
        case ImportedSentencePiece.kind:
            return ImportedSentencePiece.read(folder, name, header)
        case ByteLevelBPE.kind:
            return ByteLevelBPE.read(folder, name, header)
        case kind:
            kinds = (
                Words,
                Characters,
                NFDCharacters,
                WhitespaceTokenizer,
                Bytes,
                SentencePiece,
                ImportedSentencePiece,
                ByteLevelBPE,
            )
            known = ", ".join(each.kind for each in kinds)
            raise ModelError("tokenizer_kind_unknown", path=path, kind=shorten(kind), known=known)


def build_tokenizers(
    sources: Iterable[str], targets: Iterable[str], config: TokenizerConfig
) -> tuple[Tokenizer, Tokenizer]:
    """Build the source and target tokenizers, the same object if joint. Texts are read once and not kept.

    The same texts and settings give byte-identical tokenizers on every machine.
    """
    if config.file is not None:
        source = _read_sentencepiece(config.file, config)
        if config.joint:
            return source, source
        return source, _read_sentencepiece(config.target_file or config.file, config)
    if config.joint:
        joint = _build_tokenizer(chain(sources, targets), config.kind, config)
        return joint, joint
    return _build_tokenizer(sources, config.kind, config), _build_tokenizer(
        targets, config.target_kind or config.kind, config
    )


def _read_sentencepiece(path: Path, config: TokenizerConfig) -> Tokenizer:
    try:
        return ImportedSentencePiece.from_model(path.read_bytes(), config.symbols)
    except OSError as error:
        raise DataError("tokenizer_file_unreadable", path=path, reason=error.strerror) from None
    except ModelError as error:
        raise DataError("tokenizer_file_invalid", path=path, error=error) from None


def _build_tokenizer(texts: Iterable[str], kind: TokenizerKind, config: TokenizerConfig) -> Tokenizer:
    match kind:
        case "spaced":
            return WhitespaceTokenizer.build(texts, config.size, config.symbols)
        case "words":
            return Words.build(texts, config.size, config.symbols)
        case "characters":
            return Characters.build(texts, config.size, config.symbols)
        case "decomposed":
            return NFDCharacters.build(texts, config.size, config.symbols)
        case "bytes":
            return Bytes(config.symbols)
        case "bpe" | "unigram":
            return SentencePiece.train(texts, config.size, kind, config.symbols)
