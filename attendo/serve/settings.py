"""What a server allows: hosts, keys, sizes, lengths, times."""

import ipaddress
import math
import re
import resource
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from pydantic import Field, field_validator

from attendo.errors import UsageError
from attendo.settings import Settings

LOOPBACK = ("127.0.0.1", "localhost", "::1")
_NAME = re.compile(r"\w([\w.-]*\w)?\.?", re.ASCII)
_DEFAULT_PORTS = {"http": 80, "https": 443}  # that browsers leave out
_MAX_CONNECTIONS = 1000


def default_max_connections() -> int:
    """Unless set."""
    return int(min(_MAX_CONNECTIONS, _get_connection_capacity()[0]))


def _get_connection_capacity() -> tuple[float, float]:
    """How many this process can have, and the files that it may have open: it needs some of those for itself."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files == resource.RLIM_INFINITY:
        return math.inf, math.inf
    return max(1, files // 2, files - 128), files


class ServeSettings(Settings):
    """Limits are there to be told, never to cut: what is above one is refused with a way out."""

    # who may ask
    hosts: tuple[str, ...] = Field(LOOPBACK, description="names that a request may call this server by")
    keys: tuple[str, ...] = Field((), description="that requests must bring one of; none: everybody may ask")
    cors_origins: tuple[str, ...] = Field((), description="pages of other servers that a browser may ask from")
    metrics_open: bool = Field(False, description="whether others than this machine may read /metrics")

    # how a request arrives
    connections: int = Field(
        default_factory=default_max_connections,
        ge=1,
        description="at a time; 1,000, or fewer where this process may not have so many files open",
    )
    header_bytes: int = Field(16 * 1024, ge=1, description="of all headers of a request together")
    body_bytes: int = Field(1024 * 1024, ge=1, description="of the body of a request")
    body_seconds: float = Field(10.0, gt=0, description="in which a body must have arrived")
    first_byte_seconds: float = Field(10.0, gt=0, description="in which whoever connects must begin to ask")

    # what may be asked
    texts: int = Field(50, ge=1, description="of one request")
    characters: int = Field(5_000, ge=1, description="of a text")
    source_tokens: int = Field(1024, ge=1, description="of a source that is only answered")
    answer_tokens: int = Field(512, ge=1, description="of an answer")
    beam: int = Field(12, ge=1, description="hypotheses side by side, and answers to choose from")
    candidates: int = Field(32, ge=1, description="samples that the best is chosen from by mbr")
    phrases: int = Field(50, ge=1, description="that an answer must hold, or must not")
    alternatives: int = Field(5, ge=0, description="other answers beside the best")

    # how long it may take, and how many may wait
    deadline_seconds: float = Field(8.0, gt=0, description="from asking to the answer, waiting included")
    waiting: int = Field(128, ge=1, description="requests that may wait for one model")
    queue_seconds: float = Field(0.5, gt=0, description="that a request may expect to wait, by how fast others went")
    queue_tokens: int = Field(262_144, ge=1, description="of all requests to a model, sources and answers, all rows")
    hang_seconds: float = Field(30.0, gt=0, description="without a step, after which the process ends to begin anew")
    drain_seconds: float = Field(10.0, gt=0, description="for what is being answered when the server is told to end")

    # the page
    tokens: int = Field(256, ge=1, description="of a source or a target that is looked into, eos included")
    block_bytes: int = Field(32 * 1024 * 1024, ge=1, description="of the attention maps of one answer")
    checkpoints: int = Field(2, ge=1, description="of a run that are kept in memory")

    # documents
    documents_bytes: int = Field(1024 * 1024, ge=1, description="of a document to translate")
    documents_folder: Path | None = Field(
        None, description="where documents wait to be fetched; where the system keeps temporary files, unless set"
    )

    log_format: Literal["text", "json"] = Field("text", description="of the lines that a server writes of itself")
    log_level: Literal["info", "warning", "error"] = Field(
        "info", description="the least important lines that are written; info has one for each request"
    )

    @field_validator("hosts")
    @classmethod
    def _check_host_names(cls, hosts: tuple[str, ...]) -> tuple[str, ...]:
        for host in hosts:
            if not _NAME.fullmatch(host) and not _is_address(host):
                raise UsageError("invalid_host_name", host=host)
        return tuple(host.lower() for host in hosts)

    @field_validator("connections")
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
