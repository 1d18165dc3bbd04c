"""Symbols: texts a user wants as one id each, such as the language tag <2de>. In every tokenizer the ids from 4 on."""

import re
from collections.abc import Sequence
from functools import lru_cache

from attendo.errors import UsageError, shorten
from attendo.text.tokenizer import CONTROL_PIECES, MARK, is_unicode


def checked_symbols(symbols: Sequence[str]) -> tuple[str, ...]:
    """The symbols as they are; one that could not be told from other text is a `UsageError`."""
    if isinstance(symbols, str):
        raise UsageError("symbols_not_a_list", value=shorten(symbols))
    for symbol in symbols:
        if fault := _fault(symbol):
            raise UsageError("symbol_invalid", symbol=shorten(symbol), fault=fault)
    if twice := sorted({symbol for symbol in symbols if list(symbols).count(symbol) > 1}):
        raise UsageError("symbol_duplicate", symbol=shorten(twice[0]))
    return tuple(symbols)


def split_at(text: str, symbols: tuple[str, ...]) -> list[str]:
    """By turns the text between symbols, which may be empty, and a symbol; the longest symbol that fits."""
    return _pattern(symbols).split(text) if symbols else [text]


def _fault(symbol: str) -> str:
    if not symbol or any(character.isspace() for character in symbol):
        return "must be text without white space"
    if symbol in CONTROL_PIECES:
        return "is a control piece, which no text can name"
    if re.fullmatch("<0x[0-9A-F]{2}>", symbol):
        return "is the name of a byte: choose another text"
    if MARK in symbol or "\0" in symbol or not is_unicode(symbol):
        return f"must have no {MARK}, no NUL and no half of a surrogate pair"
    return ""


@lru_cache(maxsize=64)
def _pattern(symbols: tuple[str, ...]) -> re.Pattern[str]:
    longest_first = sorted(symbols, key=len, reverse=True)
    return re.compile(f"({'|'.join(map(re.escape, longest_first))})")
