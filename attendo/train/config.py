"""How a network learns. Apart from the loop, so that a run file can be checked without torch."""

from typing import Annotated

from pydantic import Field

from attendo.settings import Settings

Count = Annotated[int, Field(ge=1)]


class TrainConfig(Settings):
    """How a network learns."""

    steps: Count = Field(6000, description="updates in all")
    batch_tokens: Count = Field(8192, description="positions of the longer side in a batch, padding included")
    peak_lr: Annotated[float, Field(gt=0)] = Field(1e-3, description="highest learning rate, at the end of the warm-up")
    warmup: Annotated[int, Field(ge=0)] = Field(1000, description="steps up to peak_lr; then down by 1/√step")
    label_smoothing: Annotated[float, Field(ge=0, lt=1)] = 0.1
    clip_norm: Annotated[float, Field(gt=0)] = Field(1.0, description="largest gradient norm")
    validate_every: Count = Field(500, description="steps between looks at the validation data")
