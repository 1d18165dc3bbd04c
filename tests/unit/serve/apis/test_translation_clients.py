"""Clients of LibreTranslate and Hugging Face, unmodified, against a server on a port."""

from collections.abc import Iterator
from types import ModuleType
from typing import Any
from urllib.error import HTTPError

import pytest
from error_codes import message
from four_models import CHINESE, ENGLISH, generate_text, make_specs
from real_server import serve_on_port

from attendo.serve.app import create_app
from attendo.serve.settings import ServeSettings


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with serve_on_port(create_app(make_specs())) as address:
        yield address


@pytest.fixture(scope="module")
def address_with_keys() -> Iterator[str]:
    """The address of a server that requires a key."""
    with serve_on_port(create_app(make_specs(), ServeSettings(keys=("good",)))) as address:
        yield address


def import_client(name: str) -> Any:
    return pytest.importorskip(name, reason=f"{name} is a client of this server, and it is not installed")


class TestLibretranslatepy:
    def api(self, address: str, key: str | None = None) -> Any:
        return import_client("libretranslatepy").LibreTranslateAPI(address, api_key=key)

    def test_translates_and_detects_the_source(self, address: str) -> None:
        assert self.api(address).translate(ENGLISH, "en", "zh") == generate_text("forth").strip()
        assert self.api(address).translate(CHINESE, "auto", "en") == generate_text("back", CHINESE).strip()

    def test_detects_the_language(self, address: str) -> None:
        assert self.api(address).detect(CHINESE) == [{"confidence": 100.0, "language": "zh"}]

    def test_lists_languages(self, address: str) -> None:
        assert [each["code"] for each in self.api(address).languages()] == ["en", "zh"]

    def test_sends_an_api_key(self, address_with_keys: str) -> None:
        assert self.api(address_with_keys, "good").translate(ENGLISH, "en", "zh") == generate_text("forth").strip()
        with pytest.raises(HTTPError) as raised:
            self.api(address_with_keys, "bad").translate(ENGLISH, "en", "zh")
        raised.value.close()
        assert raised.value.code == 403


class TestDeepTranslator:
    def translator(self, address: str, key: str = "any") -> Any:
        translator_class = import_client("deep_translator").LibreTranslator
        return translator_class(source="en", target="zh", api_key=key, custom_url=f"{address}/")

    def test_translates_a_text(self, address: str) -> None:
        assert self.translator(address).translate(ENGLISH) == generate_text("forth").strip()

    def test_translates_a_batch(self, address: str) -> None:
        texts = [ENGLISH, "I love NLP"]
        assert self.translator(address).translate_batch(texts) == [
            generate_text("forth", text).strip() for text in texts
        ]

    def test_raises_on_a_bad_key(self, address_with_keys: str) -> None:
        assert self.translator(address_with_keys, "good").translate(ENGLISH) == generate_text("forth").strip()
        with pytest.raises(import_client("deep_translator.exceptions").AuthorizationException):
            self.translator(address_with_keys, "bad").translate(ENGLISH)


class TestInferenceClient:
    @pytest.fixture(autouse=True)
    def hub(self, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
        """Switches offline mode off, in which the client sends no request, not even to localhost."""
        for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"):
            monkeypatch.delenv(name, raising=False)
        hub: ModuleType = import_client("huggingface_hub")
        monkeypatch.setattr(import_client("huggingface_hub.constants"), "HF_HUB_OFFLINE", False)
        return hub

    def test_translates_by_task(self, hub: Any, address: str) -> None:
        found = hub.InferenceClient().translation(ENGLISH, model=f"{address}/hf/translation")
        assert found.translation_text == generate_text("forth").strip()

    def test_accepts_language_codes(self, hub: Any, address: str) -> None:
        inference = hub.InferenceClient(model=f"{address}/hf/translation")
        found = inference.translation(
            CHINESE, src_lang="zh_CN", tgt_lang="en_XX", generate_parameters={"num_beams": 2, "max_length": 9}
        )
        assert found.translation_text == generate_text("back", CHINESE, beam=2, max_length=9).strip()

    def test_summarizes_by_task(self, hub: Any, address: str) -> None:
        found = hub.InferenceClient(model=f"{address}/hf/summarization").summarization(ENGLISH)
        assert found.summary_text == generate_text("short")

    def test_a_model_url_serves_its_task(self, hub: Any, address: str) -> None:
        assert hub.InferenceClient(base_url=f"{address}/hf/models/back").translation(CHINESE).translation_text == (
            generate_text("back", CHINESE).strip()
        )
        assert hub.InferenceClient(base_url=f"{address}/hf/models/short").summarization(ENGLISH).summary_text == (
            generate_text("short")
        )
        plain = hub.InferenceClient(base_url=f"{address}/hf/models/plain")
        assert plain.text_generation(ENGLISH) == plain.summarization(ENGLISH).summary_text == generate_text("plain")

    @pytest.mark.filterwarnings("ignore:API endpoint/model for text-generation is not served via TGI")
    def test_unused_parameters_are_ignored(self, hub: Any, address: str) -> None:
        plain = hub.InferenceClient(base_url=f"{address}/hf/models/plain")
        assert plain.text_generation(ENGLISH, watermark=True, frequency_penalty=1.0) == generate_text("plain")

    def test_the_root_serves_the_first_model(self, hub: Any, address: str) -> None:
        for root in (address, f"{address}/"):
            found = hub.InferenceClient(base_url=root).translation(ENGLISH)
            assert found.translation_text == generate_text("forth").strip()

    @pytest.mark.parametrize("path", ["", "/hf", "/hf/models/forth", "/v1"])
    def test_chats_at_the_same_url(self, hub: Any, address: str, path: str) -> None:
        messages = [{"role": "user", "content": ENGLISH}]
        inference = hub.InferenceClient(base_url=f"{address}{path}")
        completion = inference.chat_completion(messages)
        assert completion.choices[0].message.content.strip() == generate_text("forth").strip()
        chunks = list(inference.chat_completion(messages, stream=True))
        text = "".join(each.choices[0].delta.content or "" for each in chunks if each.choices)
        assert text == completion.choices[0].message.content

    def test_sends_a_token(self, hub: Any, address_with_keys: str) -> None:
        good = hub.InferenceClient(base_url=f"{address_with_keys}/hf/models/forth", token="good")
        assert good.translation(ENGLISH).translation_text == generate_text("forth").strip()
        with pytest.raises(hub.errors.HfHubHTTPError) as raised:
            hub.InferenceClient(base_url=f"{address_with_keys}/hf/models/forth", token="bad").translation(ENGLISH)
        assert raised.value.response.status_code == 401

    def test_reports_the_error_message(self, hub: Any, address: str) -> None:
        with pytest.raises(hub.errors.BadRequestError, match=message("unknown_language", language="zz")):
            hub.InferenceClient(model=f"{address}/hf/translation").translation(ENGLISH, src_lang="en", tgt_lang="zz")

    def test_offline_mode_sends_no_request(self, hub: Any, address: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """The documentation mentions this behaviour."""
        monkeypatch.setattr(hub.constants, "HF_HUB_OFFLINE", True)
        hub.close_session()
        try:
            with pytest.raises(hub.errors.OfflineModeIsEnabled):
                hub.InferenceClient(model=f"{address}/hf/translation").translation(ENGLISH)
        finally:
            hub.close_session()
