"""Texts of lines and tags through a model of sentences."""

import asyncio
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from polyglot import served
from tiny import SOURCES

from attendo.serve.http.errors import ApiError
from attendo.serve.http.metrics import ServerMetrics
from attendo.serve.scheduling.gateway import ModelGateway
from attendo.serve.scheduling.registry import ModelRegistry, ServedModel
from attendo.serve.settings import ServeSettings
from attendo.serve.translation.segmenter import SegmentationOptions, SegmentedText, TextFormat
from attendo.serve.translation.translator import (
    MAX_SENTENCES,
    SentenceHypothesis,
    TextTranslation,
    make_fit_check,
    translate,
)
from attendo.text.markup import Markup
from attendo.text_model import Hypothesis, HypothesisScore, Result, TextModel
from attendo.text_model.alignment import link_characters

LINE_BREAKS = re.compile("\r\n|[\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029]")
PARTS = [*"ab. !?。好<>&;/\t \n\r", "\r\n", "<b>", "</b>", "<p>", "{x}", "1"]
WRITTEN = st.lists(st.sampled_from(PARTS), max_size=30).map("".join)


class Shouting(ModelGateway):
    """Answers in capitals, and remembers what was asked."""

    def __init__(self, office: ModelGateway) -> None:
        super().__init__(office.registry, office.settings, office.metrics)
        self.calls: list[tuple[Sequence[str], dict[str, Any]]] = []

    async def generate(
        self, served: ServedModel, texts: Sequence[str], *, deadline: float | None = None, **options: Any
    ) -> list[Result]:
        self.check_texts(texts)
        self.check_options(**options)
        self.calls.append((texts, options))
        ways = [str.upper, *(lambda text, n=n: f"{text.upper()}{n // 2}" for n in range(options.get("n_best", 1) - 1))]
        return [Result(tuple(_said(way(text)) for way in ways), source_tokens=len(text.split())) for text in texts]


def _said(text: str) -> Hypothesis:
    return Hypothesis(text, (7,) * len(text.split()), tuple(text.split()), HypothesisScore(-1.0), cut="CUT" in text)


@dataclass
class Desk:
    """Asks a real model, or one that shouts."""

    office: ModelGateway = field(default_factory=lambda: _office())

    @property
    def model(self) -> ServedModel:
        return self.office.get_model("forth")

    def __call__(self, *texts: str, kind: TextFormat = "text", **more: Any) -> list[TextTranslation]:
        how = SegmentationOptions(
            kind, **{name: more.pop(name) for name in SegmentationOptions._fields if name in more}
        )
        return asyncio.run(translate(self.office, self.model, texts, how, **more))


def _office(**settings: Any) -> ModelGateway:
    made = ServeSettings(**settings)
    return ModelGateway(ModelRegistry(served("forth"), made), made, ServerMetrics())


@pytest.fixture(scope="module")
def real() -> Desk:
    return Desk()


@pytest.fixture
def shouting(real: Desk) -> Desk:
    return Desk(Shouting(real.office))


def calls(desk: Desk) -> list[Sequence[str]]:
    assert isinstance(desk.office, Shouting)
    return [texts for texts, _ in desk.office.calls]


def test_lines_and_the_white_space_around_them_stay(shouting: Desk) -> None:
    text = "  hello world\t\r\n\n \nmore \n"
    assert shouting(text)[0].text == "  HELLO WORLD\t\r\n\n \nMORE \n"
    assert calls(shouting) == [["hello world", "more"]]


def test_all_sentences_of_all_texts_are_asked_together(shouting: Desk) -> None:
    found = shouting("one. two!", "three\nfour", "", "5")
    assert [each.text for each in found] == ["ONE. TWO!", "THREE\nFOUR", "", "5"]
    assert calls(shouting) == [["one.", "two!", "three", "four"]]


def test_what_has_no_letters_takes_no_model(shouting: Desk) -> None:
    for text in ("", " \n ", "123 + 4", "👍", "----\n"):
        assert shouting(text) == [TextTranslation(text, (), 0, 0, False)]
    assert shouting("<p>12</p><br>", kind="html")[0].text == "<p>12</p><br>"
    assert calls(shouting) == []


def test_a_sentence_without_letters_stays_within_its_line(shouting: Desk) -> None:
    assert shouting("Call 110. 911! now")[0].text == "CALL 110. 911! NOW"
    assert calls(shouting) == [["Call 110.", "now"]]


def test_without_split_a_text_is_asked_whole(shouting: Desk) -> None:
    assert shouting(" one. two!\n\nthree\n", split="never")[0].text == " ONE. TWO! THREE\n"
    assert shouting("一。\n二", split="never")[0].text == "一。\n二"  # as said again
    assert shouting("1.\n2", split="never")[0].text == "1.\n2"
    assert calls(shouting) == [["one. two! three"], ["一。二"]]


