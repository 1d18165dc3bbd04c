"""Translation of texts with lines and tags by a model of single sentences."""

import asyncio
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from four_models import make_specs
from hypothesis import given
from hypothesis import strategies as st
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
TEXTS = st.lists(st.sampled_from(PARTS), max_size=30).map("".join)


class UppercaseGateway(ModelGateway):
    """Returns the texts in capitals and records its calls."""

    def __init__(self, gateway: ModelGateway) -> None:
        super().__init__(gateway.registry, gateway.settings, gateway.metrics)
        self.calls: list[tuple[Sequence[str], dict[str, Any]]] = []

    async def generate(
        self, served: ServedModel, texts: Sequence[str], *, deadline: float | None = None, **options: Any
    ) -> list[Result]:
        self.check_texts(texts)
        self.check_options(**options)
        self.calls.append((texts, options))
        variants = [
            str.upper,
            *(lambda text, n=n: f"{text.upper()}{n // 2}" for n in range(options.get("n_best", 1) - 1)),
        ]
        return [
            Result(tuple(_make_hypothesis(variant(text)) for variant in variants), source_tokens=len(text.split()))
            for text in texts
        ]


def _make_hypothesis(text: str) -> Hypothesis:
    return Hypothesis(text, (7,) * len(text.split()), tuple(text.split()), HypothesisScore(-1.0), cut="CUT" in text)


@dataclass
class Translator:
    """Translates with a real model or with an `UppercaseGateway`."""

    gateway: ModelGateway = field(default_factory=lambda: _make_gateway())

    @property
    def model(self) -> ServedModel:
        return self.gateway.get_model("forth")

    def __call__(self, *texts: str, kind: TextFormat = "text", **more: Any) -> list[TextTranslation]:
        options = SegmentationOptions(
            kind, **{name: more.pop(name) for name in SegmentationOptions._fields if name in more}
        )
        return asyncio.run(translate(self.gateway, self.model, texts, options, **more))


def _make_gateway(**changes: Any) -> ModelGateway:
    settings = ServeSettings(**changes)
    return ModelGateway(ModelRegistry(make_specs("forth"), settings), settings, ServerMetrics())


@pytest.fixture(scope="module")
def real() -> Translator:
    return Translator()


@pytest.fixture
def uppercase(real: Translator) -> Translator:
    return Translator(UppercaseGateway(real.gateway))


def recorded_texts(translator: Translator) -> list[Sequence[str]]:
    assert isinstance(translator.gateway, UppercaseGateway)
    return [texts for texts, _ in translator.gateway.calls]


def test_lines_and_whitespace_are_kept(uppercase: Translator) -> None:
    text = "  hello world\t\r\n\n \nmore \n"
    assert uppercase(text)[0].text == "  HELLO WORLD\t\r\n\n \nMORE \n"
    assert recorded_texts(uppercase) == [["hello world", "more"]]


def test_all_sentences_are_sent_in_one_call(uppercase: Translator) -> None:
    found = uppercase("one. two!", "three\nfour", "", "5")
    assert [each.text for each in found] == ["ONE. TWO!", "THREE\nFOUR", "", "5"]
    assert recorded_texts(uppercase) == [["one.", "two!", "three", "four"]]


def test_texts_without_letters_skip_the_model(uppercase: Translator) -> None:
    for text in ("", " \n ", "123 + 4", "👍", "----\n"):
        assert uppercase(text) == [TextTranslation(text, (), 0, 0, False)]
    assert uppercase("<p>12</p><br>", kind="html")[0].text == "<p>12</p><br>"
    assert recorded_texts(uppercase) == []


def test_a_sentence_without_letters_is_kept_in_its_line(uppercase: Translator) -> None:
    assert uppercase("Call 110. 911! now")[0].text == "CALL 110. 911! NOW"
    assert recorded_texts(uppercase) == [["Call 110.", "now"]]


def test_split_never_sends_each_text_as_one(uppercase: Translator) -> None:
    assert uppercase(" one. two!\n\nthree\n", split="never")[0].text == " ONE. TWO! THREE\n"
    assert uppercase("一。\n二", split="never")[0].text == "一。\n二"  # the text is returned unchanged
    assert uppercase("1.\n2", split="never")[0].text == "1.\n2"
    assert recorded_texts(uppercase) == [["one. two! three"], ["一。二"]]


def test_split_signs_joins_sentences_over_lines(uppercase: Translator) -> None:
    text = "the cat\n sat. a dog\r\n\r\nran!\nMr.\nX came.\n\n7\n"
    assert uppercase(text, split="signs")[0].text == "THE CAT SAT. A DOG RAN!\nMR. X CAME.\n\n7\n"
    assert recorded_texts(uppercase) == [["the cat sat.", "a dog ran!", "Mr. X came."]]
    assert uppercase("猫\n坐着。\n狗", split="signs")[0].text == "猫\n坐着。\n狗"
    assert recorded_texts(uppercase)[1:] == [["猫坐着。", "狗"]]


