"""X7: a missing or wrong key gets the error of each API. Keys are not in responses, logs or metrics."""

from hmac import compare_digest

import pytest
from guarded_app import PATHS, GuardedApp, capture_log

from attendo.serve.http import auth
from attendo.serve.http.errors import ApiName

KEY = "Key-0123456789abcdef"
WRONG_KEYS = [KEY[:-1], KEY + "x", KEY.lower(), KEY[::-1], f"{KEY},{KEY}", "\x7f", "é" * 20, "x" * 8_000]
SCHEMES = {"openai": "Bearer", "huggingface": "bearer", "deepl": "DeepL-Auth-Key", "ours": "BEARER"}


@pytest.fixture(scope="module")
def app() -> GuardedApp:
    return GuardedApp(keys=("another", KEY))


@pytest.mark.parametrize("api", PATHS)
def test_a_valid_key_is_accepted(app: GuardedApp, api: ApiName) -> None:
    assert app.post(api, {"x-api-key": KEY}).status_code == 200
    assert app.post(api, {"x-api-key": "another"}).status_code == 200
    assert app.post(api, {"authorization": f"{SCHEMES.get(api, 'Bearer')} {KEY}"}).status_code == 200


@pytest.mark.parametrize("api", PATHS)
@pytest.mark.parametrize("key", [None, "", *WRONG_KEYS])
def test_other_keys_are_rejected(app: GuardedApp, api: ApiName, key: str | None) -> None:
    headers = {} if key is None else {b"authorization": b"Bearer " + key.encode()}
    with capture_log() as lines:
        response = app.client.post(PATHS[api], json={}, headers=headers)  # type: ignore[arg-type]
    assert response.status_code == (403 if api in ("deepl", "libretranslate") else 401)
    assert ("www-authenticate" in response.headers) == (response.status_code == 401)
    assert KEY not in response.text + lines.getvalue()
    if api == "libretranslate":
        assert response.json() == {"error": "Invalid API key"}
    elif api == "openai":
        assert response.json()["error"]["code"] == "invalid_api_key"
    elif api in ("deepl", "ours"):
        code = "bad_key" if key else "no_key"
        assert code in (response.json().get("detail"), response.json().get("error", {}).get("code"))


@pytest.mark.parametrize("value", [f"Basic {KEY}", KEY, f"Bearer{KEY}", f"Token {KEY}"])
def test_other_authorization_schemes_are_rejected(app: GuardedApp, value: str) -> None:
    assert app.post("ours", {"authorization": value}).status_code == 401


def test_a_server_without_keys_accepts_any_key() -> None:
    app = GuardedApp()
    assert app.post().status_code == 200
    assert app.post("deepl", {"authorization": "DeepL-Auth-Key whatever"}).status_code == 200


def test_every_key_is_compared_in_constant_time(app: GuardedApp, monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[bytes] = []

    def record_compare(given: bytes, known: bytes) -> bool:
        compared.append(known)
        return compare_digest(given, known)

    monkeypatch.setattr(auth.hmac, "compare_digest", record_compare)
    auth.require_key(app.gateway.settings.keys, "another")
    assert compared == [b"another", KEY.encode()]
    with pytest.raises(Exception, match="bad_key"):
        auth.require_key(app.gateway.settings.keys, "\ud800")


def test_a_key_never_reaches_log_or_metrics(app: GuardedApp) -> None:
    with capture_log() as lines:
        app.post("ours", {"authorization": f"Bearer {KEY}"})
        app.client.get(f"/things/{KEY}?api_key={KEY}")
        app.post("ours", {"authorization": f"Bearer {KEY}"}, fail=KEY)
    assert "POST /api/v1/small 200" in lines.getvalue()
    assert "GET /things/{name} 200" in lines.getvalue()
    assert "a request failed: ValueError at guarded_app.py" in lines.getvalue()
    assert KEY not in lines.getvalue()
    assert KEY not in app.client.get("/metrics").text