def test_a_sentence_goes_on_in_the_next_line_where_lines_end_none(shouting: Desk) -> None:
    text = "the cat\n sat. a dog\r\n\r\nran!\nMr.\nX came.\n\n7\n"
    assert shouting(text, split="signs")[0].text == "THE CAT SAT. A DOG RAN!\nMR. X CAME.\n\n7\n"
    assert calls(shouting) == [["the cat sat.", "a dog ran!", "Mr. X came."]]
    assert shouting("猫\n坐着。\n狗", split="signs")[0].text == "猫\n坐着。\n狗"
    assert calls(shouting)[1:] == [["猫坐着。", "狗"]]


@given(WRITTEN, st.sampled_from(["signs", "never"]))
def test_nothing_is_lost_over_the_ends_of_lines(real: Desk, text: str, split: str) -> None:
    (found,) = Desk(Shouting(real.office))(text, split=split)
    assert "".join(found.text.split()) == "".join(text.upper().split())


def test_tokens_and_cuts_are_those_of_all_sentences(shouting: Desk) -> None:
    (found,) = shouting("one two. three cut four.")
    assert (found.source_tokens, found.target_tokens, found.cut) == (5, 5, True)
    assert not shouting("one")[0].cut


def test_many_sentences_go_in_as_few_calls_as_a_request_may_have_texts(shouting: Desk) -> None:
    text = "\n".join(f"word{number}" for number in range(120))
    assert shouting(text)[0].text == text.upper()
    assert sorted(map(len, calls(shouting))) == [20, 50, 50]


def test_more_sentences_than_anybody_writes_are_refused(shouting: Desk) -> None:
    with pytest.raises(ApiError, match="too_many_sentences"):
        shouting("a\n" * (MAX_SENTENCES + 1))
    assert calls(shouting) == []


def test_limits_are_those_of_the_texts_as_they_came(shouting: Desk) -> None:
    with pytest.raises(ApiError, match="too_many_texts"):
        shouting(*["a"] * 51)
    with pytest.raises(ApiError, match="text_too_long"):
        shouting("a" * 5_001)


def test_alternatives_are_distinct_and_other_than_the_translation(shouting: Desk) -> None:
    (found,) = shouting("one. two!", alternatives=2)
    assert found.text == "ONE. TWO!"
    assert found.alternatives == ("ONE.0 TWO!0", "ONE.1 TWO!1")  # each was found twice
    assert shouting("12", alternatives=2)[0].alternatives == ()


def test_alternatives_that_come_out_the_same_are_one(real: Desk) -> None:
    class Repeating(Shouting):
        async def generate(self, *asked: Any, **options: Any) -> list[Result]:
            return [Result(tuple(map(_said, ("A B", "A\nB", " ", "C", " C ", "C\n", "D"))))] * len(asked[1])

    (found,) = Desk(Repeating(real.office))("x", alternatives=5)
    assert (found.text, found.alternatives) == ("A B", ("C", "D"))


def test_alternatives_of_tagged_text_have_the_tags_too(real: Desk) -> None:
    (found,) = real("I <b>love</b> NLP", kind="html", alternatives=5)
    assert len(found.alternatives) >= 2
    assert len({found.text, *found.alternatives}) == 1 + len(found.alternatives)
    assert all(each.count("<b>") == each.count("</b>") == 1 for each in (found.text, *found.alternatives))


@pytest.mark.parametrize("beam", [1, 5])
def test_a_translation_is_the_same_with_and_without_alternatives(real: Desk, beam: int) -> None:
    plain, found = real(*SOURCES, beam=beam), real(*SOURCES, alternatives=2, beam=beam)
    assert [replace(each, alternatives=()) for each in found] == plain
    assert all(each.alternatives for each in found)


def test_a_beam_that_is_wide_enough_is_searched_once(shouting: Desk) -> None:
    shouting("one", alternatives=2, beam=5)
    shouting("one", alternatives=2)
    assert isinstance(shouting.office, Shouting)
    whole = {"split": False}  # which was done
    assert [options for _, options in shouting.office.calls] == [
        {"beam": 5, "n_best": 5} | whole, whole, {"beam": 5, "n_best": 5} | whole,
    ]  # fmt: skip


def test_a_model_that_learned_from_texts_is_given_lines_with_all_their_sentences(real: Desk) -> None:
    texts = {"counted": 100, "with_end": 1.0, "several_sentences": 0.6}
    model = TextModel(replace(real.model.model.stored_model, about={"trained_on": texts}))
    whole = make_fit_check(model)
    assert whole is not None
    assert SegmentedText("One. Two.\nThree.", SegmentationOptions(), whole).sentences == ["One. Two.", "Three."]
    assert SegmentedText("One. Two.\nThree.", SegmentationOptions(), lambda text: False).sentences == [
        "One.",
        "Two.",
        "Three.",
    ]
    assert make_fit_check(real.model.model) is None