@given(TEXTS, st.sampled_from(["signs", "never"]))
def test_joining_lines_loses_no_text(real: Translator, text: str, split: str) -> None:
    (found,) = Translator(UppercaseGateway(real.gateway))(text, split=split)
    assert "".join(found.text.split()) == "".join(text.upper().split())


def test_tokens_and_truncation_cover_all_sentences(uppercase: Translator) -> None:
    (found,) = uppercase("one two. three cut four.")
    assert (found.source_tokens, found.target_tokens, found.cut) == (5, 5, True)
    assert not uppercase("one")[0].cut


def test_many_sentences_use_the_fewest_calls(uppercase: Translator) -> None:
    text = "\n".join(f"word{number}" for number in range(120))
    assert uppercase(text)[0].text == text.upper()
    assert sorted(map(len, recorded_texts(uppercase))) == [20, 50, 50]


def test_too_many_sentences_are_rejected(uppercase: Translator) -> None:
    with pytest.raises(ApiError, match="too_many_sentences"):
        uppercase("a\n" * (MAX_SENTENCES + 1))
    assert recorded_texts(uppercase) == []


def test_limits_apply_to_the_original_texts(uppercase: Translator) -> None:
    with pytest.raises(ApiError, match="too_many_texts"):
        uppercase(*["a"] * 51)
    with pytest.raises(ApiError, match="text_too_long"):
        uppercase("a" * 5_001)


def test_alternatives_differ_from_the_translation(uppercase: Translator) -> None:
    (found,) = uppercase("one. two!", alternatives=2)
    assert found.text == "ONE. TWO!"
    assert found.alternatives == ("ONE.0 TWO!0", "ONE.1 TWO!1")  # the gateway returns each twice
    assert uppercase("12", alternatives=2)[0].alternatives == ()


def test_equal_alternatives_are_merged(real: Translator) -> None:
    class Repeating(UppercaseGateway):
        async def generate(self, *arguments: Any, **options: Any) -> list[Result]:
            return [Result(tuple(map(_make_hypothesis, ("A B", "A\nB", " ", "C", " C ", "C\n", "D"))))] * len(
                arguments[1]
            )

    (found,) = Translator(Repeating(real.gateway))("x", alternatives=5)
    assert (found.text, found.alternatives) == ("A B", ("C", "D"))


def test_alternatives_keep_the_tags(real: Translator) -> None:
    (found,) = real("I <b>love</b> NLP", kind="html", alternatives=5)
    assert len(found.alternatives) >= 2
    assert len({found.text, *found.alternatives}) == 1 + len(found.alternatives)
    assert all(each.count("<b>") == each.count("</b>") == 1 for each in (found.text, *found.alternatives))


@pytest.mark.parametrize("beam", [1, 5])
def test_alternatives_do_not_change_the_translation(real: Translator, beam: int) -> None:
    plain, found = real(*SOURCES, beam=beam), real(*SOURCES, alternatives=2, beam=beam)
    assert [replace(each, alternatives=()) for each in found] == plain
    assert all(each.alternatives for each in found)


def test_a_wide_beam_is_searched_once(uppercase: Translator) -> None:
    uppercase("one", alternatives=2, beam=5)
    uppercase("one", alternatives=2)
    assert isinstance(uppercase.gateway, UppercaseGateway)
    unsplit = {"split": False}  # the texts are already split
    assert [options for _, options in uppercase.gateway.calls] == [
        {"beam": 5, "n_best": 5} | unsplit, unsplit, {"beam": 5, "n_best": 5} | unsplit,
    ]  # fmt: skip


def test_models_trained_on_texts_get_complete_lines(real: Translator) -> None:
    texts = {"counted": 100, "with_end": 1.0, "several_sentences": 0.6}
    model = TextModel(replace(real.model.model.stored_model, about={"trained_on": texts}))
    fits = make_fit_check(model)
    assert fits is not None
    assert SegmentedText("One. Two.\nThree.", SegmentationOptions(), fits).sentences == ["One. Two.", "Three."]
    assert SegmentedText("One. Two.\nThree.", SegmentationOptions(), lambda text: False).sentences == [
        "One.",
        "Two.",
        "Three.",
    ]
    assert make_fit_check(real.model.model) is None


def test_beam_groups_return_alternatives(real: Translator) -> None:
    (found,) = real("I love NLP", alternatives=3, beam_groups=3, beam=3, diversity_penalty=0.5)
    assert found.alternatives


