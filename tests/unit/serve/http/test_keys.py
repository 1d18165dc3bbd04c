"""X7: who has no key, or not the right one, is told so as each API tells it; the key stands nowhere else."""

from hmac import compare_digest

import pytest
from small_gate import PATHS, SmallGate, written

from attendo.serve.http import auth
from attendo.serve.http.errors import ApiName

KEY = "Key-0123456789abcdef"
NEAR = [KEY[:-1], KEY + "x", KEY.lower(), KEY[::-1], f"{KEY},{KEY}", "\x7f", "é" * 20, "x" * 8_000]
SCHEMES = {"openai": "Bearer", "huggingface": "bearer", "deepl": "DeepL-Auth-Key", "ours": "BEARER"}


@pytest.fixture(scope="module")
def gate() -> SmallGate:
    return SmallGate(keys=("another", KEY))


@pytest.mark.parametrize("shape", PATHS)
def test_a_key_opens(gate: SmallGate, shape: ApiName) -> None:
    assert gate.post(shape, {"x-api-key": KEY}).status_code == 200
    assert gate.post(shape, {"x-api-key": "another"}).status_code == 200
    assert gate.post(shape, {"authorization": f"{SCHEMES.get(shape, 'Bearer')} {KEY}"}).status_code == 200


@pytest.mark.parametrize("shape", PATHS)
@pytest.mark.parametrize("key", [None, "", *NEAR])
def test_nothing_else_does(gate: SmallGate, shape: ApiName, key: str | None) -> None:
    headers = {} if key is None else {b"authorization": b"Bearer " + key.encode()}
    with written() as lines:
        answered = gate.client.post(PATHS[shape], json={}, headers=headers)  # type: ignore[arg-type]
    assert answered.status_code == (403 if shape in ("deepl", "libretranslate") else 401)
    assert ("www-authenticate" in answered.headers) == (answered.status_code == 401)
    assert KEY not in answered.text + lines.getvalue()
    if shape == "libretranslate":
        assert answered.json() == {"error": "Invalid API key"}
    elif shape == "openai":
        assert answered.json()["error"]["code"] == "invalid_api_key"
    elif shape in ("deepl", "ours"):
        code = "bad_key" if key else "no_key"
        assert code in (answered.json().get("detail"), answered.json().get("error", {}).get("code"))


@pytest.mark.parametrize("value", [f"Basic {KEY}", KEY, f"Bearer{KEY}", f"Token {KEY}"])
def test_a_key_must_be_sent_as_one(gate: SmallGate, value: str) -> None:
    assert gate.post("ours", {"authorization": value}).status_code == 401


def test_without_keys_everybody_may_ask_also_with_one() -> None:
    gate = SmallGate()
    assert gate.post().status_code == 200
    assert gate.post("deepl", {"authorization": "DeepL-Auth-Key whatever"}).status_code == 200


def test_every_key_is_compared_in_constant_time(gate: SmallGate, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[bytes] = []

    def compared(given: bytes, known: bytes) -> bool:
        seen.append(known)
        return compare_digest(given, known)

    monkeypatch.setattr(auth.hmac, "compare_digest", compared)
    auth.require_key(gate.office, "another")
    assert seen == [b"another", KEY.encode()]
    with pytest.raises(Exception, match="bad_key"):
        auth.require_key(gate.office, "\ud800")


def test_a_key_never_reaches_log_or_metrics(gate: SmallGate) -> None:
    with written() as lines:
        gate.post("ours", {"authorization": f"Bearer {KEY}"})
        gate.client.get(f"/things/{KEY}?api_key={KEY}")
        gate.post("ours", {"authorization": f"Bearer {KEY}"}, fail=KEY)
    assert "POST /api/v1/small 200" in lines.getvalue()
    assert "GET /things/{name} 200" in lines.getvalue()
    assert "a request failed: ValueError at small_gate.py" in lines.getvalue()
    assert KEY not in lines.getvalue()
    assert KEY not in gate.client.get("/metrics").text
