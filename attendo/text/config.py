"""Tokenizer settings."""

from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from attendo.errors import UsageError
from attendo.settings import Settings
from attendo.text.tokenizer import validate_special_tokens

TokenizerKind = Literal["bpe", "unigram", "characters", "decomposed", "words", "spaced", "bytes"]


class TokenizerConfig(Settings):
    """Settings of a tokenizer."""

    kind: TokenizerKind = Field(
        "bpe",
        description="unit of a token; bpe and unigram are subwords, trained on the text; decomposed: "
        "characters and combining marks separately; spaced: words between spaces",
    )
    target_kind: TokenizerKind | None = Field(None, description="kind of the target tokenizer; default: kind")
    file: Path | None = Field(None, description="SentencePiece model (.model) to use instead of training a tokenizer")
    target_file: Path | None = Field(None, description="SentencePiece model of the target; default: file")
    size: Annotated[int, Field(ge=8)] = Field(8000, description="maximum vocabulary size, per side unless joint")
    joint: bool = Field(False, description="one vocabulary for source and target; tie = all needs it")
    dropout: Annotated[float, Field(ge=0, lt=1)] = Field(
        0.0, description="BPE-dropout: share of merges skipped during training"
    )
    symbols: tuple[str, ...] = Field((), description="texts that are always one token, such as <2de>")

    @model_validator(mode="after")
    def _check(self) -> Self:
        self._check_files()
        if self.joint and self.target_kind not in (None, self.kind):
            raise UsageError("joint_vocabulary_kinds_differ", kind=self.kind, target_kind=self.target_kind)
        if self.dropout and (other := self.kinds - {"bpe"}):
            raise UsageError("dropout_without_merges", kind=min(other))
        if self.kinds == {"bytes"} and "size" in self.model_fields_set:
            raise UsageError("byte_vocabulary_size_fixed", size=self.size)
        validate_special_tokens(self.symbols)
        return self

    def _check_files(self) -> None:
        if self.file is None:
            if self.target_file is not None:
                raise UsageError("target_file_without_file")
            return
        for name in ("kind", "target_kind", "size", "dropout"):
            if name in self.model_fields_set and getattr(self, name) != type(self).model_fields[name].default:
                raise UsageError("tokenizer_file_setting_conflict", option=name)
        if self.joint and self.target_file is not None:
            raise UsageError("joint_vocabulary_two_files")

    @property
    def kinds(self) -> set[str]:
        """The kinds of both sides."""
        return {self.kind, self.target_kind or self.kind}

    @model_serializer(mode="wrap")
    def _drop_unused_fields(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Omit fields that validation would reject on reading: size with bytes, kinds and size with a file."""
        values: dict[str, Any] = handler(self)
        idle = {"kind", "target_kind", "size"} if self.file else {"size"} if self.kinds == {"bytes"} else set()
        return {name: value for name, value in values.items() if name not in idle}
