"""From texts to the lines that are answered, one or several for each, and back."""

from collections.abc import Sequence

from attendo.data.line_breaks import as_line
from attendo.decode.config import GenerationConfig
from attendo.decode.ranking import Ranking
from attendo.errors import UsageError
from attendo.text import Tokenizer
from attendo.text_model.answering import Line
from attendo.text_model.choices import ranking_of
from attendo.text_model.faults import TooLongError
from attendo.text_model.phrasing import Ids, prefix_ids, required_ways
from attendo.text_model.prefixes import prefixes_of
from attendo.text_model.results import Hypothesis, Result, Score, empty
from attendo.text_model.splitting import fitting, joined
from attendo.text_model.wishes import Wishes


class LineMaker:
    """Knows what is asked for, and how many tokens can be read and said (`longest`; None: any number)."""

    def __init__(
        self,
        wishes: Wishes,
        config: GenerationConfig,
        source: Tokenizer,
        target: Tokenizer,
        longest: int | None,
    ) -> None:
        self._wishes, self._config, self._source, self._target = wishes, config, source, target
        self._before, self._begin = prefixes_of(config, source, target)
        self._positions = longest
        self._most = config.max_source if self._positions is None else min(config.max_source, self._positions)

    def of(self, texts: Sequence[str]) -> list[list[Line]]:
        """Of each text, none where there is nothing to answer."""
        prefixes, phrases = self._wishes.prefixes(len(texts)), self._wishes.phrases(len(texts))
        made: list[list[Line]] = []
        for number, (text, prefix, required) in enumerate(zip(map(as_line, texts), prefixes, phrases, strict=True)):
            self._wishes.check_ban(prefix, required)
            sentences = self.sentences(text, number, len(texts)) if text.strip() else []
            made.append([self._line(sentence, prefix, required) for sentence in sentences])
        return made

    def results(self, found: Sequence[Result], made: Sequence[Sequence[Line]]) -> list[Result]:
        """One for each text, in the order of the texts, from those of the lines that were made of them."""
        rest, told = iter(found), []
        for lines, phrases in zip(made, self._wishes.phrases(len(made)), strict=True):
            first, *others = [next(rest) for _ in lines] or [empty(len(phrases), self._wishes.alignments)]
            told.append(_whole([first, *others], ranking_of(self._config)) if others else first)
        return told

    def sentences(self, text: str, number: int, count: int = 1) -> list[str]:
        """The text itself where it can be read whole."""
        tokens = self._tokens(text)
        if tokens <= self._most or (self._config.long_source == "cut" and not self._wishes.split):
            return [text]
        where = f"text {number + 1} of {count}"
        if not self._wishes.split:
            message = (
                f"{where} has {tokens} tokens; the model reads at most {self._most}: split it (split=True, --split)"
            )
            raise TooLongError(message, number)
        try:
            return fitting(text, self._most, self._tokens)
        except UsageError as error:
            raise TooLongError(f"{where}: {error}", number) from None

    def _tokens(self, text: str) -> int:
        return len(self._before) + len(self._source.encode(text))

    def _line(self, text: str, prefix: str, phrases: tuple[str, ...]) -> Line:
        return self._line_of(text, prefix_ids(self._target, prefix) if prefix else (), phrases)

    def _line_of(self, text: str, prefix: Ids, phrases: tuple[str, ...]) -> Line:
        whole, begin = self._source.encode(text) if text else [], (*self._begin, *prefix)
        source, left_out = shortened(whole, self._config, len(self._before), self._positions)
        limit, least = self._limits(len(source), len(begin))
        ways = tuple(required_ways(self._target, phrases)) if phrases else ((),)
        return Line((*self._before, *source), limit, least, begin, phrases, ways, left_out)

    def _limits(self, source_tokens: int, prefix_tokens: int) -> tuple[int, int]:
        """The most and the fewest tokens of the answer."""
        config, given = self._config, self._wishes.max_length
        if given is not None and prefix_tokens > given:
            raise UsageError(f"the prefix has {prefix_tokens} tokens, more than max_length {given}")
        limit = given or int(config.max_length_factor * source_tokens) + config.max_length_extra
        limit = max(limit, prefix_tokens + config.max_length_extra) if given is None and prefix_tokens else limit
        if self._positions is not None:
            limit = min(limit, self._positions)
        least = int(config.min_length_factor * source_tokens) + config.min_length_extra
        if self._wishes.min_length is not None:
            least = self._wishes.min_length
        limit = max(limit, least) if given is None and self._positions is None else limit
        if least > limit and self._wishes.min_length is not None:
            raise UsageError(f"min_length {least} is more than the model can say: {limit} tokens")
        # With a free end the limit counts all tokens; otherwise those before eos.
        return limit - int(config.at_limit == "free"), min(limit, least)


def shortened(
    source: Sequence[int], config: GenerationConfig, before: int = 0, positions: int | None = None
) -> tuple[Sequence[int], int]:
    """What is read of a source, and how many tokens of it are not: none, unless long sources are cut."""
    most = (config.max_source if positions is None else min(config.max_source, positions)) - before
    if config.long_source == "refuse" or len(source) <= most:
        return source, 0
    return source[:most], len(source) - most


def _whole(found: Sequence[Result], ranking: Ranking) -> Result:
    """The answers to the sentences of one text as one answer."""
    best = [each.best for each in found]
    tokens = sum(each.parts.tokens for each in best)
    divisor, reward = ranking.terms(tokens)
    log_probability, penalty, coverage = (
        sum(getattr(each.parts, name) for each in best) for name in ("log_probability", "penalty", "coverage")
    )
    whole = Hypothesis(
        text=joined([each.text for each in best]),
        ids=tuple(number for each in best for number in each.ids),
        pieces=tuple(piece for each in best for piece in each.pieces),
        parts=Score(log_probability, penalty, tokens, divisor, reward, coverage),
        cut=any(each.cut for each in best),
    )
    return Result((whole,), sentences=tuple(found))
