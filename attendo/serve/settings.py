"""What a server allows: hosts, keys, sizes, lengths, times."""

from pathlib import Path
from typing import Literal

from pydantic import Field

from attendo.settings import Settings

LOOPBACK = ("127.0.0.1", "localhost", "::1")


class ServeSettings(Settings):
    """Limits are there to be told, never to cut: what is above one is refused with a way out."""

    # who may ask
    hosts: tuple[str, ...] = Field(LOOPBACK, description="names that a request may call this server by")
    keys: tuple[str, ...] = Field((), description="that requests must bring one of; none: everybody may ask")
    cors_origins: tuple[str, ...] = Field((), description="pages of other servers that a browser may ask from")
    metrics_open: bool = Field(False, description="whether others than this machine may read /metrics")

    # how a request arrives
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
