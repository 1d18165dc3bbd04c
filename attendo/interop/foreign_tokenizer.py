"""Texts as the tokenizer of transformers cuts them, beside ours: a network is worth nothing with other ids."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from attendo.interop.imported import Imported
from attendo.text import EOS
from attendo.text_model import TextModel

_LEAST = 0.995  # of the texts must be cut alike
_SHOWN = 40  # characters of a text


@dataclass(frozen=True)
class ComparedCuts:
    """What was found, in a line; and whether it is a reason to refuse."""

    told: str
    same: bool = True


def compare_cuts(imported: Imported, model: TextModel, before: Sequence[int], texts: Sequence[str]) -> ComparedCuts:
    """`before` stands before every source. Texts that hold control tokens are left out: with us they are text."""
    try:
        theirs = _Theirs(imported, model.source_tokenizer.symbols, before)
        texts = [text for text in map(str.strip, texts) if text and not any(each in text for each in theirs.special)]
        cut = [theirs.cut(text) for text in texts]
    except Exception as error:  # anything may go wrong there, and it is only asked for its opinion
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        return ComparedCuts(f"the tokenizer was not compared: that of transformers cannot be had ({reason})")
    if not texts:
        return ComparedCuts("the tokenizer was not compared: there is no text")
    ours = [theirs.framed(model.source_tokenizer.encode(text)) for text in texts]
    other = [text for text, one, two in zip(texts, ours, cut, strict=True) if one != two]
    told = f"{len(texts) - len(other)} of {len(texts)} texts have the same ids as by {theirs.name}"
    if other:
        told += f"; not so {other[0][:_SHOWN]!r}"
    return ComparedCuts(told, len(other) <= (1 - _LEAST) * len(texts))


class _Theirs:
    """The tokenizer of transformers for the sources, with the language that ours has."""

    def __init__(self, imported: Imported, symbols: Sequence[str], before: Sequence[int]) -> None:
        from transformers import AutoTokenizer

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it recommends packages
            self._tokenizer: Any = AutoTokenizer.from_pretrained(imported.folder.path, local_files_only=True)
        self.name = type(self._tokenizer).__name__
        if imported.folder.kind == "mbart" and not self.name.startswith("MBart50"):
            raise ValueError(f"no file says which of mBART's it is, and {self.name} is another")
        if hasattr(self._tokenizer, "punc_normalizer"):
            self._tokenizer.punc_normalizer = str  # of sacremoses, which attendo does not run
        self.special = {str(each) for each in self._tokenizer.all_special_tokens}
        self._order, self._before = imported.source, list(before)
        self._framed = "source" not in imported.unnamed_languages()
        if self._framed and hasattr(self._tokenizer, "src_lang"):
            language = symbols[before[0] - EOS - 1]
            self._tokenizer.src_lang = language.strip("_") if language.startswith("__") else language

    def cut(self, text: str) -> list[int]:
        return list(self._tokenizer(text, add_special_tokens=self._framed)["input_ids"])

    def framed(self, ids: Sequence[int]) -> list[int]:
        """Ours in their numbers, with what stands before and behind them."""
        return self._order.theirs([*self._before, *ids, EOS] if self._framed else ids)
