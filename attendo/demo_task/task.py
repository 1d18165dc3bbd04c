"""The built-in task: endless training pairs, and test pairs with word combinations that training never has."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from itertools import accumulate
from random import Random

from attendo.demo_task import (
    patterns_actions,
    patterns_clauses,
    patterns_descriptions,
    patterns_locations,
    patterns_questions,
)
from attendo.demo_task.phrase import Pattern, Phrase, name_combination, phrase
from attendo.errors import UsageError

HELD_OUT_SHARE = 0.04
_ATTACHED = ("?", ",")  # without a space before them

PATTERNS: dict[str, list[Pattern]] = {}
for _module in (
    patterns_descriptions,
    patterns_actions,
    patterns_locations,
    patterns_questions,
    patterns_clauses,
):  # the order is part of what a seed means
    for _pattern in vars(_module).values():
        if isinstance(_pattern, Pattern):
            PATTERNS.setdefault(_pattern.name, []).append(_pattern)


@dataclass(frozen=True)
class AlignedPair:
    """One sentence in both languages. `alignment` has sorted (source word, target word) indices from 0."""

    source: str
    target: str
    source_words: tuple[str, ...]
    target_words: tuple[str, ...]
    alignment: tuple[tuple[int, int], ...]
    pattern: str

    @property
    def text_alignment(self) -> frozenset[tuple[int, int]]:
        """The alignment between words separated by white space: punctuation belongs to the word before it."""
        spaced = accumulate(word not in _ATTACHED for word in self.source_words)
        word_of = [count - 1 for count in spaced]
        return frozenset((word_of[source], target) for source, target in self.alignment)


class BuiltinTask:
    """English to Chinese. The seed determines the sampled sentences and the held-out word combinations."""

    def __init__(self, seed: int = 1) -> None:
        self.seed = seed
        self._is_held_out = lru_cache(maxsize=None)(self._decide)

    def train(self) -> Iterator[AlignedPair]:
        """Yield pairs without end, the same in every call."""
        for pattern, sentence in _sample_sentences(Random(f"train {self.seed}")):
            if not any(map(self._is_held_out, sentence.combinations)):
                yield _make_pair(pattern, sentence)

    def heldout(self, count: int = 1000) -> list[AlignedPair]:
        """Return distinct pairs, the study sentences first. Each has a word combination that training never has."""
        if count < 0:
            raise UsageError("heldout_count_negative", count=count)
        pairs = {pair.source: pair for pair in STUDY_SENTENCES[:count]}
        for pattern, sentence in _sample_sentences(Random(f"held out {self.seed}")):
            if len(pairs) >= count:
                break
            if any(map(self._is_held_out, sentence.combinations)):
                pair = _make_pair(pattern, sentence)
                pairs.setdefault(pair.source, pair)
        return list(pairs.values())

    def _decide(self, name: str) -> bool:
        if name in _STUDY_COMBINATIONS:
            return True
        digest = blake2b(f"{self.seed} {name}".encode(), digest_size=8).digest()
        return int.from_bytes(digest, "big") < HELD_OUT_SHARE * 2**64


_PATTERNS = tuple(PATTERNS.items())


def _sample_sentences(dice: Random) -> Iterator[tuple[str, Phrase]]:
    while True:
        name, variants = dice.choice(_PATTERNS)
        yield name, dice.choice(variants)(dice)


def _make_pair(pattern: str, sentence: Phrase) -> AlignedPair:
    first, *rest = sentence.english
    words = (first[0].upper() + first[1:], *rest)
    source = " ".join(words)
    for mark in _ATTACHED:
        source = source.replace(f" {mark}", mark)
    return AlignedPair(source, " ".join(sentence.chinese), words, sentence.chinese, sentence.links, pattern)


_STUDY_TABLE = (
    (
        "learning",
        ("love", "natural language processing"),
        phrase("I love natural language processing", "我 爱 自然 语言 处理"),
    ),
    ("moving", ("cat", "sit"), phrase("the¹ cat² sat³", "这只¹² 猫² 坐下³ 了")),
    ("identity", ("I", "student"), phrase("I¹ am² a³ student⁴", "我¹ 是² 一³ 个⁴ 学生⁴")),
    ("feeling for people", ("I", "love", "you"), phrase("I love you", "我 爱 你")),
    ("feeling for people", ("you", "love", "me"), phrase("you love me", "你 爱 我")),
    ("learning", ("love", "NLP"), phrase("I love NLP", "我 爱 NLP")),
    ("greeting", ("hello", "world"), phrase("hello world", "你好 世界")),
)
STUDY_SENTENCES = tuple(_make_pair(pattern, sentence) for pattern, _, sentence in _STUDY_TABLE)
_STUDY_COMBINATIONS = frozenset(name_combination(*words) for _, words, _ in _STUDY_TABLE)
