"""Tokenizers: text to ids and back, exactly."""

from attendo.text.build import build_tokenizers
from attendo.text.characters import Characters
from attendo.text.config import TokenizerConfig
from attendo.text.load import load_tokenizer
from attendo.text.raw_bytes import Bytes
from attendo.text.subwords import SentencePiece
from attendo.text.tokenizer import BOS, CONTROL_PIECES, EOS, PAD, UNK, Tokenizer
from attendo.text.words import Words

__all__ = [
    "BOS",
    "CONTROL_PIECES",
    "EOS",
    "PAD",
    "UNK",
    "Bytes",
    "Characters",
    "SentencePiece",
    "Tokenizer",
    "TokenizerConfig",
    "Words",
    "build_tokenizers",
    "load_tokenizer",
]
