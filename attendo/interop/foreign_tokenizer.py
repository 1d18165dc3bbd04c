"""Texts as the tokenizer of transformers cuts them, beside ours: a network is worth nothing with other ids."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from attendo.errors import cut_text
from attendo.interop.rearranged import Rearranged
from attendo.interop.transformers_loading import open_tokenizer
from attendo.text import EOS, Tokenizer

_LEAST = 0.995  # of the texts must be cut alike
_SHOWN = 40  # characters of a text
_REASON = 200  # characters of their error


@dataclass(frozen=True)
class ComparedCuts:
    """What was found, in a line; and whether it is a reason to refuse."""

    told: str
    same: bool = True


def compare_cuts(
    folder: tuple[Path, str], order: Rearranged, ours: Tokenizer, before: Sequence[int] | None, texts: Sequence[str]
) -> ComparedCuts:
    """`folder` is its path and its model_type. `before` stands before every source; None: it is not told.

    Texts that hold control tokens are left out: with us they are text.
    """
    try:
        theirs = _Theirs(folder, order, ours.symbols, before)
        texts = [text for text in map(str.strip, texts) if text and not any(each in text for each in theirs.special)]
        cut = [theirs.cut(text) for text in texts]
    except Exception as error:  # anything may go wrong there, and it is only asked for its opinion
        reason = cut_text((str(error).strip() or type(error).__name__).splitlines()[0], _REASON)
        return ComparedCuts(f"the tokenizer was not compared: that of transformers cannot be had ({reason})")
    if not texts:
        return ComparedCuts("the tokenizer was not compared: there is no text")
    other = [text for text, ids in zip(texts, cut, strict=True) if theirs.framed(ours.encode(text)) != ids]
    told = f"{len(texts) - len(other)} of {len(texts)} texts have the same ids as by {theirs.name}"
    if other:
        told += f"; not so {other[0][:_SHOWN]!r}"
    return ComparedCuts(told, len(other) <= (1 - _LEAST) * len(texts))


class _Theirs:
    """The tokenizer of transformers for the sources, with the language that ours has."""

    def __init__(
        self, folder: tuple[Path, str], order: Rearranged, symbols: Sequence[str], before: Sequence[int] | None
    ) -> None:
        self._tokenizer = open_tokenizer(*folder)
        self.name = type(self._tokenizer).__name__
        if self.name.startswith("MBart") and not self.name.startswith("MBart50"):
            raise ValueError(f"no file says which of mBART's it is, and {self.name} is another")
        if hasattr(self._tokenizer, "punc_normalizer"):
            self._tokenizer.punc_normalizer = str  # of sacremoses, which attendo does not run
        self.special = {str(each) for each in self._tokenizer.all_special_tokens}
        self._order, self._before = order, before
        if before and hasattr(self._tokenizer, "src_lang"):
            self._tokenizer.src_lang = language_code(symbols[before[0] - EOS - 1])

    def cut(self, text: str) -> list[int]:
        return list(self._tokenizer(text, add_special_tokens=self._before is not None)["input_ids"])

    def framed(self, ids: Sequence[int]) -> list[int]:
        """Ours in their numbers, with what stands before and behind them."""
        return self._order.theirs(ids if self._before is None else [*self._before, *ids, EOS])


def language_code(symbol: str) -> str:
    """As its tokenizer calls a language: without what M2M100 puts around it."""
    return symbol.strip("_") if symbol.startswith("__") else symbol
