"""Language tags as clients write them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attendo.text.languages import ISO_639_1, language_code, language_name, language_script, match_language


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
def test_a_tag_maps_to_its_language_code(tag: str, code: str) -> None:
    assert language_code(tag) == code


@pytest.mark.parametrize(
    "tag", ["", "auto", "zz", "e", "english", "en-", "-en", "en--US", "ＥＮ", "en\n-us", "x" * 99_999]
)
def test_an_invalid_tag_maps_to_none(tag: str) -> None:
    assert language_code(tag) is None
    assert match_language(tag, ["en", "zh"]) is None


def test_simplified_and_traditional_chinese_replace_each_other() -> None:
    assert [match_language(tag, ["zh", "en"]) for tag in ("zh", "zt", "zh-Hans", "ZH-HANT")] == ["zh"] * 4
    assert [match_language(tag, ["zh", "zt"]) for tag in ("zh", "zt", "zh-Hans", "ZH-HANT")] == ["zh", "zt", "zh", "zt"]
    assert match_language("nb-NO", ["no"]) == "no"
    assert match_language("de", ["zh", "en"]) is None


def test_languages_have_names() -> None:
    assert [language_name(each) for each in ("en", "zh", "zt", "nb")] == [
        "English", "Chinese", "Chinese (traditional)", "Norwegian Bokmål",
    ]  # fmt: skip
    assert language_name("tlh") == "tlh"


def test_languages_have_scripts() -> None:
    scripts = {"en": "latin", "zh": "han", "zt": "han", "ja": "kana", "ru": "cyrillic", "he": "hebrew", "iw": "hebrew"}
    assert {code: language_script(code) for code in scripts} == scripts
    assert language_script("tlh") == "latin"


def test_every_iso_code_has_a_code_and_a_name() -> None:
    assert {each for each in ISO_639_1 if language_code(each) != each} == set()
    assert all(language_name(each) != each for each in ISO_639_1)


@given(st.text())
def test_a_code_maps_to_itself(tag: str) -> None:
    code = language_code(tag)
    assert code is None or language_code(code) == code == language_code(tag.upper().lower())
