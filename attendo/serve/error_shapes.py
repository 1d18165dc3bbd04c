"""One error, told as each API tells it: whose clients ask is seen from the path."""

from collections.abc import Mapping
from typing import Any, Literal

Shape = Literal["ours", "deepl", "openai", "huggingface", "libretranslate"]

LIBRETRANSLATE = ("/translate", "/translate_file", "/detect", "/languages", "/suggest", "/frontend/settings")
PREFIXES: dict[str, Shape] = {
    "/v2/": "deepl",
    "/v1/": "openai",
    "/hf/": "huggingface",
    "/download_file/": "libretranslate",
}
# Clients of DeepL and LibreTranslate take 403 for a matter of keys; all else has one status everywhere.
STATUSES: dict[Shape, dict[str, int]] = {
    "deepl": {"no_key": 403, "bad_key": 403},
    "libretranslate": {"no_key": 403, "bad_key": 403},
}
# Software compares these words.
LIBRETRANSLATE_WORDS = {
    "no_key": "Invalid API key",
    "bad_key": "Invalid API key",
    "bad_json": "Invalid JSON format",
    "busy": "Slowdown: {english}",
}
OPENAI_CODES = {"no_key": "invalid_api_key", "bad_key": "invalid_api_key", "unknown_model": "model_not_found"}


def shape_of(path: str) -> Shape:
    if path in LIBRETRANSLATE:
        return "libretranslate"
    if path in ("/", "/hf"):  # where Hugging Face's client posts to; a browser that gets the page at / reads no errors
        return "huggingface"
    return next((shape for prefix, shape in PREFIXES.items() if path.startswith(prefix)), "ours")


def status_in(shape: Shape, code: str, status: int) -> int:
    return STATUSES.get(shape, {}).get(code, status)


def content_in(shape: Shape, status: int, told: Mapping[str, Any]) -> dict[str, Any]:
    """`told` is what our own API tells: a code, a message in English, and more that only some have a place for."""
    code, english = told["code"], told["message"]
    if shape == "deepl":
        return {"message": english, "detail": code}
    if shape == "openai":
        error = {
            "message": english,
            "type": _openai_type(status),
            "param": told.get("param"),
            "code": OPENAI_CODES.get(code, code),
        }
        return {"error": error}
    if shape == "huggingface":
        return {"error": english}
    if shape == "libretranslate":
        return {"error": LIBRETRANSLATE_WORDS.get(code, "{english}").format(english=english)}
    return {"error": dict(told)}


def _openai_type(status: int) -> str:
    if status == 429:
        return "rate_limit_error"
    return "server_error" if status >= 500 else "invalid_request_error"
