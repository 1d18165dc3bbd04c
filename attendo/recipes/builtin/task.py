"""The built-in task: pairs without end for training, and pairs with unseen combinations of words for the test."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from random import Random

from attendo.errors import UsageError
from attendo.recipes.builtin import actions, clauses, describing, placing, questions
from attendo.recipes.builtin.phrase import Phrase, combination, phrase, weave

HELD_OUT_SHARE = 0.04

Pattern = Callable[[Random], Phrase]

PATTERNS: dict[str, tuple[Pattern, ...]] = {
    "greeting": (describing.greeting,),
    "identity": (describing.identity, describing.denied_identity),
    "quality": (describing.quality, describing.colour),
    "feeling": (describing.feeling,),
    "comparison": (describing.comparison,),
    "comparison of people": (describing.comparison_of_people, describing.equality),
    "ownership": (describing.ownership,),
    "belonging": (describing.belonging,),
    "learning": (actions.learning,),
    "feeling for people": (actions.feeling_for_people,),
    "taste": (actions.taste,),
    "negation": (actions.negation,),
    "past": (actions.past,),
    "past with time": (actions.past_with_time, actions.meeting),
    "past negation": (actions.past_negation,),
    "future": (actions.future,),
    "frequency": (actions.frequency, actions.daily),
    "moving": (actions.moving,),
    "progressive": (actions.progressive, actions.progressive_activity),
    "wish": (actions.wish, actions.unwillingness),
    "ability": (actions.ability, actions.duty),
    "giving": (actions.giving,),
    "serving": (actions.serving,),
    "experience": (actions.experience,),
    "request": (actions.request,),
    "lying": (placing.lying,),
    "existence": (placing.existence,),
    "putting": (placing.putting,),
    "passive": (placing.passive,),
    "acting somewhere": (placing.acting_somewhere, placing.living),
    "company": (placing.company, placing.outing),
    "transport": (placing.transport,),
    "yes or no": (questions.asking_taste, questions.asking_wish),
    "yes or no, past": (questions.asking_past,),
    "yes or no, being": (questions.asking_quality, questions.asking_identity, questions.asking_ability),
    "who": (questions.who_did,),
    "what": (questions.what_done, questions.what_going_on),
    "where": (questions.where_living, questions.where_acting, questions.where_lying),
    "when, why, how": (questions.going_when, questions.why_liking),
    "how many, which": (questions.how_many, questions.which),
    "that": (clauses.thing_that,),
    "who likes": (clauses.person_who,),
    "because": (clauses.because_not_going, clauses.because_of_need),
    "if": (clauses.if_weather, clauses.if_time, clauses.if_money),
    "when": (clauses.when_coming,),
}


@dataclass(frozen=True)
class Pair:
    """One sentence in both languages; `alignment` holds (source word, target word), from 0, sorted."""

    source: str
    target: str
    source_words: tuple[str, ...]
    target_words: tuple[str, ...]
    alignment: tuple[tuple[int, int], ...]
    pattern: str


class BuiltinTask:
    """English to Chinese; the seed decides what is drawn and which combinations of words only the test may have."""

    def __init__(self, seed: int = 1) -> None:
        self.seed = seed
        self._is_held_out = lru_cache(maxsize=None)(self._decide)

    def train(self) -> Iterator[Pair]:
        """Pairs without end, the same from every call."""
        for pattern, sentence in _sentences(Random(f"train {self.seed}")):
            if not any(map(self._is_held_out, sentence.combinations)):
                yield _pair(pattern, sentence)

    def heldout(self, count: int = 1000) -> list[Pair]:
        """Distinct pairs, each with a combination of words that never occurs in training; the study sentences first."""
        if count < 0:
            raise UsageError("heldout_count_negative", count=count)
        pairs = {pair.source: pair for pair in STUDY_SENTENCES[:count]}
        for pattern, sentence in _sentences(Random(f"held out {self.seed}")):
            if len(pairs) >= count:
                break
            if any(map(self._is_held_out, sentence.combinations)):
                pair = _pair(pattern, sentence)
                pairs.setdefault(pair.source, pair)
        return list(pairs.values())

    def _decide(self, name: str) -> bool:
        if name in _STUDY_COMBINATIONS:
            return True
        digest = blake2b(f"{self.seed} {name}".encode(), digest_size=8).digest()
        return int.from_bytes(digest, "big") < HELD_OUT_SHARE * 2**64


_PATTERNS = tuple(PATTERNS.items())


def _sentences(dice: Random) -> Iterator[tuple[str, Phrase]]:
    while True:
        name, variants = dice.choice(_PATTERNS)
        yield name, dice.choice(variants)(dice)


def _pair(pattern: str, sentence: Phrase) -> Pair:
    first, *rest = sentence.english
    words = (first[0].upper() + first[1:], *rest)
    source = " ".join(words).replace(" ?", "?").replace(" ,", ",")
    return Pair(source, " ".join(sentence.chinese), words, sentence.chinese, sentence.links, pattern)


_STUDIED = (
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
STUDY_SENTENCES = tuple(_pair(pattern, sentence) for pattern, _, sentence in _STUDIED)
_STUDY_COMBINATIONS = frozenset(combination(*words) for _, words, _ in _STUDIED)
