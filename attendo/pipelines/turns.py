"""What a model is asked in a conversation: its latest turns, joined as it learned to read them."""

from bisect import bisect_left
from collections.abc import Callable, Sequence

from attendo.decode.config import GenerationConfig
from attendo.text.turns import TURN, as_turn, join_turns
from attendo.text_model import TextModel

LINE_BREAK = "\n"  # between the turns for a model that did not learn from turns


def latest_turns(texts: Sequence[str], model: TextModel, most: int | None, fits: Callable[[str], bool]) -> str:
    """As many as fit, and at most so many; the last one in any case."""
    texts = texts[-most:] if most is not None else texts
    with_symbol = TURN in model.source_tokenizer.symbols
    if model.source_tokenizer.unknown(" "):  # characters that were learned without spaces (data.without_spaces)
        texts = [text.replace(" ", "") for text in texts]

    def last(count: int) -> str:
        turns = texts[len(texts) - count :]
        return join_turns(map(as_turn, turns)) if with_symbol else LINE_BREAK.join(turns)

    # Halving: to encode a long conversation turn by turn would take long.
    too_long = bisect_left(range(len(texts) + 1), True, lo=1, key=lambda count: not fits(last(count)))
    return last(max(1, too_long - 1))


def most_tokens(model: TextModel, config: GenerationConfig) -> int:
    """That can be read, without what is put before every source."""
    limits = (config.max_source, model.runtime.longest)
    return min(limit for limit in limits if limit is not None) - len(config.source_prefix)
