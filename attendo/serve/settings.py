"""Server settings: hosts, keys, sizes, lengths, times."""

import ipaddress
import math
import re
import resource
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, Literal
from urllib.parse import urlsplit

from pydantic import Field, field_validator

from attendo.errors import UsageError
from attendo.settings import Settings

LOOPBACK = ("127.0.0.1", "localhost", "::1")
_NAME = re.compile(r"\w([\w.-]*\w)?\.?", re.ASCII)
_DEFAULT_PORTS = {"http": 80, "https": 443}  # browsers omit these from an origin
_MAX_CONNECTIONS = 1000


def default_max_connections() -> int:
    """Return the default of `connections`."""
    return int(min(_MAX_CONNECTIONS, _get_connection_capacity()[0]))


def _get_connection_capacity() -> tuple[float, float]:
    """Return the possible number of connections and the open-files limit. Some files are reserved for the process."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files == resource.RLIM_INFINITY:
        return math.inf, math.inf
    return max(1, files // 2, files - 128), files


class ServeSettings(Settings):
    """Limits of a server. A request above a limit is rejected with an error that names it. Input is never truncated."""

    renamed: ClassVar[Mapping[str, str]] = {
        "hosts": "allowed_hosts",
        "connections": "max_connections",
        "body_seconds": "body_timeout",
        "first_byte_seconds": "header_timeout",
        "texts": "max_texts",
        "characters": "max_characters",
        "source_tokens": "max_source_tokens",
        "answer_tokens": "max_output_tokens",
        "beam": "max_beam",
        "candidates": "max_mbr_candidates",
        "phrases": "max_phrases",
        "waiting": "max_queued",
        "queue_seconds": "max_queue_seconds",
        "queue_tokens": "max_batch_tokens",
        "hang_seconds": "watchdog_seconds",
        "tokens": "max_inspected_tokens",
        "block_bytes": "max_map_bytes",
        "checkpoints": "checkpoint_cache_size",
    }

    # access
    allowed_hosts: tuple[str, ...] = Field(LOOPBACK, description="allowed values of the Host header")
    keys: tuple[str, ...] = Field((), description="API keys; a request must send one unless the list is empty")
    cors_origins: tuple[str, ...] = Field((), description="other origins that browsers may send requests from")
    metrics_open: bool = Field(False, description="allow other machines to read /metrics")

    # connections and request sizes
    max_connections: int = Field(
        default_factory=default_max_connections,
        ge=1,
        description="maximum number of connections; 1,000, or fewer if the open-files limit is low",
    )
    header_bytes: int = Field(16 * 1024, ge=1, description="maximum total size of the headers of a request")
    body_bytes: int = Field(1024 * 1024, ge=1, description="maximum size of a request body")
    body_timeout: float = Field(10.0, gt=0, description="maximum seconds until a body has arrived")
    header_timeout: float = Field(10.0, gt=0, description="maximum seconds until the headers have arrived")

    # sizes of requests to a model
    max_texts: int = Field(50, ge=1, description="maximum number of texts in a request")
    max_characters: int = Field(5_000, ge=1, description="maximum length of a text")
    max_source_tokens: int = Field(
        1024, ge=1, description="maximum tokens of a source; `max_inspected_tokens` applies to inspected ones"
    )
    max_output_tokens: int = Field(512, ge=1, description="maximum tokens of an answer")
    max_beam: int = Field(12, ge=1, description="maximum beam size and n_best")
    max_mbr_candidates: int = Field(32, ge=1, description="maximum number of MBR candidates")
    max_phrases: int = Field(50, ge=1, description="maximum number of required or of banned phrases")
    check: Literal["off", "report", "repair"] = Field(
        "off", description="check of the outputs of requests that do not set one; a stream is never repaired"
    )
    alternatives: int = Field(5, ge=0, description="maximum number of alternatives to the best answer")

    # times and queues
    deadline_seconds: float = Field(8.0, gt=0, description="maximum seconds to the response, waiting included")
    max_queued: int = Field(128, ge=1, description="maximum number of requests waiting for one model")
    max_queue_seconds: float = Field(0.5, gt=0, description="maximum estimated wait of a request, in seconds")
    max_batch_tokens: int = Field(262_144, ge=1, description="maximum tokens of a model's requests, all rows")
    watchdog_seconds: float = Field(30.0, gt=0, description="seconds without a step until the process exits")
    drain_seconds: float = Field(10.0, gt=0, description="seconds for finishing requests in flight at shutdown")

    # page
    max_inspected_tokens: int = Field(
        256, ge=1, description="maximum tokens of an inspected source or target, EOS included"
    )
    max_map_bytes: int = Field(32 * 1024 * 1024, ge=1, description="maximum size of the attention maps in one response")
    checkpoint_cache_size: int = Field(2, ge=1, description="number of checkpoints of a run cached in memory")

    # documents
    documents_bytes: int = Field(1024 * 1024, ge=1, description="maximum size of a document")
    documents_folder: Path | None = Field(
        None, description="folder for translated documents; default: the temporary folder of the system"
    )

    log_format: Literal["text", "json"] = Field("text", description="format of log lines")
    log_level: Literal["info", "warning", "error"] = Field(
        "info", description="lowest level that is logged; info logs every request"
    )

    @field_validator("allowed_hosts")
    @classmethod
    def _check_host_names(cls, hosts: tuple[str, ...]) -> tuple[str, ...]:
        for host in hosts:
            if not _NAME.fullmatch(host) and not _is_address(host):
                raise UsageError("invalid_host_name", host=host)
        return tuple(host.lower() for host in hosts)

    @field_validator("max_connections")
    @classmethod
    def _check_open_files(cls, connections: int) -> int:
        most, files = _get_connection_capacity()
        if connections > most:
            raise UsageError("connections_exceed_open_files", connections=connections, limit=most, files=files)
        return connections

    @field_validator("cors_origins")
    @classmethod
    def _check_origins(cls, origins: tuple[str, ...]) -> tuple[str, ...]:
        for origin in origins:
            if origin != "*" and not _is_origin(origin):
                raise UsageError("invalid_cors_origin", origin=origin)
        return origins


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _is_origin(text: str) -> bool:
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        return False
    host = parts.netloc.rpartition(":")[0] if port is not None else parts.netloc
    named = _NAME.fullmatch(host) or (host[:1] + host[-1:] == "[]" and _is_address(host[1:-1]))
    plain = text == text.lower() == f"{parts.scheme}://{parts.netloc}"
    return bool(named) and plain and parts.scheme in _DEFAULT_PORTS and port != _DEFAULT_PORTS[parts.scheme]
