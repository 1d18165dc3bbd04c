"""What a server allows: hosts, sizes, lengths."""

from pydantic import Field

from attendo.settings import Settings

LOOPBACK = ("127.0.0.1", "localhost", "::1")


class ServeSettings(Settings):
    """Limits are there to be told, never to cut: what is above one is refused with a way out."""

    hosts: tuple[str, ...] = Field(LOOPBACK, description="names that a request may call this server by")
    header_bytes: int = Field(16 * 1024, ge=1, description="of all headers of a request together")
    body_bytes: int = Field(1024 * 1024, ge=1, description="of the body of a request")
    body_seconds: float = Field(10.0, gt=0, description="in which a body must have arrived")
    waiting: int = Field(32, ge=1, description="requests that may wait for one model")

    tokens: int = Field(256, ge=1, description="of a source or a target that is looked into, eos included")
    answer_tokens: int = Field(512, ge=1, description="of an answer")
    source_tokens: int = Field(1024, ge=1, description="of a source that is only answered")
    block_bytes: int = Field(32 * 1024 * 1024, ge=1, description="of the attention maps of one answer")
    checkpoints: int = Field(2, ge=1, description="of a run that are kept in memory")
