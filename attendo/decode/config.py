"""Default decoding settings of a model, stored in the model folder."""

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Self

from pydantic import Field, create_model, model_validator

from attendo.decode.options import (
    MAX_FINISHED,
    RENAMED_SETTINGS,
    RENAMED_VALUES,
    GenerationFields,
    OptionInfo,
    list_options,
)
from attendo.errors import UsageError
from attendo.settings import Settings

_CPU_BATCH_TOKENS, _GPU_BATCH_TOKENS = 4096, 32768


# Settings that need a source, with their neutral values. A model without a source rejects other values.
SOURCE_SETTINGS: dict[str, Any] = {
    "coverage_penalty": 0.0,
    "min_length_factor": 0.0,
    "max_length_factor": 0.0,
    "source_prefix": (),
    "source_suffix": (),
    "context_sentences": 0,
    "long_source": "error",
}


def make_field(option: dataclasses.Field[Any], default: Any, **changes: Any) -> Any:
    """Return a pydantic field with the declared description and bounds. `changes` override them."""
    info: OptionInfo = option.metadata["option"]
    return Field(default, **{"description": info.description, **info.bounds, **changes})


if TYPE_CHECKING:

    class _GenerationModel(Settings, GenerationFields): ...

else:
    _GenerationModel = create_model(
        "_GenerationModel",
        __base__=Settings,
        **{each.name: (each.type, make_field(each, default=each.default)) for each in list_options(GenerationFields)},
    )


class GenerationConfig(_GenerationModel):
    """Decoding defaults of a model, declared in `decode/options.py`.

    `decode/ranking.py` has the formulas of the scores, `decode/beam.py` the stop rules. Names and values
    of version 0.1.0 are accepted silently, because stored files have them.
    """

    renamed: ClassVar[Mapping[str, str]] = RENAMED_SETTINGS
    renamed_values: ClassVar[Mapping[str, Mapping[str, str]]] = RENAMED_VALUES
    warns_of_old_names: ClassVar[bool] = False

    def resolve_batch_tokens(self, on_gpu: bool) -> int:
        """Return `batch_tokens`, or the device's default if it is 0."""
        return self.batch_tokens or (_GPU_BATCH_TOKENS if on_gpu else _CPU_BATCH_TOKENS)

    def override(self, **options: Any) -> "GenerationConfig":
        """Return a copy with the options that are not None."""
        return self.replace(**{name: value for name, value in options.items() if value is not None})

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.beam % self.beam_groups:
            raise UsageError("beam_not_divisible_by_groups", groups=self.beam_groups, beam=self.beam)
        if self.beam * self.patience > MAX_FINISHED:
            raise UsageError("beam_patience_too_large", limit=MAX_FINISHED, beam=self.beam, patience=self.patience)
        if self.sample and self.beam_groups > 1:
            raise UsageError("sample_groups_conflict")
        return self