def test_translations_equal_the_model(real: Translator) -> None:
    expected = [each.text.strip() for each in real.model.model.generate(["the cat sat", "a dog ran home"])]
    assert [each.text for each in real("the cat sat", "a dog ran home")] == expected
    assert real("the cat sat\n\n a dog ran home")[0].text == f"{expected[0]}\n\n {expected[1]}"
    assert (
        real("<p>the cat sat</p><p>a dog ran home</p>", kind="html")[0].text
        == f"<p>{expected[0]}</p><p>{expected[1]}</p>"
    )


def test_tags_follow_their_words(real: Translator) -> None:
    """As in the alignment that `generate` returns."""
    model = real.model.model
    texts, expected = list[str](), list[str]()
    for source, result in zip(SOURCES, model.generate(SOURCES, alignments=True), strict=True):
        links = link_characters(result.best, source, model.source_tokenizer, model.target_tokenizer)
        assert links
        for word in source.split():
            texts.append(source.replace(word, f"<b>{word}</b>", 1))
            expected.append(Markup(texts[-1], "html").insert_translations([result.text], [links]))
    assert [each.text for each in real(*texts, kind="html")] == expected


def test_links_of_later_sentences_are_offset() -> None:
    plan = SegmentedText("One two. <b>Three</b> four. <i>12.</i>", "html")
    assert plan.sentences == ["One two.", "Three four."]
    hypotheses = [
        SentenceHypothesis("  AB C ", 3, 2, False, [(0, 2), (4, 5), (9, 99)]),
        SentenceHypothesis("D\nE F", 2, 3, False, [(6, 0), (0, 4)]),
    ]
    assert plan.assemble(hypotheses) == "AB C D E <b>F</b> <i>12.</i>"
    without = [replace(each, links=None) for each in hypotheses]
    assert plan.assemble(without) == "AB C D <b>E</b> F <i>12.</i>"


def test_ignored_elements_are_kept(real: Translator) -> None:
    (found,) = real('the cat <x id="1">a dog</x> sat', kind="xml", ignored_tags=["x"])
    assert '<x id="1">a dog</x>' in found.text


def test_a_failed_call_cancels_the_others(real: Translator) -> None:
    class Failing(UppercaseGateway):
        async def generate(self, *arguments: Any, **options: Any) -> list[Result]:
            self.calls.append((arguments[1], options))
            if len(self.calls) == 1:
                await asyncio.sleep(0)
                raise ApiError("busy", waiting=1)
            await asyncio.Event().wait()
            return []

    async def count_tasks() -> int:
        with pytest.raises(ApiError, match="busy"):
            await translate(Failing(real.gateway), real.model, ["\n".join(["a"] * 120)])
        await asyncio.sleep(0)
        return len(asyncio.all_tasks())

    assert asyncio.run(count_tasks()) == 1


@given(TEXTS)
def test_line_breaks_and_indentation_are_kept(real: Translator, text: str) -> None:
    translator = Translator(UppercaseGateway(real.gateway))
    (found,) = translator(text)
    before, after = LINE_BREAKS.split(text), LINE_BREAKS.split(found.text)
    assert LINE_BREAKS.findall(found.text) == LINE_BREAKS.findall(text)
    for old, new in zip(before, after, strict=True):
        assert old.strip() != "" or new == old
        assert new[: len(new) - len(new.lstrip())] == old[: len(old) - len(old.lstrip())]
        assert new[len(new.rstrip()) :] == old[len(old.rstrip()) :]
        assert "".join(new.split()) == "".join(old.upper().split())  # in order, without loss


@given(st.sampled_from(["html", "xml"]), TEXTS)
def test_tags_are_kept_in_any_text(real: Translator, kind: TextFormat, text: str) -> None:
    (found,) = real(text, kind=kind)
    for tag in ("<b>", "</b>", "<p>", "{x}"):
        assert found.text.count(tag) == text.count(tag)


@given(st.lists(st.sampled_from(["one", "two. three", "", "4", "five\nsix"]), max_size=8))
def test_results_keep_the_order_of_the_texts(real: Translator, texts: list[str]) -> None:
    assert [each.text for each in Translator(UppercaseGateway(real.gateway))(*texts)] == [
        text.upper() for text in texts
    ]


def test_line_breaks_in_an_answer_are_removed() -> None:
    class Breaking(UppercaseGateway):
        async def generate(self, *arguments: Any, **options: Any) -> list[Result]:
            return [Result((_make_hypothesis("A\nB\r\nC\u2028D"),))] * len(arguments[1])

    assert LINE_BREAKS.findall(Translator(Breaking(_make_gateway()))("x\ny")[0].text) == ["\n"]
