"""The built-in task: endless training pairs, and test pairs with word combinations that training never has."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from random import Random

from attendo.demo_task import (
    patterns_actions,
    patterns_clauses,
    patterns_descriptions,
    patterns_locations,
    patterns_questions,
)
from attendo.demo_task.phrase import Phrase, name_combination, phrase, weave
from attendo.errors import UsageError

HELD_OUT_SHARE = 0.04

Pattern = Callable[[Random], Phrase]

PATTERNS: dict[str, tuple[Pattern, ...]] = {
    "greeting": (patterns_descriptions.greeting,),
    "identity": (patterns_descriptions.identity, patterns_descriptions.identity_negation),
    "quality": (patterns_descriptions.quality, patterns_descriptions.colour),
    "feeling": (patterns_descriptions.feeling,),
    "comparison": (patterns_descriptions.comparison,),
    "comparison of people": (patterns_descriptions.comparison_of_people, patterns_descriptions.equality),
    "ownership": (patterns_descriptions.ownership,),
    "belonging": (patterns_descriptions.belonging,),
    "learning": (patterns_actions.learning,),
    "feeling for people": (patterns_actions.feeling_for_people,),
    "taste": (patterns_actions.taste,),
    "negation": (patterns_actions.negation,),
    "past": (patterns_actions.past,),
    "past with time": (patterns_actions.past_with_time, patterns_actions.meeting),
    "past negation": (patterns_actions.past_negation,),
    "future": (patterns_actions.future,),
    "frequency": (patterns_actions.frequency, patterns_actions.daily),
    "moving": (patterns_actions.moving,),
    "progressive": (patterns_actions.progressive, patterns_actions.progressive_activity),
    "wish": (patterns_actions.wish, patterns_actions.unwillingness),
    "ability": (patterns_actions.ability, patterns_actions.duty),
    "giving": (patterns_actions.giving,),
    "serving": (patterns_actions.serving,),
    "experience": (patterns_actions.experience,),
    "request": (patterns_actions.request,),
    "lying": (patterns_locations.lying,),
    "existence": (patterns_locations.existence,),
    "putting": (patterns_locations.putting,),
    "passive": (patterns_locations.passive,),
    "acting somewhere": (patterns_locations.acting_somewhere, patterns_locations.living),
    "company": (patterns_locations.company, patterns_locations.outing),
    "transport": (patterns_locations.transport,),
    "yes or no": (patterns_questions.taste_question, patterns_questions.wish_question),
    "yes or no, past": (patterns_questions.past_question,),
    "yes or no, being": (
        patterns_questions.quality_question,
        patterns_questions.identity_question,
        patterns_questions.ability_question,
    ),
    "who": (patterns_questions.who_did,),
    "what": (patterns_questions.what_done, patterns_questions.what_going_on),
    "where": (patterns_questions.where_living, patterns_questions.where_acting, patterns_questions.where_lying),
    "when, why, how": (patterns_questions.going_when, patterns_questions.why_liking),
    "how many, which": (patterns_questions.how_many, patterns_questions.which),
    "that": (patterns_clauses.thing_that,),
    "who likes": (patterns_clauses.person_who,),
    "because": (patterns_clauses.because_not_going, patterns_clauses.because_of_need),
    "if": (patterns_clauses.if_weather, patterns_clauses.if_time, patterns_clauses.if_money),
    "when": (patterns_clauses.when_coming,),
}


@dataclass(frozen=True)
class AlignedPair:
    """One sentence in both languages. `alignment` has sorted (source word, target word) indices from 0."""

    source: str
    target: str
    source_words: tuple[str, ...]
    target_words: tuple[str, ...]
    alignment: tuple[tuple[int, int], ...]
    pattern: str


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
    source = " ".join(words).replace(" ?", "?").replace(" ,", ",")
    return AlignedPair(source, " ".join(sentence.chinese), words, sentence.chinese, sentence.links, pattern)


_STUDY_TABLE = (
    (
        "learning",
        ("love", "natural language processing"),
        phrase("I love natural language processing", "我 爱 自然 语言 处理"),
    ),
    ("moving", ("cat", "sit"), weave("the¹ cat² sat³", "这只¹² 猫² 坐下³ 了")),
    ("identity", ("I", "student"), weave("I¹ am² a³ student⁴", "我¹ 是² 一³ 个⁴ 学生⁴")),
    ("feeling for people", ("I", "love", "you"), phrase("I love you", "我 爱 你")),
    ("feeling for people", ("you", "love", "me"), phrase("you love me", "你 爱 我")),
    ("learning", ("love", "NLP"), phrase("I love NLP", "我 爱 NLP")),
    ("greeting", ("hello", "world"), phrase("hello world", "你好 世界")),
)
STUDY_SENTENCES = tuple(_make_pair(pattern, sentence) for pattern, _, sentence in _STUDY_TABLE)
_STUDY_COMBINATIONS = frozenset(name_combination(*words) for _, words, _ in _STUDY_TABLE)
