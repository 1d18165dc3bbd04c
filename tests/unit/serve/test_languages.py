"""Languages by the many names that clients have for them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attendo.serve.languages import language_code, language_name, language_name_zh, match_language
from attendo.text.model_card import LANGUAGES


@pytest.mark.parametrize(
    ("tag", "code"),
    [
        ("en", "en"),
        ("EN-US", "en"),
        ("en_GB", "en"),
        ("en_XX", "en"),
        ("eng_Latn", "en"),
        (" de ", "de"),
        ("pt-BR", "pt"),
        ("PT-br", "pt"),
        ("pb", "pt"),
        ("zh", "zh"),
        ("ZH", "zh"),
        ("zh-Hans", "zh"),
        ("ZH-HANS", "zh"),
        ("zh_CN", "zh"),
        ("zho_Hans", "zh"),
        ("zh-Hans-TW", "zh"),
        ("zt", "zt"),
        ("ZT", "zt"),
        ("zh-Hant", "zt"),
        ("zh-hant-HK", "zt"),
        ("zh_TW", "zt"),
        ("zho_Hant", "zt"),
        ("iw", "he"),
        ("ger", "de"),
        ("yue", "yue"),
    ],
)
def test_a_tag_means_a_language(tag: str, code: str) -> None:
    assert language_code(tag) == code


@pytest.mark.parametrize(
    "tag", ["", "auto", "zz", "e", "english", "en-", "-en", "en--US", "ＥＮ", "en\n-us", "x" * 99_999]
)
def test_what_is_no_tag_means_none(tag: str) -> None:
    assert language_code(tag) is None
    assert match_language(tag, ["en", "zh"]) is None


def test_the_two_chinese_stand_for_each_other_where_one_is_missing() -> None:
    assert [match_language(tag, ["zh", "en"]) for tag in ("zh", "zt", "zh-Hans", "ZH-HANT")] == ["zh"] * 4
    assert [match_language(tag, ["zh", "zt"]) for tag in ("zh", "zt", "zh-Hans", "ZH-HANT")] == ["zh", "zt", "zh", "zt"]
    assert match_language("nb-NO", ["no"]) == "no"
    assert match_language("de", ["zh", "en"]) is None


def test_languages_have_names() -> None:
    assert [language_name(each) for each in ("en", "zh", "zt", "nb")] == [
        "English", "Chinese", "Chinese (traditional)", "Norwegian Bokmål",
    ]  # fmt: skip
    assert [language_name_zh(each) for each in ("en", "zh", "zt")] == ["英语", "中文", "繁体中文"]
    assert language_name("tlh") == language_name_zh("tlh") == "tlh"


def test_whatever_a_model_may_say_of_itself_is_known() -> None:
    assert {each for each in LANGUAGES if language_code(each) != each} == set()
    assert all(language_name(each) != each and language_name_zh(each) != each for each in LANGUAGES)


@given(st.text())
def test_a_code_means_itself(tag: str) -> None:
    code = language_code(tag)
    assert code is None or language_code(code) == code == language_code(tag.upper().lower())
