"""Detection of a text's language among the served languages."""

import sys
from types import SimpleNamespace

import pytest
from error_codes import has_code

from attendo.errors import UsageError
from attendo.serve.language_detection import detect_language, load_detector


@pytest.fixture
def without_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "py3langid", None)


@pytest.mark.usefixtures("without_package")
@pytest.mark.parametrize(
    ("text", "languages", "language"),
    [
        ("Where is the library?", ["zh", "en"], "en"),
        ("图书馆在哪里？", ["en", "zh"], "zh"),
        ("我用 attention 和 NLP", ["en", "zh-Hans"], "zh-Hans"),
        ("I met 王 in Beijing", ["zh", "en"], "en"),
        ("ｗｉｄｅ", ["zh", "en"], "en"),
        ("図書館はどこですか", ["zh", "ja", "en"], "ja"),
        ("图书馆", ["ja", "zh"], "zh"),
        ("図書館", ["en", "ja"], "ja"),  # the only one of the two with Chinese characters
        ("我看了《となりのトトロ》，这部电影讲的是两个小姑娘和她们的父亲搬到乡下以后在森林里遇见神奇动物的故事，我和我的家人都非常喜欢它，"
         "推荐你们大家也找个周末的晚上一起去看看吧", ["ja", "zh"], "zh"),
        ("도서관이 어디예요?", ["ja", "ko"], "ko"),
        ("Где библиотека?", ["en", "ru", "zh"], "ru"),
        ("أين المكتبة؟", ["en", "ar"], "ar"),
        ("पुस्तकालय कहाँ है?", ["en", "hi"], "hi"),
        ("Gde je biblioteka?", ["ru", "sr"], "sr"),
        ("Gde je biblioteka?", ["sr_Latn", "sr_Cyrl", "ru"], "sr_Latn"),
        ("ห้องสมุดอยู่ที่ไหน", ["en", "th"], "th"),
    ],
)  # fmt: skip
def test_the_script_identifies_the_language(text: str, languages: list[str], language: str) -> None:
    found = detect_language(text, languages)
    assert found[0][0] == language
    assert found[0][1] > 0.5
    assert sorted(each for each, _ in found) == sorted(languages)
    assert sum(confidence for _, confidence in found) <= 1.0 + 1e-9
    assert [confidence for _, confidence in found] == sorted((each for _, each in found), reverse=True)


def test_confidence_is_the_share_of_the_text() -> None:
    assert detect_language("猫猫猫 cat", ["en", "zh"]) == [("zh", 0.75), ("en", 0.25)]
    assert detect_language("cafe\u0301s 猫", ["en", "zh"]) == [("en", 0.5), ("zh", 0.5)]


@pytest.mark.usefixtures("without_package")
@pytest.mark.parametrize("text", ["", "  \n", "123 + 4.5", "👍", "привет", "\u0301"])
def test_text_without_evidence_has_zero_confidence(text: str) -> None:
    assert detect_language(text, ["zh", "en", "de"]) == [("zh", 0.0), ("en", 0.0), ("de", 0.0)]


def test_the_first_variant_of_a_language_is_returned() -> None:
    assert detect_language("图书馆", ["en", "zh-Hant", "zh-Hans"]) == [("zh-Hant", 1.0), ("en", 0.0), ("zh-Hans", 0.0)]


@pytest.mark.usefixtures("without_package")
def test_languages_of_one_script_need_the_package() -> None:
    with pytest.raises(UsageError, check=has_code("languages_share_script", languages="en, de")):
        detect_language("Where is it?", ["en", "de", "zh"])
    assert detect_language("在哪里？", ["en", "de", "zh"])[0] == ("zh", 1.0)


def test_no_language_is_an_error() -> None:
    with pytest.raises(UsageError, check=has_code("no_language_served")):
        detect_language("Where?", [])


def test_the_package_ranks_only_served_languages(monkeypatch: pytest.MonkeyPatch) -> None:
    scores = {"fr": -1.0, "de": -20.0, "en": -30.0, "no": -90.0, "zh": -500.0}
    monkeypatch.setitem(sys.modules, "py3langid", SimpleNamespace(rank=lambda text: list(scores.items())))
    found = detect_language("Wo ist die Bibliothek?", ["en", "zh", "de", "nb", "tlh"])
    assert [language for language, _ in found] == ["de", "en", "nb", "zh", "tlh"]
    assert 0.8 < found[0][1] < 0.95  # not certain
    assert sum(confidence for _, confidence in found) == pytest.approx(1.0)
    assert detect_language("Wo?", ["tlh", "sjn"]) == [("tlh", 0.5), ("sjn", 0.5)]


@pytest.mark.parametrize(
    ("languages", "needed"),
    [
        (["en", "de"], True),
        (["zh", "en", "ru", "uk"], True),
        (["ja", "ko"], True),  # Chinese characters alone could be either
        (["en", "zh"], False),
        (["zh-Hans", "zh-Hant", "en"], False),
        (["ja", "zh", "en"], False),
        ([], False),
    ],
)
def test_the_package_is_preloaded_only_if_needed(
    monkeypatch: pytest.MonkeyPatch, languages: list[str], needed: bool
) -> None:
    ranked: list[str] = []
    package = SimpleNamespace(rank=lambda text: ranked.append(text) or [("en", -1.0)])
    monkeypatch.setitem(sys.modules, "py3langid", package)
    load_detector(languages)
    assert bool(ranked) == needed


@pytest.mark.usefixtures("without_package")
def test_preloading_without_the_package_raises_nothing() -> None:
    load_detector(["en", "de"])


def test_the_real_package_separates_german_and_english() -> None:
    pytest.importorskip("py3langid")
    english, german = "Where is the library, please?", "Wo ist bitte die Bibliothek?"
    assert [detect_language(text, ["en", "de", "zh"])[0][0] for text in (english, german, "在哪里")] == [
        "en",
        "de",
        "zh",
    ]
    assert detect_language(german, ["en", "de"]) == detect_language(german, ["en", "de"])
