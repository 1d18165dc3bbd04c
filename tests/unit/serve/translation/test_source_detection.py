"""Texts without a source language: those in the target language are returned, unsupported ones are rejected."""

import asyncio
import sys
from typing import Any

import pytest
from error_codes import fragment, message
from four_models import CHINESE, ENGLISH, generate_text, make_server, models
from small_server import SmallServer
from tiny import PATIENCE

from attendo.serve.http.errors import ApiError
from attendo.serve.language_detection import LanguagePrediction
from attendo.serve.scheduling.gateway import ModelGateway
from attendo.serve.scheduling.registry import ModelSpec
from attendo.serve.translation import translator
from attendo.serve.translation.segmenter import TextFormat
from attendo.serve.translation.translator import detect_source_language
from attendo.text.model_card import ModelCard

RUSSIAN, GERMAN = "Кошка сидит на ковре", "Die Katze sitzt heute nicht auf dem Teppich, sondern schläft im Garten."


def make_gateway(*pairs: str) -> ModelGateway:
    """A gateway with a model for each pair, such as en-zh."""
    languages = [pair.split("-") for pair in pairs]
    return SmallServer(
        *(
            ModelSpec(
                "-".join(each), models()["forth"], about=ModelCard(source_language=each[0], target_language=each[1])
            )
            for each in languages
        )
    ).app.gateway


def detect(text: str, target: str, *pairs: str, kind: TextFormat = "text") -> tuple[str, float]:
    language, confidence = detect_source_language(make_gateway(*pairs), text, target, kind)
    return language, round(confidence, 2)


def detection_error(text: str, target: str, *pairs: str) -> str:
    with pytest.raises(ApiError) as raised:
        detect_source_language(make_gateway(*pairs), text, target)
    return raised.value.english


def test_the_target_language_is_detected() -> None:
    assert detect(CHINESE, "zh", "en-zh") == ("zh", 1.0)
    assert detect(f"<p class='a b c d'>{CHINESE}</p>", "zh", "en-zh", kind="html") == ("zh", 1.0)


def test_mixed_text_prefers_a_translatable_language() -> None:
    assert detect("cat 猫", "zh", "en-zh") == ("en", 0.5)
    assert detect("cat 猫 狗", "zh", "en-zh") == ("en", 0.33)
    assert detect("猫咪先生您好吗 cat", "zh", "en-zh") == ("zh", 0.88)
    assert detect("123 😀", "zh", "en-zh") == ("en", 0.0)


def test_unsupported_languages_are_rejected() -> None:
    assert detection_error(RUSSIAN, "zh", "en-zh").startswith(fragment("no_language", languages="en, zh"))
    assert detection_error(ENGLISH, "de", "en-zh") == message("unknown_language", language="de")
    assert detection_error(RUSSIAN, "zh", "en-zh", "ru-en") == message("no_such_pair", source="ru", target="zh")
    assert detection_error(f"{RUSSIAN} {RUSSIAN} {CHINESE}", "ja", "en-ja", "ru-en") == message(
        "no_such_pair", source="ru", target="ja"
    )


def test_languages_of_one_script_are_separated() -> None:
    pytest.importorskip("py3langid")
    assert detect(GERMAN, "de", "en-de")[0] == "de"
    assert detect("ok", "de", "en-de")[0] == "en"  # too short to be sure
    assert detection_error(GERMAN, "zh", "en-zh", "de-fr") == message("no_such_pair", source="de", target="zh")


def test_one_source_language_needs_no_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "py3langid", None)
    assert detect(GERMAN, "de", "en-de")[0] == "en"


@pytest.fixture(scope="module")
def server() -> SmallServer:
    return make_server("forth")


def libre(server: SmallServer, **fields: Any) -> Any:
    return server.client.post("/translate", json={"source": "auto", "target": "zh", **fields})


def deepl(server: SmallServer, *texts: str, **fields: Any) -> Any:
    return server.client.post("/v2/translate", json={"text": texts, "target_lang": "ZH", **fields})


def test_libretranslate_returns_target_language_texts(server: SmallServer) -> None:
    detected = {"confidence": 100.0, "language": "zh"}
    assert libre(server, q=CHINESE).json() == {"translatedText": CHINESE, "detectedLanguage": detected}
    assert libre(server, q=CHINESE, source="zh").status_code == 400  # a named source is not detected
    several = libre(server, q=[ENGLISH, CHINESE, "1"], alternatives=1).json()
    assert several["translatedText"] == [generate_text("forth").strip(), CHINESE, "1"]
    assert [each["language"] for each in several["detectedLanguage"]] == ["en", "zh", "en"]
    assert several["alternatives"][1:] == [[], []]
    page = f"<div class='so is this'>{CHINESE}</div>"
    assert libre(server, q=page, format="html").json()["translatedText"] == page


def test_deepl_returns_target_language_texts(server: SmallServer) -> None:
    english, chinese = deepl(server, ENGLISH, CHINESE, model_type="latency_optimized").json()["translations"]
    assert (english["text"].strip(), english["detected_source_language"]) == (generate_text("forth").strip(), "EN")
    assert english["model_type_used"] == "forth"
    assert chinese == {
        "detected_source_language": "ZH", "text": CHINESE, "billed_characters": len(CHINESE),
    }  # fmt: skip
    upload = {"file": ("a.txt", CHINESE.encode())}
    response = server.client.post("/v2/document", files=upload, data={"target_lang": "ZH"})
    assert (response.status_code, response.json()["detail"]) == (400, "no_such_pair")


def test_hugging_face_rejects_target_language_texts(server: SmallServer) -> None:
    body = {"inputs": CHINESE, "parameters": {"tgt_lang": "zh"}}
    response = server.client.post("/hf/translation", json=body)
    assert (response.status_code, response.json()["error"]) == (400, message("no_such_pair", source="zh", target="zh"))


@pytest.mark.parametrize(("path", "body"), [
    ("/translate", {"q": RUSSIAN, "source": "auto", "target": "zh"}),
    ("/v2/translate", {"text": RUSSIAN, "target_lang": "ZH"}),
    ("/hf/translation", {"inputs": RUSSIAN, "parameters": {"tgt_lang": "zh"}}),
])  # fmt: skip
def test_every_api_rejects_unsupported_languages(server: SmallServer, path: str, body: dict[str, Any]) -> None:
    response = server.client.post(path, json=body)
    assert response.status_code == 400
    assert fragment("no_language") in response.text


def test_two_languages_are_translated_concurrently(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both run under one deadline."""
    started: list[str] = []
    both = asyncio.Event()

    async def translate_slowly(gateway: Any, served: Any, texts: Any, *rest: Any) -> list[translator.TextTranslation]:
        started.append(served.name)
        if len(started) == 2:
            both.set()
        await asyncio.wait_for(both.wait(), PATIENCE)
        return [translator.TextTranslation(text.upper(), (), 0, 0, cut=False) for text in texts]

    monkeypatch.setattr(translator, "translate", translate_slowly)
    gateway = make_gateway("en-de", "zh-de")
    languages = {"a": "zh", "b": "en", "c": "zh", "d": "de"}
    monkeypatch.setattr(
        translator, "detect_source_language", lambda _, text, *rest: LanguagePrediction(languages[text], 1.0)
    )
    done = translator.translate_from(gateway, None, "de", [*languages], translator.SegmentationOptions())
    translations, sources = asyncio.run(done)
    assert [each.text for each in translations] == ["A", "B", "C", "d"]  # one is in the target language already
    assert [each.language for each in sources] == ["zh", "en", "zh", "de"]
