"""Texts for a model without an encoder: nothing is read as a source, the text is what its continuation begins with."""

from collections.abc import Sequence

from attendo.decode.config import GenerationConfig
from attendo.errors import UsageError
from attendo.text import Tokenizer
from attendo.text_model.answering import Line
from attendo.text_model.lines import LineMaker
from attendo.text_model.phrasing import beginning_ids, holds
from attendo.text_model.splitting import TooLongError
from attendo.text_model.wishes import Wishes


class BeginningMaker(LineMaker):
    """A line for every text, also for one that is empty, which begins with nothing."""

    def __init__(
        self,
        wishes: Wishes,
        config: GenerationConfig,
        source: Tokenizer,
        target: Tokenizer,
        longest: int | None,
    ) -> None:
        _refuse(wishes, config)
        super().__init__(wishes, config, source, target, longest)

    def of(self, texts: Sequence[str]) -> list[list[Line]]:
        made: list[list[Line]] = []
        for number, (text, required) in enumerate(zip(texts, self._wishes.phrases(len(texts)), strict=True)):
            self._wishes.check_ban("", required)
            for banned in self._wishes.ban:
                if holds(text, banned):
                    raise UsageError(f"the text {text!r} and ban {banned!r} exclude each other: it begins the answer")
            (whole,) = self.sentences(text, number, len(texts))
            made.append([self._line_of("", beginning_ids(self._target, whole), required)])
        return made

    def sentences(self, text: str, number: int, count: int = 1) -> list[str]:
        """The text itself. One that is too long cannot be cut: its end would not know of its beginning."""
        tokens = len(self._begin) + len(beginning_ids(self._target, text))
        if tokens > self._most:
            message = f"text {number + 1} of {count} has {tokens} tokens; the model reads at most {self._most}: shorten"
            raise TooLongError(f"{message} it at its beginning", number)
        return [text]


def _refuse(wishes: Wishes, config: GenerationConfig) -> None:
    """What is said of a source, or would say again how the answer begins."""
    if wishes.prefix:
        raise UsageError("prefix and a decoder-only model exclude each other: the text itself is how it begins")
    given = {
        "split": wishes.split,
        "alignments": wishes.alignments,
        "coverage_penalty": config.coverage_penalty > 0,
        "source_prefix": bool(config.source_prefix),
    }
    for name, is_given in given.items():
        if is_given:
            raise UsageError(f"{name} and a decoder-only model exclude each other: it reads no source; leave it out")
