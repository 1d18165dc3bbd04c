"""Tokenizers: text to ids and back, exactly."""

from attendo.text.characters import Characters
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
    "Words",
    "load_tokenizer",
]
