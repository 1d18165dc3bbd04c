"""Tokenizers: lossless conversion between text and ids."""

from attendo.text.bytes import Bytes
from attendo.text.characters import Characters
from attendo.text.config import TokenizerConfig
from attendo.text.factory import build_tokenizers, load_tokenizer, save_tokenizers
from attendo.text.sentencepiece import SentencePiece
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
    "save_tokenizers",
]
