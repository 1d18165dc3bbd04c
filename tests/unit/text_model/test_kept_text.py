"""Text that a translation keeps: what is found, removed and inserted."""

from collections import Counter
from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
from error_codes import has_code
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny import parallel_model, without_source
from varied_models import WORDS, bytes_model, characters_model, pieces_model, varied_model

from attendo.errors import UsageError
from attendo.text_model import TextModel
from attendo.text_model.kept_text import KEEP, KeptTextFinder, insert_kept, remove_kept

ALL = tuple(KEEP)
KINDS = [varied_model, pieces_model, bytes_model, characters_model]


def find(text: str, keep: tuple[str, ...] = ALL, terms: tuple[str, ...] = ()) -> list[tuple[str, str]]:
    return [(each.kind, each.text) for each in KeptTextFinder(keep, terms).find(text)]


@pytest.mark.parametrize(
    "placeholder",
    ["{name}", "{0}", "{}", "{{ user.name }}", "${name}", "%s", "%(name)d", "%1$s", "%.2f", "{price:.2f}", "{name!r}"],
)
def test_placeholders_are_found(placeholder: str) -> None:
    assert find(f"Hello {placeholder}, welcome") == [("placeholder", placeholder)]
    assert find(f"你好{placeholder}，欢迎") == [("placeholder", placeholder)]


def test_a_percentage_is_not_a_placeholder() -> None:
    assert find("100% safe and 5 % sure", ("placeholders",)) == []


@pytest.mark.parametrize("url", ["https://a.b/c?d=3&e={x}#f", "http://x.org/", "www.example.com", "ftp://a.b/%20c"])
def test_addresses_end_before_punctuation_and_chinese_text(url: str) -> None:
    for text in (f"see {url}.", f"({url})", f"看{url}。", f"看{url}吧", f"{url}, ok"):
        assert find(text) == [("url", url)]
    assert find("mail a.b+c@example.co.uk.") == [("email", "a.b+c@example.co.uk")]


def test_numbers_are_found_outside_words() -> None:
    assert [text for _, text in find("3 cats, 1,000.5 or 2024-05-01 at 12:30, B2B, 有5只")] == [
        *("3", "1,000.5", "2024-05-01", "12:30", "5")
    ]
    assert find("3 cats", ("urls",)) == []


def test_terms_are_found_as_words_and_the_longest_match_wins() -> None:
    assert find("GPT-4 in 4 GPT-4o", terms=("GPT-4",)) == [("do_not_translate", "GPT-4"), ("number", "4")]
    assert find("attendo and Attendo", terms=("attendo",)) == [
        ("do_not_translate", "attendo"),
        ("do_not_translate", "Attendo"),
    ]


@pytest.mark.parametrize(
    ("source", "translation", "expected"),
    [
        ("I see {x}.", "Ich sehe.", "Ich sehe {x}."),
        ("{x}, I see", "Ich sehe", "{x} Ich sehe"),
        ("I see {x} now", "我 看见 了", "我 看见 {x} 了"),
        ("I see {x} now", "我看见了", "我看见{x}了"),
        ("see https://a.b now", "我看见了", "我看 https://a.b 见了"),
        ("see (%s)", "siehe ()", "siehe (%s)"),
        ("{a}{b} cats", "Katzen", "{a}{b} Katzen"),
        ("{a} {b}", "", "{a} {b}"),
        ("I saw 3 cats", "Ich sah Katzen", "Ich sah 3 Katzen"),
    ],
)
def test_removed_text_is_inserted_in_proportion(source: str, translation: str, expected: str) -> None:
    kept = KeptTextFinder(ALL).find(source)
    assert insert_kept(source, kept, translation, None) == expected


