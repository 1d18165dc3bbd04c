"""How text becomes ids: the settings of a tokenizer."""

from typing import Annotated, Any, Literal, Self

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from attendo.settings import Settings
from attendo.text.symbols import checked_symbols


class TokenizerConfig(Settings):
    """How text becomes ids."""

    kind: Literal["bpe", "unigram", "characters", "words", "bytes"] = Field(
        "bpe", description="what a token is; bpe and unigram are pieces of words, learned from the text"
    )
    size: Annotated[int, Field(ge=8)] = Field(8000, description="vocabulary at most; of each side unless joint")
    joint: bool = Field(False, description="one vocabulary for source and target, as tie all needs")
    dropout: Annotated[float, Field(ge=0, lt=1)] = Field(
        0.0, description="share of merges refused while training, so that words are cut differently (BPE-dropout)"
    )
    symbols: tuple[str, ...] = Field((), description="texts that are one token each and never cut, such as <2de>")

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.dropout and self.kind != "bpe":
            raise ValueError(f"tokenizer.dropout refuses merges, which kind {self.kind} does not have: use kind bpe")
        if self.kind == "bytes" and "size" in self.model_fields_set:
            raise ValueError(f"tokenizer.size {self.size} means nothing with kind bytes, 256 of them: leave it out")
        checked_symbols(self.symbols)
        return self

    @model_serializer(mode="wrap")
    def _without_idle_size(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """What is written down can be read back: with bytes a size would be refused."""
        values: dict[str, Any] = handler(self)
        return {name: value for name, value in values.items() if name != "size" or self.kind != "bytes"}
