"""Errors that all formats share: incompatible networks, and exceptions of other libraries."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from attendo.errors import AttendoError, ErrorList, MessagePart, ModelError, cut_line
from attendo.model.config import ModelConfig
from attendo.nn.devices import is_out_of_memory

_MAX_REASONS_CHARS = 1500  # of all reasons together
MAX_ERROR_CHARS = 200  # of another library's error message


def unmet_conditions(conditions: Mapping[MessagePart, bool]) -> list[MessagePart]:
    """Return the reasons whose condition is not met."""
    return [reason for reason, is_met in conditions.items() if not is_met]


def join_reasons(reasons: Sequence[MessagePart]) -> ErrorList:
    """Return all reasons as one value of a message."""
    return ErrorList(reasons, _MAX_REASONS_CHARS)


def find_gemma_settings(config: ModelConfig) -> list[MessagePart]:
    """Return a reason for each setting of Gemma's networks, which few formats can hold, without the place of norms."""
    return [
        MessagePart("setting_differs", name=name, value=value, expected=ModelConfig.model_fields[name].default)
        for name, value in config.gemma_settings.items()
    ]


@contextmanager
def convert_errors(make_error: Callable[..., ModelError], keep_out_of_memory: bool = False) -> Iterator[None]:
    """Convert exceptions of another library, which have many classes, to `make_error(reason=...)`."""
    try:
        yield
    except AttendoError:
        raise
    except Exception as error:
        if keep_out_of_memory and is_out_of_memory(error):
            raise
        raise make_error(reason=cut_line(str(error), MAX_ERROR_CHARS)) from None
