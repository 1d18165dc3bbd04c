"""Access log as text or JSON lines, without texts, addresses or keys."""

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
# Requested every few seconds, so logged only on errors.
QUIET_PATHS = ("/livez", "/readyz", "/health", "/metrics")
_SAFE_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")  # no line breaks or separators of the log
_log = logging.getLogger("attendo.serve.requests")


@dataclass
class AccessLogEntry:
    """Log entry of one request."""

    request_id: str
    method: str = ""
    route: str = ""  # path template, with parameter names in braces
    status: int = 0
    seconds: float = 0.0
    source_tokens: int = 0
    target_tokens: int = 0
    refused: str = ""  # error code if the request was rejected

    def __post_init__(self) -> None:
        # A request is admitted once: its later jobs are not rejected because of the queue. Not logged.
        self.admitted = False

    def write(self) -> None:
        quiet = self.route in QUIET_PATHS and self.status < 400
        level = logging.DEBUG if quiet else logging.INFO
        _log.log(level, "%s %s %d", self.method, self.route, self.status, extra={"entry": self})


_LOGGED_FIELDS = tuple(each.name for each in fields(AccessLogEntry))

# Entry of the current request, to which token counts and error codes are added.
current_request: ContextVar[AccessLogEntry | None] = ContextVar("attendo_request", default=None)


def current_request_id() -> str | None:
    """Return the id of the current request; None outside of a request, as in worker threads."""
    entry = current_request.get()
    return None if entry is None else entry.request_id


def get_request_id(headers: Iterable[tuple[bytes, bytes]]) -> str:
    """Return the client's request id if it is safe to log, otherwise a new one."""
    ids = [value for name, value in headers if name == REQUEST_ID_HEADER]
    if len(ids) == 1 and _SAFE_ID.fullmatch(ids[0]):
        return ids[0].decode("ascii")
    return secrets.token_hex(16)


def error_location(error: BaseException) -> str:
    """Return the type of an error and where it was raised. The message may contain user text, so it is omitted."""
    frames = traceback.extract_tb(error.__traceback__)[-3:]
    locations = " < ".join(f"{Path(each.filename).name}:{each.lineno} {each.name}" for each in reversed(frames))
    return f"{type(error).__name__} at {locations or 'an unknown place'}"


def log_config(log_format: Literal["text", "json"], level: str = "INFO") -> dict[str, Any]:
    """Return a configuration for `logging.config.dictConfig` and uvicorn: all lines in one format, on standard error.

    uvicorn's access log is disabled: it contains client addresses and paths.
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
            "uvicorn": {"level": "WARNING", "propagate": True},  # overrides an earlier configuration
            "uvicorn.access": {"handlers": ["nowhere"], "propagate": False},
        },
    }


class LogFormatter(logging.Formatter):
    """Formats each record as one line."""

    def __init__(self, log_format: Literal["text", "json"]) -> None:
        super().__init__()
        self._json = log_format == "json"

    def format(self, record: logging.LogRecord) -> str:
        fields = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            **self._collect_fields(record),
        }
        if self._json:
            return to_json(fields).decode()
        return _format_text(fields)

    def _collect_fields(self, record: logging.LogRecord) -> dict[str, Any]:
        entry = getattr(record, "entry", None)
        if isinstance(entry, AccessLogEntry):
            # Faster than asdict, which takes as long as the rest of the line. Every rejection of a flood logs one.
            return {name: getattr(entry, name) for name in _LOGGED_FIELDS} | {"seconds": round(entry.seconds, 4)}
        facts = {"message": _one_line(record.getMessage())}
        if (number := current_request_id()) is not None:
            facts["request_id"] = number
        error = record.exc_info[1] if record.exc_info else None
        if error is not None:
            facts["error"] = error_location(error)
        return facts


def _format_text(values: Mapping[str, Any]) -> str:
    """Format a line as text: the main fields first, then name=value pairs."""
    values = dict(values)
    head = [values.pop("time"), values.pop("level").upper(), values.pop("logger")]
    head += [str(values.pop(name)) for name in ("message", "method", "route", "status") if name in values]
    return " ".join([*head, *(f"{name}={value}" for name, value in values.items())])


def _one_line(text: str) -> str:
    return " ".join(text.split())
