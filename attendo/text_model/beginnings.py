"""Texts for a model without an encoder: nothing is read as a source, the text is what its continuation begins with."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from attendo.decode.config import OF_A_SOURCE, GenerationConfig
from attendo.errors import UsageError
from attendo.text_model.answering import Line
from attendo.text_model.faults import TooLongError
from attendo.text_model.lines import LineMaker
from attendo.text_model.phrasing import beginning_ids, holds
from attendo.text_model.wishes import Wishes


class BeginningMaker(LineMaker):
    """A line for every text, also for one that is empty, which begins with nothing."""

    def of(self, texts: Sequence[str]) -> list[list[Line]]:
        made: list[list[Line]] = []
        for number, (text, required) in enumerate(zip(texts, self._wishes.phrases(len(texts)), strict=True)):
            self._wishes.check_ban("", required)
            for banned in self._wishes.ban:
                if holds(text, banned):
                    raise UsageError("prompt_contains_banned_phrase", text=text, banned=banned)
            self._check_length(text, number, len(texts))
            made.append([replace(self._line_of("", beginning_ids(self._target, text), required), text=text)])
        return made

    def _check_length(self, text: str, number: int, count: int) -> None:
        """A text that is too long cannot be cut: its end would not know of its beginning."""
        tokens = len(self._begin) + len(beginning_ids(self._target, text))
        limit = self._wishes.max_length
        if tokens > self._most:
            raise TooLongError(
                "prompt_exceeds_model_limit", number, position=number + 1, total=count, tokens=tokens, limit=self._most
            )
        if limit is not None and tokens > limit:
            raise TooLongError(
                "prompt_longer_than_max_length", number, position=number + 1, total=count, tokens=tokens, limit=limit
            )


def refuse_source(wishes: Wishes, config: GenerationConfig, given: Mapping[str, Any]) -> None:
    """What is said of a source, or would say again how the answer begins; `given` are the options of the call."""
    if wishes.prefix:
        raise UsageError("prefix_with_decoder_only_model")
    # Lengths follow that of a source unless a call says otherwise; a model without one needs not be told so.
    meant = {name: given.get(name) if "factor" in name else getattr(config, name) for name in OF_A_SOURCE}
    said = [name for name, value in meant.items() if value and value != OF_A_SOURCE[name]]
    for name in [*(each for each in ("split", "alignments") if getattr(wishes, each)), *said]:
        raise UsageError("source_option_without_encoder", option=name)
