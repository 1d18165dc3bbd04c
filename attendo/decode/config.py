"""How a model answers unless it is told otherwise: decoding defaults, kept in the model folder."""

from typing import Annotated, Any

from pydantic import Field

from attendo.settings import Settings


class GenerationConfig(Settings):
    """Decoding defaults. `beam` 1 is greedy; scores are log-probability / tokens ** length_penalty."""

    beam: Annotated[int, Field(ge=1)] = 1
    length_penalty: Annotated[float, Field(ge=0)] = 1.0  # 1 ranks by the average of a token, 0 by the sum
    max_length_factor: Annotated[float, Field(ge=0)] = 2.0  # the most tokens out: factor times the source's, plus extra
    max_length_extra: Annotated[int, Field(ge=1)] = 20
    batch_tokens: Annotated[int, Field(ge=1)] = 4096  # source positions decoded side by side, once for each beam row

    def changed(self, **given: Any) -> "GenerationConfig":
        """The same with the values that are given, those that are not None."""
        return self.replace(**{name: value for name, value in given.items() if value is not None})