def test_removed_text_follows_its_words() -> None:
    source = "cat {x} dog"
    kept = KeptTextFinder(ALL).find(source)
    assert remove_kept(source, kept).text == "cat dog"
    swapped = [(0, 5), (1, 6), (2, 7), (4, 0), (5, 1), (6, 2)]
    assert insert_kept(source, kept, "Hund Katze", swapped) == "{x} Hund Katze"
    assert insert_kept(source, kept, "Hund Katze", swapped, whole=[(0, 0)]) == "{x} Hund Katze"
    straight = [(0, 0), (4, 8)]
    assert insert_kept(source, kept, "ein Ka Hund", straight, whole=[(4, 11)]) == "ein Ka Hund {x}"


PARTS = [*WORDS, "{name}", "%s", "%(n)d", "{{ x }}", "https://a.b/c?d=1", "www.x.org", "me@x.org", "12", "3.5", "NLP"]


def count(finder: KeptTextFinder, text: str) -> Counter[str]:
    return Counter(each.text for each in finder.find(text))


@pytest.mark.parametrize("make", KINDS)
def test_every_kept_text_occurs_as_often_as_in_the_source(make: Callable[[], TextModel]) -> None:
    model = make()

    @settings(max_examples=12, deadline=None, derandomize=True)
    @given(
        st.lists(st.lists(st.sampled_from(PARTS), min_size=1, max_size=7), min_size=1, max_size=8),
        st.sampled_from([" ", " , ", ""]),
        st.sampled_from([{}, {"beam": 2, "n_best": 2}, {"sample": True}]),
    )
    def check(sentences: list[list[str]], joint: str, options: dict[str, Any]) -> None:
        texts = [joint.join(parts) for parts in sentences]
        results = model.generate(texts, keep=ALL, do_not_translate=["NLP", "cat"], max_length=12, **options)
        finder = KeptTextFinder(ALL, ["NLP", "cat"])
        for text, result in zip(texts, results, strict=True):
            kept = finder.find(text)
            for each in result.hypotheses:
                found = count(finder, each.text)
                assert {one: found[one] for one in count(finder, text)} == dict(count(finder, text)), (text, each.text)
            assert [(report.source, report.met) for report in result.terms] == [(each.text, True) for each in kept]
            for report in result.terms:
                assert report.target_span is not None
                assert result.text[slice(*report.target_span)] == report.source == text[slice(*report.source_span)]

    check()


def test_text_without_kept_parts_has_the_same_output() -> None:
    model = varied_model()
    texts = ["the cat sat", "a dog ran home", ""]
    for options in ({}, {"beam": 3, "n_best": 2}, {"sample": True}):
        assert model.generate(texts, keep=ALL, do_not_translate=["NLP"], **options) == model.generate(texts, **options)


def test_a_text_of_kept_parts_only_is_not_read_by_the_network() -> None:
    (result,) = varied_model().generate([" {x} — %s "], keep=ALL, alignments=True)
    assert (result.text.strip(), result.ids, result.unknown) == ("{x} — %s", (), ())


def test_models_of_every_kind_keep_text() -> None:
    for kind, text in product(("masked", "ctc", "graph"), ("the cat {x} sat", "NLP %s %s")):
        (result,) = parallel_model(kind).generate([text], keep=["placeholders"], do_not_translate=["NLP"])
        assert all(each.met for each in result.terms)
        assert result.terms


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"keep": "urls"}, "keep_not_list"),
        ({"keep": ["url"]}, "keep_unknown"),
        ({"do_not_translate": "NLP"}, "phrases_not_list"),
        ({"do_not_translate": [" "]}, "phrase_blank_or_invalid"),
    ],
)
def test_wrong_values_are_errors(options: dict[str, Any], code: str) -> None:
    with pytest.raises(UsageError, check=has_code(code)):
        varied_model().generate(["the cat"], **options)


def test_a_language_model_has_no_source_to_keep_text_of() -> None:
    for options in ({"keep": ["urls"]}, {"do_not_translate": ["NLP"]}):
        with pytest.raises(UsageError, check=has_code("source_option_without_encoder")):
            without_source().generate(["the cat"], **options)
