"""X11: text processing takes bounded time for 5,000 characters and grows linearly with the length."""

import sys
import time
from collections.abc import Callable
from functools import cache
from types import FrameType
from typing import Any

import pytest
from tiny import SOURCES

from attendo.serve.http.errors import ApiError
from attendo.serve.language_detection import detect_language
from attendo.serve.translation.formats.draft import decode
from attendo.serve.translation.segmenter import SegmentedText
from attendo.text import Characters, SentencePiece, Words
from attendo.text.languages import language_code
from attendo.text_model.sentence_splitting import join_texts, split_sentences

CHARACTERS = 5_000
WORST = {
    "one word": "x",
    "one letter words": "x ",
    "apostrophes": "x'",
    "combining": "e\u0301\u0308\u0327",
    "only combining": "\u0301",
    "spaces": " ",
    "lines": "\n",
    "tabs and spaces": "\t \u00a0\u3000",
    "full stops": ".",
    "short sentences": "A. ",
    "abbreviations": "Mr. e.g. ",
    "sentences without spaces": "猫。",
    "closing signs": ".)\"'",
    "two scripts": "a猫",
    "emoji": "👩‍👩‍👧",
    "variation": "☺\ufe0f",
    "surrogate range": "\U0010fffd",
    "digits": "1",
    "hyphens": "a-",
    "open tags": "<b",
    "nested tags": "<b>",
    "values": "<a b='",
    "comments": "<!--",
    "sections": "<![CDATA[",
    "ampersands": "&",
    "numbers of signs": "&#x1",
    "placeholders": "%s{0}",
    "braces": "{",
    "right to left": "\u202eא",
    "Hangul": "ㅎㅏㄴ",
    "ligatures": "ﷺ",  # one character that normalises to eighteen
}


@cache
def tokenizers() -> dict[str, Any]:
    lines = [*SOURCES, "猫 坐 着", "It's the cat's."] * 40
    return {
        "words": Words.build(lines),
        "characters": Characters.build(lines),
        "bpe": SentencePiece.train(lines, 300, "bpe"),
        "unigram": SentencePiece.train(lines, 300, "unigram"),
    }


def _document(text: str) -> None:
    for kind in ("text", "html", "xml"):
        try:
            decode(text.encode(), kind)  # type: ignore[arg-type]
        except ApiError:
            continue


def _plan(text: str, kind: Any) -> None:
    plan = SegmentedText(text, kind)
    assert len(plan.sentences) <= len(text)


PROCESSORS: dict[str, Callable[[str], Any]] = {
    **{
        name: (lambda text, name=name: tokenizers()[name].encode(text))
        for name in ("words", "characters", "bpe", "unigram")
    },
    "unknown words": lambda text: tokenizers()["words"].unknown(text),
    "detection": lambda text: detect_language(text, ["en", "zh", "de", "ru"]),
    "sentences": lambda text: join_texts(split_sentences(text)),
    "languages": language_code,
    "documents": _document,
    "plain text": lambda text: _plan(text, "text"),
    "HTML": lambda text: _plan(text, "html"),
    "XML": lambda text: _plan(text, "xml"),
}


@pytest.mark.parametrize("name", PROCESSORS)
def test_executed_lines_grow_linearly(name: str) -> None:
    process = PROCESSORS[name]
    process("warm")
    for case, unit in WORST.items():
        once, twice = (count_lines(process, _repeat(unit, size)) for size in (250, 500))
        assert twice < 2.5 * once + 200, case


@pytest.mark.slow
@pytest.mark.parametrize("name", PROCESSORS)
def test_the_time_of_5000_characters_is_bounded_and_linear(name: str) -> None:
    """The bound is 50 ms on a machine where the reference loop takes 0.5 ms, and more on a slower machine."""
    process = PROCESSORS[name]
    process("warm")
    for case, unit in WORST.items():
        text = _repeat(unit, CHARACTERS)
        assert any(_seconds(process, text) < 100 * _seconds(_reference, text) for _ in range(5)), case
        assert any(_is_linear(process, text) for _ in range(5)), case


def _reference(text: str) -> list[str]:
    return [each + each for each in text]


def _is_linear(process: Callable[[str], Any], text: str) -> bool:
    """Twice the text takes about twice the time. Other processes disturb times of a few milliseconds, so one success
    in several is enough. Quadratic time never passes.
    """
    return _seconds(process, text) < 2.5 * _seconds(process, text[: len(text) // 2]) + 0.002


def _repeat(unit: str, size: int) -> str:
    return (unit * size)[:size]


def _seconds(process: Callable[[str], Any], text: str) -> float:
    """CPU seconds of this process, the minimum of 5 runs because other processes may run too."""
    times = []
    for _ in range(5):
        begin = time.process_time()
        process(text)
        times.append(time.process_time() - begin)
    return min(times)


def count_lines(process: Callable[[str], Any], text: str) -> int:
    """The number of executed lines in files of attendo."""
    count = 0

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal count
        count += event == "line"
        return trace if "/attendo/" in frame.f_code.co_filename.replace("\\", "/") else None

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        process(text)
    finally:
        sys.settrace(before)
    return count
