"""Texts that are empty or too long: refused with what could be sent instead."""

from collections.abc import Sequence

from attendo.serve.errors import Refusal
from attendo.text import Tokenizer
from attendo.text_model.splitting import sentences

Ids = Sequence[int]


def checked_ids(text: str, tokenizer: Tokenizer, before: Ids, most: int, side: str = "source") -> tuple[int, ...]:
    """The ids of a text behind those that the model puts before it. With eos they may be `most`."""
    if side == "source" and not text.strip():
        raise Refusal("empty_text")
    ids = tokenizer.encode(text)
    room = most - 1 - len(before)
    if len(ids) > room:
        tokens = len(before) + len(ids) + 1
        extra = {"side": side, **(_choices(text, tokenizer, max(room, 0)) if side == "source" else {})}
        raise Refusal("too_long", extra, side=side, tokens=tokens, most=most)
    return (*before, *ids)


def _choices(text: str, tokenizer: Tokenizer, room: int) -> dict[str, object]:
    """What could be sent instead; by sentence only where each sentence is short enough."""
    parts = sentences(text)
    choices, chinese = [f"first {room} tokens"], [f"前 {room} 个词元"]
    texts: list[object] = [_beginning(text, tokenizer, room)]
    if len(parts) > 1 and all(len(each) <= room for each in tokenizer.encode_many(parts)):
        choices, chinese, texts = [*choices, "by sentence"], [*chinese, "逐句"], [*texts, parts]
    return {"choices": choices, "choices_zh": chinese, "texts": texts}


def _beginning(text: str, tokenizer: Tokenizer, room: int) -> str:
    """As much of it as has so many tokens, up to the end of a word where there are spaces.

    Taken from the text itself: what tokens read as need not be what was written.
    """
    fits, too_much = 0, len(text)
    while too_much - fits > 1:
        middle = (fits + too_much) // 2
        if len(tokenizer.encode(text[:middle])) <= room:
            fits = middle
        else:
            too_much = middle
    begun = text[:fits]
    if begun and not begun[-1].isspace() and not text[fits].isspace():
        words = begun.rsplit(maxsplit=1)
        begun = words[0] if len(words) > 1 else begun
    return begun.strip()
