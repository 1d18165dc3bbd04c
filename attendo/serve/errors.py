"""Errors in one place: what is refused, in both languages, and how it reaches whoever asked."""

import logging
import re
from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from pydantic_core import to_json
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from attendo.errors import AttendoError
from attendo.serve.messages import FAULTS, MESSAGES, OTHER_FAULT, SETTINGS
from attendo.settings import nearest

_FAULTS_TOLD = 5
_log = logging.getLogger("attendo.serve")


class Refusal(HTTPException):
    """A request that cannot be met, by the code of its message; `extra` is told beside it."""

    def __init__(self, code: str, extra: Mapping[str, Any] | None = None, **values: Any) -> None:
        message = MESSAGES[code]
        super().__init__(message.status, code)
        self.code, self.extra = code, dict(extra or {})
        self.english, self.chinese = message.filled(values)

    def content(self) -> dict[str, Any]:
        told = {"code": self.code, "message": self.english, "message_zh": self.chinese, **self.extra}
        return {"error": told}

    def response(self) -> Response:
        return answer(self.content(), self.status_code)


def answer(content: Any, status: int = 200) -> Response:
    """JSON, with null for what is no finite number."""
    return Response(to_json(content, inf_nan_mode="null"), status, media_type="application/json")


def refusal_of(error: Exception) -> Refusal:
    """What to tell of an error, wherever it was raised."""
    if isinstance(error, Refusal):
        return error
    if isinstance(error, AttendoError):
        return Refusal("bad_setting", detail=str(error), detail_zh=_chinese(str(error)))
    _log.error("a request failed", exc_info=error)
    return Refusal("failed")


def handle_errors(app: FastAPI, known: Sequence[str]) -> None:
    """`known` are the names of fields: a mistyped one is told the nearest."""

    async def unfit(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        told = [_fault(each, known) for each in error.errors()[:_FAULTS_TOLD]]
        english, chinese = ("; ".join(each[0] for each in told), "；".join(each[1] for each in told))
        return Refusal("bad_request", detail=english, detail_zh=chinese).response()

    app.add_exception_handler(RequestValidationError, unfit)
    app.add_exception_handler(HTTPException, _other)
    app.add_exception_handler(AttendoError, _told)
    app.add_exception_handler(Exception, _told)


async def _told(request: Request, error: Exception) -> Response:
    """What is nobody's fault but ours goes on to the server, which writes it down."""
    known = isinstance(error, AttendoError)
    return (refusal_of(error) if known else Refusal("failed")).response()


async def _other(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if isinstance(error, Refusal):
        return error.response()
    path = request.url.path
    if error.status_code == 405:
        return Refusal("bad_method", path=path, method=request.method).response()
    if error.status_code == 404:
        return Refusal("not_found", path=path).response()
    return Refusal("bad_json", detail=str(error.detail)).response()


def _chinese(message: str) -> str:
    """A message of the library, as it is where nobody has put it into Chinese."""
    for pattern, text in SETTINGS.items():
        if found := re.fullmatch(pattern, message):
            return text.format(*found.groups())
    return message


def _fault(fault: Mapping[str, Any], known: Sequence[str]) -> tuple[str, str]:
    place = [str(part) for part in fault["loc"] if part != "body"]
    if not place:  # there is no body, or it was sent as something else
        return (
            "the body must be a JSON object, sent as application/json",
            "请求体必须是 JSON 对象，并以 application/json 发送",
        )
    near = nearest(place[-1], list(known))
    values = {**(fault.get("ctx") or {}), "near": near, "near_zh": _chinese_near(near)}
    english, chinese = FAULTS.get(fault["type"], OTHER_FAULT)
    name = ".".join(place)
    return f"{name} {english.format(**values)}", f"{name} {chinese.format(**values)}"


def _chinese_near(near: str) -> str:
    return near.replace(" (did you mean ", "（是否指 ").replace("?)", "？）")
