"""The built-in sentences are plausible: known odd patterns never occur in either language."""

import re
from itertools import islice

import pytest

from attendo.demo_task import AlignedPair, BuiltinTask

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def pairs() -> list[AlignedPair]:
    task = BuiltinTask(7)
    return [*islice(task.train(), 20_000), *task.heldout(1000)]


ODD_ENGLISH = {
    "nobody asks about himself": r"(Do|Did|Can|do|did|can|Are|are|Is|is|Does|does) (I|we|my|our)\b.*\?",
    "several people do not wear one coat": r"(These|Those|We|They) .*(wear|wore)\b",
    "one does not wear two coats": r"(wear|wore) (two|three|four|five|six|seven|eight|nine|ten|some)\b",
    "children do not drive": r"\b(child|children|boys?|girls?|son|daughter|classmate) .*(drive|drove|driving)\b",
    "children do not drink beer": r"\b(child|children|boys?|girls?|son|daughter|classmate) drank .* beer",
    "colleagues do not sleep together": r"\bsleeps? with\b",
    "cities are not left with a goodbye": r"Goodbye (Beijing|Shanghai|London|Paris|Tokyo|China|world)",
    "mice are not compared with tigers": r"The mouse is (as )?(big|bigger|small|smaller) (as|than) that (?!mouse)",
    "who is part of a group does not meet it": r"When we .*, I was|When I .*, we were",
    "nobody has dinner on getting up": r"got up, .* (lunch|dinner)",
    "a song is not good before it is written": r"will write .*\b(good|famous|interesting)\b",
}
ODD_CHINESE = {
    "a small panda is another animal": r"小 熊猫",
    "words with 有 are not negated by 不": r"不 有",
    "nobody counts himself by 位": r"我 是 一 位",
    "flowers are not planted by the blossom": r"种 .*朵",
    "every weekend asks for 都": r"每个 周末 (?!都)",
}


@pytest.mark.parametrize("fact", ODD_ENGLISH)
def test_no_english_sentence_is_odd(fact: str, pairs: list[AlignedPair]) -> None:
    odd = re.compile(ODD_ENGLISH[fact])
    assert [pair.source for pair in pairs if odd.search(pair.source)] == []


@pytest.mark.parametrize("fact", ODD_CHINESE)
def test_no_chinese_sentence_is_odd(fact: str, pairs: list[AlignedPair]) -> None:
    odd = re.compile(ODD_CHINESE[fact])
    assert [pair.target for pair in pairs if odd.search(pair.target)] == []
