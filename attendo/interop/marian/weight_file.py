"""What the files of weights have in common: tensors by name, read a few rows at a time."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import IO, Protocol

from torch import Tensor

from attendo.errors import MessagePart, ModelError, cut_text

SETTINGS_TENSOR = "special:model.yml"
SPECIAL_PREFIX = "special:"
CHUNK_BYTES = 1024**2  # of a tensor in memory, beside the network


class TensorHeader(Protocol):
    """The type and shape of a tensor, and its position in the file."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def is_float(self) -> bool: ...

    @property
    def type_name(self) -> str: ...

    @property
    def position(self) -> int: ...


class WeightFile(ABC):
    """An open file of weights."""

    def __init__(self, path: str, headers: Mapping[str, TensorHeader]) -> None:
        self.path, self.headers = path, headers

    @property
    def is_quantized(self) -> bool:
        """Whether weights are integers."""
        return False

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shapes of the weights, without Marian's special entries."""
        return {name: each.shape for name, each in self.headers.items() if not name.startswith(SPECIAL_PREFIX)}

    @abstractmethod
    def read_bytes(self, name: str) -> bytes:
        """Return an entry of single bytes, such as the settings."""

    @abstractmethod
    def iter_rows(self, name: str) -> Iterator[tuple[int, Tensor]]:
        """Yield the rows of a weight in float32: the number of the first row, and some rows."""

    def make_error(self, name: str, reason: MessagePart) -> ModelError:
        return ModelError("weight_tensor_invalid", path=self.path, tensor=cut_text(name), reason=reason)


def read_exactly(file: IO[bytes], count: int) -> bytes:
    content = file.read(count)
    if len(content) < count:
        raise EOFError("the file ends too early")
    return content