def test_a_wide_beam_of_groups_is_shared_evenly(real: Desk) -> None:
    (found,) = real("I love NLP", alternatives=3, beam_groups=3, beam=3, diversity_penalty=0.5)
    assert found.alternatives


def test_the_answer_is_that_of_the_model_alone(real: Desk) -> None:
    said = [each.text.strip() for each in real.model.model.generate(["the cat sat", "a dog ran home"])]
    assert [each.text for each in real("the cat sat", "a dog ran home")] == said
    assert real("the cat sat\n\n a dog ran home")[0].text == f"{said[0]}\n\n {said[1]}"
    assert real("<p>the cat sat</p><p>a dog ran home</p>", kind="html")[0].text == f"<p>{said[0]}</p><p>{said[1]}</p>"


def test_tags_follow_their_words(real: Desk) -> None:
    """As the alignment has it that can be asked for with an answer."""
    model = real.model.model
    texts, expected = list[str](), list[str]()
    for source, result in zip(SOURCES, model.generate(SOURCES, alignments=True), strict=True):
        links = link_characters(result.best, source, model.source_tokenizer, model.target_tokenizer)
        assert links
        for word in source.split():
            texts.append(source.replace(word, f"<b>{word}</b>", 1))
            expected.append(Markup(texts[-1], "html").insert_translations([result.text], [links]))
    assert [each.text for each in real(*texts, kind="html")] == expected


def test_links_of_later_sentences_are_counted_from_the_beginning() -> None:
    plan = SegmentedText("One two. <b>Three</b> four. <i>12.</i>", "html")
    assert plan.sentences == ["One two.", "Three four."]
    said = [
        SentenceHypothesis("  AB C ", 3, 2, False, [(0, 2), (4, 5), (9, 99)]),
        SentenceHypothesis("D\nE F", 2, 3, False, [(6, 0), (0, 4)]),
    ]
    assert plan.assemble(said) == "AB C D E <b>F</b> <i>12.</i>"
    without = [replace(each, links=None) for each in said]
    assert plan.assemble(without) == "AB C D <b>E</b> F <i>12.</i>"


def test_ignored_elements_stay_as_they_are(real: Desk) -> None:
    (found,) = real('the cat <x id="1">a dog</x> sat', kind="xml", ignored_tags=["x"])
    assert '<x id="1">a dog</x>' in found.text


def test_a_failure_of_one_call_ends_the_others(real: Desk) -> None:
    class Failing(Shouting):
        async def generate(self, *asked: Any, **options: Any) -> list[Result]:
            self.calls.append((asked[1], options))
            if len(self.calls) == 1:
                await asyncio.sleep(0)
                raise ApiError("busy", waiting=1)
            await asyncio.Event().wait()
            return []

    async def left_behind() -> int:
        with pytest.raises(ApiError, match="busy"):
            await translate(Failing(real.office), real.model, ["\n".join(["a"] * 120)])
        await asyncio.sleep(0)
        return len(asyncio.all_tasks())

    assert asyncio.run(left_behind()) == 1


@given(WRITTEN)
def test_lines_stay_lines_whatever_they_hold(real: Desk, text: str) -> None:
    desk = Desk(Shouting(real.office))
    (found,) = desk(text)
    before, after = LINE_BREAKS.split(text), LINE_BREAKS.split(found.text)
    assert LINE_BREAKS.findall(found.text) == LINE_BREAKS.findall(text)
    for here, there in zip(before, after, strict=True):
        assert here.strip() != "" or there == here
        assert there[: len(there) - len(there.lstrip())] == here[: len(here) - len(here.lstrip())]
        assert there[len(there.rstrip()) :] == here[len(here.rstrip()) :]
        assert "".join(there.split()) == "".join(here.upper().split())  # in order, nothing lost


@given(st.sampled_from(["html", "xml"]), WRITTEN)
def test_tags_survive_whatever_they_stand_in(real: Desk, kind: TextFormat, text: str) -> None:
    (found,) = real(text, kind=kind)
    for tag in ("<b>", "</b>", "<p>", "{x}"):
        assert found.text.count(tag) == text.count(tag)


@given(st.lists(st.sampled_from(["one", "two. three", "", "4", "five\nsix"]), max_size=8))
def test_order_out_is_order_in(real: Desk, texts: list[str]) -> None:
    assert [each.text for each in Desk(Shouting(real.office))(*texts)] == [text.upper() for text in texts]


def test_an_answer_of_several_lines_is_one() -> None:
    class Breaking(Shouting):
        async def generate(self, *asked: Any, **options: Any) -> list[Result]:
            return [Result((_said("A\nB\r\nC\u2028D"),))] * len(asked[1])

    assert LINE_BREAKS.findall(Desk(Breaking(_office()))("x\ny")[0].text) == ["\n"]
