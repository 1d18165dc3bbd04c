"""Lines that tell what was asked and how it went, never by whom or in which words: as text, or as JSON."""

import logging
import re
import secrets
import traceback
from collections.abc import Iterable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from pydantic_core import to_json

REQUEST_ID_HEADER = b"x-request-id"
HTTP_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
QUIET_PATHS = (
    "/livez",
    "/readyz",
    "/health",
    "/metrics",
)  # asked every few seconds, and told only when something is wrong
_SAFE_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")  # nothing that could end a line, or be mistaken for something else
_log = logging.getLogger("attendo.serve.requests")


@dataclass
class AccessLogEntry:
    """One request. All that is known of it is what may be written down."""

    request_id: str
    method: str = ""
    route: str = ""  # as the application has it, with names in braces for what differs
    status: int = 0
    seconds: float = 0.0
    source_tokens: int = 0
    target_tokens: int = 0
    refused: str = ""  # the code of the message that it was refused with

    def __post_init__(self) -> None:
        # Once is enough: what else it asks of a model is not turned away for those who wait. Not written down.
        self.admitted = False

    def write(self) -> None:
        quiet = self.route in QUIET_PATHS and self.status < 400
        level = logging.DEBUG if quiet else logging.INFO
        _log.log(level, "%s %s %d", self.method, self.route, self.status, extra={"entry": self})


_LOGGED_FIELDS = tuple(each.name for each in fields(AccessLogEntry))

# The request that is being answered: whoever counts something for it finds it here.
current_request: ContextVar[AccessLogEntry | None] = ContextVar("attendo_request", default=None)


def current_request_id() -> str | None:
    """Of the request that is being answered; none where nothing is, as in the threads that compute."""
    entry = current_request.get()
    return None if entry is None else entry.request_id


def get_request_id(headers: Iterable[tuple[bytes, bytes]]) -> str:
    """The one that the client gave, where it can be written down; otherwise a new one."""
    given = [value for name, value in headers if name == REQUEST_ID_HEADER]
    if len(given) == 1 and _SAFE_ID.fullmatch(given[0]):
        return given[0].decode("ascii")
    return secrets.token_hex(16)


def error_location(error: BaseException) -> str:
    """The kind of an error and where it was raised. Its message is left out: it may hold what somebody wrote."""
    frames = traceback.extract_tb(error.__traceback__)[-3:]
    places = " < ".join(f"{Path(each.filename).name}:{each.lineno} {each.name}" for each in reversed(frames))
    return f"{type(error).__name__} at {places or 'an unknown place'}"


def log_config(log_format: Literal["text", "json"], level: str = "INFO") -> dict[str, Any]:
    """For `logging.config.dictConfig`, and so for uvicorn: all lines of the process alike, on standard error.

    uvicorn's own line for each request is left out: it holds the address of whoever asked, and what they asked for.
    """
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"lines": {"()": LogFormatter, "log_format": log_format}},
        "handlers": {
            "lines": {"class": "logging.StreamHandler", "formatter": "lines", "stream": "ext://sys.stderr"},
            "nowhere": {"class": "logging.NullHandler"},
        },
        "root": {"handlers": ["lines"], "level": "WARNING"},
        "loggers": {
            "attendo": {"level": level},
            "uvicorn": {"level": "WARNING", "propagate": True},  # whatever it was told before
            "uvicorn.access": {"handlers": ["nowhere"], "propagate": False},
        },
    }


class LogFormatter(logging.Formatter):
    """One line for each record, whatever is in it."""

    def __init__(self, log_format: Literal["text", "json"]) -> None:
        super().__init__()
        self._json = log_format == "json"

    def format(self, record: logging.LogRecord) -> str:
        told = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            **self._collect_fields(record),
        }
        if self._json:
            return to_json(told).decode()
        return _format_text(told)

    def _collect_fields(self, record: logging.LogRecord) -> dict[str, Any]:
        entry = getattr(record, "entry", None)
        if isinstance(entry, AccessLogEntry):
            # Not by asdict, which takes as long as the rest of the line: every refusal of a flood has one.
            return {name: getattr(entry, name) for name in _LOGGED_FIELDS} | {"seconds": round(entry.seconds, 4)}
        facts = {"message": _one_line(record.getMessage())}
        if (number := current_request_id()) is not None:
            facts["request_id"] = number
        error = record.exc_info[1] if record.exc_info else None
        if error is not None:
            facts["error"] = error_location(error)
        return facts


def _format_text(values: Mapping[str, Any]) -> str:
    """For a person: what happened first, then names and values."""
    values = dict(values)
    head = [values.pop("time"), values.pop("level").upper(), values.pop("logger")]
    head += [str(values.pop(name)) for name in ("message", "method", "route", "status") if name in values]
    return " ".join([*head, *(f"{name}={value}" for name, value in values.items())])


def _one_line(text: str) -> str:
    return " ".join(text.split())
