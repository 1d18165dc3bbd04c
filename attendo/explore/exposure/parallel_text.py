"""The text that exposure is measured on: source lines with one reference each, as texts and as ids."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from attendo.data.batch import Example
from attendo.data.corpus_files import read_parallel_lines
from attendo.errors import DataError, MessagePart, UsageError
from attendo.text.tokenizer import end_source
from attendo.text_model import TextModel, TooLongError
from attendo.text_model.scoring import encode_pairs


@dataclass(frozen=True)
class ParallelText:
    """Sources and references, line by line. The names appear in errors."""

    sources: Sequence[str]
    references: Sequence[str]
    source_name: Path | str = "source"
    reference_name: Path | str = "reference"

    def __post_init__(self) -> None:
        if len(self.sources) != len(self.references):
            counts = {"sources": len(self.sources), "references": len(self.references)}
            raise UsageError("source_reference_count_mismatch", **counts)
        if not self.sources:
            raise DataError("file_is_empty", path=self.source_name)
        for line, (source, reference) in enumerate(zip(self.sources, self.references, strict=True)):
            if not (source.strip() and reference.strip()):
                raise DataError("exposure_line_blank", text=self.name_line(line, reference=bool(source.strip())))

    @staticmethod
    def read(source: Path, reference: Path, limit: int | None = None) -> "ParallelText":
        """Read both files, which must have equally many lines, and keep the first `limit` lines."""
        sources: list[str] = []
        references: list[str] = []
        for left, right in read_parallel_lines(source, reference):
            if limit is None or len(sources) < limit:
                sources.append(left)
                references.append(right)
        return ParallelText(sources, references, source, reference)

    def name_line(self, line: int, reference: bool) -> MessagePart:
        """Return the name of a line, counted from 0, for an error."""
        path = self.reference_name if reference else self.source_name
        return MessagePart("line_of_file", path=path, line=line + 1)

    def encode(self, model: TextModel) -> list[Example]:
        """Return the ids of each pair, with the prefixes of the model. Raise if a line is too long for the model."""
        config, most = model.generation.override(long_source="error"), model.backend.max_sequence_length
        try:
            pairs = encode_pairs(self.sources, self.references, config, model.source_tokenizer, model.target_tokenizer)
        except TooLongError as error:
            raise DataError(error.code, **{**error.values, "text": self.name_line(error.number, False)}) from None
        for line, pair in enumerate(pairs if most is not None else ()):
            assert most is not None
            # A doubled token makes the target longer by one.
            for tokens, limit, is_reference in (
                (len(end_source(pair.source)) - 1, most, False),
                (len(pair.target), most - 1, True),
            ):
                if tokens > limit:
                    place = self.name_line(line, is_reference)
                    raise DataError("source_exceeds_model_limit", text=place, tokens=tokens, limit=limit)
        return pairs
