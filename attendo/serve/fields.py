"""What requests of our own API are made of: fields with their bounds, shared by programs and the page."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

Count = Annotated[int, Field(ge=1)]
Natural = Annotated[int, Field(ge=0)]
ModelName = Annotated[str, Field(max_length=500)]

# Beyond these bounds numbers only overflow.
Normalise = Literal["none", "average", "gnmt", "reward"]
Stop = Literal["first", "settled", "exhaustive", "first_come", "leader", "shrinking"]
Diversity = Annotated[float, Field(ge=0, le=100)]
Patience = Annotated[float, Field(gt=0, le=100)]
Temperature = Annotated[float, Field(ge=0.01, le=100)]
TopK = Annotated[int, Field(ge=0, le=1_000_000)]
Share = Annotated[float, Field(ge=0.000_001, le=1)]
Least = Annotated[float, Field(ge=0, le=1)]
Seed = Annotated[int, Field(ge=-(2**63), lt=2**63)]
LengthPenalty = Annotated[float, Field(ge=-10, le=10)]
WordPenalty = Annotated[float, Field(ge=-100, le=100)]
Ngram = Annotated[int, Field(ge=0, le=100)]
RepetitionPenalty = Annotated[float, Field(ge=0.01, le=100)]
Weight = Annotated[float, Field(ge=0, le=100)]


class Asked(BaseModel):
    """Numbers are numbers and texts are texts: nothing is turned into the other."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class Told(BaseModel):
    """What an answer holds, and nothing beside it; a number that is not finite is null."""

    model_config = ConfigDict(frozen=True, extra="forbid")
