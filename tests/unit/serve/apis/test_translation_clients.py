"""Programs that others wrote for LibreTranslate and Hugging Face, unchanged, against a server on a port."""

from collections.abc import Iterator
from types import ModuleType
from typing import Any
from urllib.error import HTTPError

import pytest
from error_codes import message
from polyglot import CHINESE, ENGLISH, said, served
from real_server import on_a_port

from attendo.serve.app import create_app
from attendo.serve.settings import ServeSettings


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with on_a_port(create_app(served())) as address:
        yield address


@pytest.fixture(scope="module")
def locked() -> Iterator[str]:
    """One that answers only with a key."""
    with on_a_port(create_app(served(), ServeSettings(keys=("good",)))) as address:
        yield address


def client(name: str) -> Any:
    return pytest.importorskip(name, reason=f"{name} is a client of this server, and it is not installed")


class TestLibretranslatepy:
    def api(self, address: str, key: str | None = None) -> Any:
        return client("libretranslatepy").LibreTranslateAPI(address, api_key=key)

    def test_it_translates(self, address: str) -> None:
        assert self.api(address).translate(ENGLISH, "en", "zh") == said("forth").strip()
        assert self.api(address).translate(CHINESE, "auto", "en") == said("back", CHINESE).strip()

    def test_it_detects(self, address: str) -> None:
        assert self.api(address).detect(CHINESE) == [{"confidence": 100.0, "language": "zh"}]

    def test_it_lists_languages(self, address: str) -> None:
        assert [each["code"] for each in self.api(address).languages()] == ["en", "zh"]

    def test_it_has_a_key(self, locked: str) -> None:
        assert self.api(locked, "good").translate(ENGLISH, "en", "zh") == said("forth").strip()
        with pytest.raises(HTTPError) as refused:
            self.api(locked, "bad").translate(ENGLISH, "en", "zh")
        refused.value.close()
        assert refused.value.code == 403


class TestDeepTranslator:
    def translator(self, address: str, key: str = "any") -> Any:
        made = client("deep_translator").LibreTranslator
        return made(source="en", target="zh", api_key=key, custom_url=f"{address}/")

    def test_it_translates(self, address: str) -> None:
        assert self.translator(address).translate(ENGLISH) == said("forth").strip()

    def test_it_translates_several(self, address: str) -> None:
        texts = [ENGLISH, "I love NLP"]
        assert self.translator(address).translate_batch(texts) == [said("forth", text).strip() for text in texts]

    def test_it_hears_of_a_bad_key(self, locked: str) -> None:
        assert self.translator(locked, "good").translate(ENGLISH) == said("forth").strip()
        with pytest.raises(client("deep_translator.exceptions").AuthorizationException):
            self.translator(locked, "bad").translate(ENGLISH)


class TestInferenceClient:
    @pytest.fixture(autouse=True)
    def hub(self, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
        """Where it is told to be offline it asks nobody, not even this machine."""
        for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"):
            monkeypatch.delenv(name, raising=False)
        hub: ModuleType = client("huggingface_hub")
        monkeypatch.setattr(client("huggingface_hub.constants"), "HF_HUB_OFFLINE", False)
        return hub

    def test_it_translates_by_task(self, hub: Any, address: str) -> None:
        found = hub.InferenceClient().translation(ENGLISH, model=f"{address}/hf/translation")
        assert found.translation_text == said("forth").strip()

    def test_it_names_languages(self, hub: Any, address: str) -> None:
        inference = hub.InferenceClient(model=f"{address}/hf/translation")
        found = inference.translation(
            CHINESE, src_lang="zh_CN", tgt_lang="en_XX", generate_parameters={"num_beams": 2, "max_length": 9}
        )
        assert found.translation_text == said("back", CHINESE, beam=2, max_length=9).strip()

    def test_it_summarizes_by_task(self, hub: Any, address: str) -> None:
        found = hub.InferenceClient(model=f"{address}/hf/summarization").summarization(ENGLISH)
        assert found.summary_text == said("short")

    def test_one_address_does_for_a_model(self, hub: Any, address: str) -> None:
        assert hub.InferenceClient(base_url=f"{address}/hf/models/back").translation(CHINESE).translation_text == (
            said("back", CHINESE).strip()
        )
        assert hub.InferenceClient(base_url=f"{address}/hf/models/short").summarization(ENGLISH).summary_text == (
            said("short")
        )
        plain = hub.InferenceClient(base_url=f"{address}/hf/models/plain")
        assert plain.text_generation(ENGLISH) == plain.summarization(ENGLISH).summary_text == said("plain")

    @pytest.mark.filterwarnings("ignore:API endpoint/model for text-generation is not served via TGI")
    def test_it_leaves_out_what_is_not_used(self, hub: Any, address: str) -> None:
        plain = hub.InferenceClient(base_url=f"{address}/hf/models/plain")
        assert plain.text_generation(ENGLISH, watermark=True, frequency_penalty=1.0) == said("plain")

    def test_the_root_does_for_the_first_model(self, hub: Any, address: str) -> None:
        for root in (address, f"{address}/"):
            found = hub.InferenceClient(base_url=root).translation(ENGLISH)
            assert found.translation_text == said("forth").strip()

    @pytest.mark.parametrize("path", ["", "/hf", "/hf/models/forth", "/v1"])
    def test_it_chats_at_the_same_address(self, hub: Any, address: str, path: str) -> None:
        turns = [{"role": "user", "content": ENGLISH}]
        inference = hub.InferenceClient(base_url=f"{address}{path}")
        whole = inference.chat_completion(turns)
        assert whole.choices[0].message.content.strip() == said("forth").strip()
        bits = list(inference.chat_completion(turns, stream=True))
        text = "".join(each.choices[0].delta.content or "" for each in bits if each.choices)
        assert text == whole.choices[0].message.content

    def test_it_has_a_key(self, hub: Any, locked: str) -> None:
        good = hub.InferenceClient(base_url=f"{locked}/hf/models/forth", token="good")
        assert good.translation(ENGLISH).translation_text == said("forth").strip()
        with pytest.raises(hub.errors.HfHubHTTPError) as refused:
            hub.InferenceClient(base_url=f"{locked}/hf/models/forth", token="bad").translation(ENGLISH)
        assert refused.value.response.status_code == 401

    def test_it_hears_what_is_wrong(self, hub: Any, address: str) -> None:
        with pytest.raises(hub.errors.BadRequestError, match=message("unknown_language", language="zz")):
            hub.InferenceClient(model=f"{address}/hf/translation").translation(ENGLISH, src_lang="en", tgt_lang="zz")

    def test_offline_it_asks_nobody(self, hub: Any, address: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """Which is why the documentation speaks of it."""
        monkeypatch.setattr(hub.constants, "HF_HUB_OFFLINE", True)
        hub.close_session()
        try:
            with pytest.raises(hub.errors.OfflineModeIsEnabled):
                hub.InferenceClient(model=f"{address}/hf/translation").translation(ENGLISH)
        finally:
            hub.close_session()
