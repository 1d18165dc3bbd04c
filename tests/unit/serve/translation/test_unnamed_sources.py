"""Texts whose language nobody names: what needs no translation stays, and what no model can read is refused."""

import asyncio
import sys
from typing import Any

import pytest
from error_codes import fragment, message
from polyglot import CHINESE, ENGLISH, asking, models, said
from small_server import Asking
from tiny import PATIENCE

from attendo.serve.http.errors import ApiError
from attendo.serve.scheduling.gateway import ModelGateway
from attendo.serve.scheduling.registry import ModelSpec
from attendo.serve.translation import translator
from attendo.serve.translation.segmenter import TextFormat
from attendo.serve.translation.translator import detect_source_language
from attendo.text.model_card import ModelCard

RUSSIAN, GERMAN = "Кошка сидит на ковре", "Die Katze sitzt heute nicht auf dem Teppich, sondern schläft im Garten."


def office(*pairs: str) -> ModelGateway:
    """Of a server with a model for each pair, such as en-zh."""
    languages = [pair.split("-") for pair in pairs]
    return Asking(
        *(
            ModelSpec(
                "-".join(each), models()["forth"], about=ModelCard(source_language=each[0], target_language=each[1])
            )
            for each in languages
        )
    ).app.gateway


def found(text: str, target: str, *pairs: str, kind: TextFormat = "text") -> tuple[str, float]:
    language, confidence = detect_source_language(office(*pairs), text, target, kind)
    return language, round(confidence, 2)


def refusal(text: str, target: str, *pairs: str) -> str:
    with pytest.raises(ApiError) as refused:
        detect_source_language(office(*pairs), text, target)
    return refused.value.english


def test_a_text_in_the_target_language_is_told_as_such() -> None:
    assert found(CHINESE, "zh", "en-zh") == ("zh", 1.0)
    assert found(f"<p class='a b c d'>{CHINESE}</p>", "zh", "en-zh", kind="html") == ("zh", 1.0)


def test_a_mixed_text_is_taken_for_what_can_be_translated() -> None:
    assert found("cat 猫", "zh", "en-zh") == ("en", 0.5)
    assert found("cat 猫 狗", "zh", "en-zh") == ("en", 0.33)
    assert found("猫咪先生您好吗 cat", "zh", "en-zh") == ("zh", 0.88)
    assert found("123 😀", "zh", "en-zh") == ("en", 0.0)


def test_what_no_model_reads_is_refused() -> None:
    assert refusal(RUSSIAN, "zh", "en-zh").startswith(fragment("no_language", languages="en, zh"))
    assert refusal(ENGLISH, "de", "en-zh") == message("unknown_language", language="de")
    assert refusal(RUSSIAN, "zh", "en-zh", "ru-en") == message("no_such_pair", source="ru", target="zh")
    assert refusal(f"{RUSSIAN} {RUSSIAN} {CHINESE}", "ja", "en-ja", "ru-en") == message(
        "no_such_pair", source="ru", target="ja"
    )


def test_languages_that_share_their_letters_are_told_apart() -> None:
    pytest.importorskip("py3langid")
    assert found(GERMAN, "de", "en-de")[0] == "de"
    assert found("ok", "de", "en-de")[0] == "en"  # too short to be sure
    assert refusal(GERMAN, "zh", "en-zh", "de-fr") == message("no_such_pair", source="de", target="zh")


def test_without_the_package_one_source_needs_no_telling_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "py3langid", None)
    assert found(GERMAN, "de", "en-de")[0] == "en"


@pytest.fixture(scope="module")
def server() -> Asking:
    return asking("forth")


def libre(server: Asking, **fields: Any) -> Any:
    return server.client.post("/translate", json={"source": "auto", "target": "zh", **fields})


def deepl(server: Asking, *texts: str, **fields: Any) -> Any:
    return server.client.post("/v2/translate", json={"text": texts, "target_lang": "ZH", **fields})


def test_libretranslate_gives_back_what_is_in_the_language_already(server: Asking) -> None:
    whole = {"confidence": 100.0, "language": "zh"}
    assert libre(server, q=CHINESE).json() == {"translatedText": CHINESE, "detectedLanguage": whole}
    assert libre(server, q=CHINESE, source="zh").status_code == 400  # as ever
    several = libre(server, q=[ENGLISH, CHINESE, "1"], alternatives=1).json()
    assert several["translatedText"] == [said("forth").strip(), CHINESE, "1"]
    assert [each["language"] for each in several["detectedLanguage"]] == ["en", "zh", "en"]
    assert several["alternatives"][1:] == [[], []]
    page = f"<div class='so is this'>{CHINESE}</div>"
    assert libre(server, q=page, format="html").json()["translatedText"] == page


def test_deepl_gives_back_what_is_in_the_language_already(server: Asking) -> None:
    english, chinese = deepl(server, ENGLISH, CHINESE, model_type="latency_optimized").json()["translations"]
    assert (english["text"].strip(), english["detected_source_language"]) == (said("forth").strip(), "EN")
    assert english["model_type_used"] == "forth"
    assert chinese == {
        "detected_source_language": "ZH", "text": CHINESE, "billed_characters": len(CHINESE),
    }  # fmt: skip
    upload = {"file": ("a.txt", CHINESE.encode())}
    sent = server.client.post("/v2/document", files=upload, data={"target_lang": "ZH"})
    assert (sent.status_code, sent.json()["detail"]) == (400, "no_such_pair")


def test_hugging_face_is_told_that_there_is_nothing_to_translate(server: Asking) -> None:
    asked = {"inputs": CHINESE, "parameters": {"tgt_lang": "zh"}}
    answered = server.client.post("/hf/translation", json=asked)
    assert (answered.status_code, answered.json()["error"]) == (400, message("no_such_pair", source="zh", target="zh"))


@pytest.mark.parametrize(("path", "asked"), [
    ("/translate", {"q": RUSSIAN, "source": "auto", "target": "zh"}),
    ("/v2/translate", {"text": RUSSIAN, "target_lang": "ZH"}),
    ("/hf/translation", {"inputs": RUSSIAN, "parameters": {"tgt_lang": "zh"}}),
])  # fmt: skip
def test_nothing_is_invented(server: Asking, path: str, asked: dict[str, Any]) -> None:
    answered = server.client.post(path, json=asked)
    assert answered.status_code == 400
    assert fragment("no_language") in answered.text


def test_texts_of_two_languages_go_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    """One deadline holds for both."""
    begun: list[str] = []
    both = asyncio.Event()

    async def slow(office: Any, served: Any, texts: Any, *rest: Any) -> list[translator.TextTranslation]:
        begun.append(served.name)
        if len(begun) == 2:
            both.set()
        await asyncio.wait_for(both.wait(), PATIENCE)
        return [translator.TextTranslation(text.upper(), (), 0, 0, cut=False) for text in texts]

    monkeypatch.setattr(translator, "translate", slow)
    server = office("en-de", "zh-de")
    done = translator.translate_detected(
        server, ["zh", "en", "zh"], "de", ["a", "b", "c"], translator.SegmentationOptions()
    )
    assert [each.text for each in asyncio.run(done)] == ["A", "B", "C"]
