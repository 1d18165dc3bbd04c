"""Settings of the training and validation data."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, Self, TypeVar

from pydantic import BeforeValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from attendo.errors import UsageError
from attendo.settings import Settings

Count = Annotated[int, Field(ge=1)]
MAX_CONTEXT_SENTENCES = 16
# A run file may give a column number without quotes.
FieldName = Annotated[str, BeforeValidator(lambda name: str(name) if type(name) is int else name)]


def _check_files(value: Any) -> Any:
    """Replace a list of one file by that file: a run is identified by its settings, and both are equivalent."""
    files = list(value) if isinstance(value, list | tuple) else [value]
    if not files or not all(isinstance(each, str | Path) for each in files):
        raise PydanticCustomError("files_type", "neither a file nor a list of files")
    return files[0] if len(files) == 1 else tuple(files)


Files = Annotated[Path | tuple[Path, ...], BeforeValidator(_check_files)]
AnyFile = TypeVar("AnyFile")  # one file or several


class PairFiles(Settings, Generic[AnyFile]):
    """Files with sentence pairs, and how they are read."""

    source: AnyFile | None = Field(None, description="source text, one sentence per line; plain, .gz or .xz")
    target: AnyFile | None = Field(None, description="target text, aligned with source line by line")
    file: AnyFile | None = Field(
        None,
        description="instead of source and target: a .tsv, .csv, .jsonl, .parquet or .arrow file with both sides, or a "
        "folder of .parquet or .arrow files",
    )
    source_field: FieldName | None = Field(
        None,
        description="column of the .tsv or .csv, by number from 1 or by name in the first line; or field of the "
        ".jsonl or table, such as translation.en. Default: 1 or source",
    )
    target_field: FieldName | None = Field(None, description="the same for the target. Default: 2 or target")
    features_field: FieldName | None = Field(
        None,
        description="column or field of features separated by ;, each prepended to the source as a symbol: <V><PST>",
    )
    turns_field: str | None = Field(
        None,
        description="field of a .jsonl file or table with the turns of a conversation; the preceding turns are the "
        "source",
    )
    context_turns: Count = Field(4, description="maximum number of preceding turns in the source")
    answers: Literal["all", "second"] = Field(
        "all", description="turns used as targets: all but the first, or every second one (two speakers taking turns)"
    )
    context_sentences: Annotated[int, Field(ge=0, le=MAX_CONTEXT_SENTENCES)] = Field(
        0,
        description="preceding lines before every source, for documents in source and target; a line that is empty in "
        "both ends a document",
    )
    without_spaces: bool = Field(
        False, description="remove all spaces, for text whose characters are separated by spaces"
    )
    tag: str | None = Field(None, description="symbol prepended to every source text, such as <2de>")
    alignments: AnyFile | None = Field(
        None,
        description="word alignments of the pairs, one line each such as 0-0 1-2 (Pharaoh format), for "
        "train.guided_alignment; with task builtin: builtin",
    )


class CorpusConfig(PairFiles[Path]):
    """One corpus: two parallel text files, or one .tsv, .csv or .jsonl file; each plain, .gz or .xz."""

    weight: Annotated[float, Field(gt=0)] = Field(1.0, description="how often an epoch uses the corpus")

    @model_validator(mode="after")
    def _check_format(self) -> Self:
        pair, fields = (self.source, self.target), (self.source_field, self.target_field, self.features_field)
        if self.turns_field is None and (idle := list_non_defaults(self, TURN_SETTINGS)):
            raise UsageError("turn_setting_without_turns", option=idle[0])
        if self.alignments is not None:
            for name in ("without_spaces", "turns_field", "context_sentences"):
                if getattr(self, name):
                    raise UsageError("alignments_without_words", option=name)
        if self.without_spaces and self.context_sentences:  # a space follows the separator
            raise UsageError("context_sentences_without_spaces")
        if self.file is not None and self.context_sentences:
            raise UsageError("context_sentences_without_text_files", path=self.file)
        if self.file is None:
            if None in pair:
                raise UsageError("corpus_files_missing")
            if any((*fields, self.turns_field)):
                raise UsageError("fields_without_table_file")
            return self
        if any(pair):
            raise UsageError("corpus_pair_file_conflict")
        if self.turns_field is not None:
            self._check_turns(fields)
        if self.format not in ("jsonl", "table"):
            self._check_columns(fields)
        return self

    def _check_columns(self, fields: tuple[str | None, ...]) -> None:
        if self.has_header and None in fields[:2]:
            raise UsageError("column_setting_missing", path=self.file)
        given = [each for each in fields if each is not None]
        if not self.has_header and not all(each.isdecimal() and int(each) for each in given):
            raise UsageError("invalid_column_settings", path=self.file)

    @property
    def has_header(self) -> bool:
        """Whether the first line names the columns: True if the settings give columns by name."""
        given = [each for each in (self.source_field, self.target_field, self.features_field) if each is not None]
        return self.format in ("tsv", "csv") and bool(given) and not any(each.isdecimal() for each in given)

    def _check_turns(self, fields: tuple[str | None, ...]) -> None:
        if self.format not in ("jsonl", "table"):
            raise UsageError("turns_field_without_jsonl", path=self.file)
        if any(fields):
            raise UsageError("turns_and_fields_conflict", path=self.file)

    @property
    def format(self) -> Literal["text", "tsv", "csv", "jsonl", "table"]:
        if self.file is None:
            return "text"
        if (form := detect_format(self.file)) is None:
            raise UsageError("unsupported_data_file_suffix", path=self.file)
        return form

    def in_folder(self, folder: Path | None) -> "CorpusConfig":
        """Return the corpus with its files in a folder. Absolute paths do not change."""
        if folder is None:
            return self
        names = ("source", "target", "file", "alignments")
        return self.replace(**{name: folder / getattr(self, name) for name in names if getattr(self, name)})

    @property
    def name(self) -> str:
        return str(self.file) if self.file is not None else f"{self.source} + {self.target}"


class DataConfig(PairFiles[Files]):
    """Training and validation data. Without validation files some pairs are held out.

    Several files are separate corpora, as in `corpora`: the first source belongs to the first target.
    """

    task: Literal["files", "builtin"] = Field("files", description="builtin: the English → Chinese grammar, no files")
    folder: Path | None = Field(None, description="base folder of relative file names; default: the current folder")
    corpora: tuple[CorpusConfig, ...] = Field(
        (), description="instead of source, target and file: several corpora, each with a weight"
    )
    text: Files | None = Field(
        None, description="instead of pairs: plain text for a language model (model.num_encoder_layers 0)"
    )
    text_field: str | None = Field(None, description="field with the text in a .jsonl file; default: text")
    prepared: Path | None = Field(None, description="instead of text: a folder written by attendo prepare")

    valid_source: Files | None = Field(
        None, description="source text for validation; default: some training pairs are held out"
    )
    valid_target: Files | None = Field(
        None, description="target text for validation, aligned with valid_source line by line"
    )
    valid_file: Files | None = Field(
        None, description="instead of valid_source and valid_target: a .tsv, .csv or .jsonl file, with fields as above"
    )
    valid_corpora: tuple[CorpusConfig, ...] = Field(
        (), description="instead of these: several validation corpora, as in corpora"
    )
    valid_alignments: Files | None = Field(
        None, description="word alignments of the validation pairs, in the same format"
    )
    valid_text: Files | None = Field(None, description="plain text for validation; default: the end of text")
    valid_tag: str | None = Field(None, description="tag of the validation files; default: tag")

    max_bad_ratio: Annotated[float, Field(ge=0, le=1)] = Field(
        0.01, description="share of lines that may be skipped as bad"
    )
    max_length: Count = Field(1024, description="maximum tokens per side; a longer pair is a bad line")
    cut_source: Count | None = Field(
        None, description="truncate longer sources to this number of tokens; the model then does the same"
    )
    max_length_ratio: Annotated[float, Field(ge=1)] = Field(
        20.0, description="maximum ratio of the token counts of both sides, for pairs with a side above 20 tokens"
    )
    drop_duplicates: bool = Field(
        False,
        description="drop training pairs that are equal to an earlier pair of any corpus, or to a validation pair",
    )
    drop_copies: bool = Field(False, description="drop training pairs whose target equals the source")
    languages: tuple[str, str] | None = Field(
        None,
        description="languages of source and target, such as en and de: training pairs that are clearly in another one "
        "are dropped (extra detect)",
    )
    temperature: Annotated[float, Field(ge=1)] = Field(
        1.0,
        description="raises the weights of small corpora: shares of an epoch are proportional to pairs to the power of "
        "1 / temperature; corpora with equal tags count as one",
    )
    window: Annotated[int, Field(ge=2)] = Field(256, description="tokens of plain text per example")
    stride: Count | None = Field(
        None, description="tokens between the starts of two windows; default: a quarter of window"
    )
    valid_share: Annotated[float, Field(gt=0, lt=1)] = Field(
        0.1, description="share of the plain text, at its end, that is held out for validation"
    )
    pairs: Count = Field(60_000, description="number of sentences of the builtin task")
    allow_copies: bool = Field(False, description="allow every target to equal its source (a copy task)")

    @model_validator(mode="after")
    def _check(self) -> Self:
        one = (self.source, self.target, self.file)
        given = [any(one), bool(self.corpora), self.text is not None, self.prepared is not None]
        if self.task == "builtin" and (any(given) or self.validation):
            raise UsageError("builtin_task_with_files")
        if self.alignments is not None and not any(one) and not self.has_builtin_alignments:
            raise UsageError("alignments_without_files")
        if self.valid_alignments is not None and not any((self.valid_source, self.valid_file)):
            raise UsageError("alignments_without_files")
        if self.task == "files" and not any(given):
            raise UsageError("training_files_missing")
        if sum(given) > 1:
            raise UsageError("multiple_data_sources")
        if self.text is None and self.valid_text is not None:
            raise UsageError("valid_text_without_text")
        if self.text is None and (idle := list_non_defaults(self, _LM_TEXT_SETTINGS)):
            raise UsageError("text_setting_without_text", option=idle[0])
        if self.task == "files" and list_non_defaults(self, ["pairs"]):
            raise UsageError("pairs_without_builtin_task", count=self.pairs)
        if self.text is not None and (idle := list_non_defaults(self, _FILTER_SETTINGS)):
            raise UsageError("pair_setting_with_text", option=idle[0])
        if self.prepared is not None and (idle := list_non_defaults(self, _FILTER_SETTINGS)):
            raise UsageError("setting_fixed_in_prepared_data", option=idle[0])
        if self.stride is not None and self.stride > self.window:
            raise UsageError("stride_exceeds_window", stride=self.stride, window=self.window)
        if self.text is not None and self.validation:
            raise UsageError("text_with_validation_pairs")
        if self.prepared is not None and self.validation:
            raise UsageError("prepared_data_with_validation_files")
        if not any(one) and self.valid_file is None and (idle := list_non_defaults(self, _CORPUS_SETTINGS)):
            raise UsageError("corpus_setting_without_files", option=idle[0])
        if not any(one) and self.tag:
            raise UsageError("tag_without_corpus_files")
        if self.valid_tag and not self._validation_files:
            raise UsageError("valid_tag_without_files")
        if self.valid_corpora and self._validation_files:
            raise UsageError("validation_sources_conflict")
        self.training, self.validation  # noqa: B018  (the corpora validate themselves when constructed)
        return self

    @model_validator(mode="after")
    def _check_copies(self) -> Self:
        same = next((each.source for each in self.training if each.source and each.source == each.target), None)
        if same is not None and not self.allow_copies:
            raise UsageError("source_target_same_file", path=same)
        return self

    @property
    def training(self) -> tuple[CorpusConfig, ...]:
        """The training corpora, with resolved paths."""
        if self.task == "builtin" or self.prepared is not None or self.text is not None:
            return ()
        if self.corpora:
            return tuple(each.in_folder(self.folder) for each in self.corpora)
        reading = {name: getattr(self, name) for name in (*_CORPUS_SETTINGS, "tag")}
        return tuple(CorpusConfig(**files, **reading).in_folder(self.folder) for files in self._corpus_files(""))

    @property
    def most_context(self) -> int:
        """The greatest number of preceding lines before a source."""
        return max((each.context_sentences for each in self.training), default=0)

    @property
    def text_files(self) -> tuple[tuple[Path, ...], tuple[Path, ...]]:
        """Plain-text files for training, and for validation if given."""
        folder = self.folder or Path()
        first, second = (tuple(folder / each for each in as_tuple(files)) for files in (self.text, self.valid_text))
        return first, second

    def resolve_paths(self) -> "DataConfig":
        """Return the settings with paths that are valid in any working folder."""
        if self.prepared is not None:
            return self.replace(prepared=self.prepared.absolute())
        texts = [path for files in self.text_files for path in files]
        names = ("source", "target", "file", "alignments")
        pairs = [getattr(each, name) for each in (*self.training, *self.validation) for name in names]
        if all(path is None or path.is_absolute() for path in (*texts, *pairs)):
            return self
        return self.replace(folder=(self.folder or Path()).absolute())

    @property
    def window_stride(self) -> int:
        """Tokens between the starts of two windows."""
        return self.stride or max(1, self.window // 4)

    @property
    def validation(self) -> tuple[CorpusConfig, ...]:
        """The validation corpora; empty if pairs are held out."""
        if self.valid_corpora:
            return tuple(each.in_folder(self.folder) for each in self.valid_corpora)
        return self._validation_files

    @property
    def _validation_files(self) -> tuple[CorpusConfig, ...]:
        if not any((self.valid_source, self.valid_target, self.valid_file)):
            return ()
        if self.valid_file is None and None in (self.valid_source, self.valid_target):
            raise UsageError("validation_side_missing")
        names = _CORPUS_SETTINGS if self.valid_file is not None else TEXT_FILE_SETTINGS
        reading = {name: getattr(self, name) for name in names} | {"tag": self.valid_tag or self.tag}
        return tuple(CorpusConfig(**files, **reading).in_folder(self.folder) for files in self._corpus_files("valid_"))

    def _corpus_files(self, prefix: str) -> list[dict[str, Path]]:
        """Return the files of each corpus: the first source with the first target, and so on."""
        named = {side: as_tuple(getattr(self, f"{prefix}{side}")) for side in ("source", "target", "file")}
        aligned = as_tuple(getattr(self, f"{prefix}alignments"))
        given = {side: files for side, files in named.items() if files}
        if len({len(files) for files in given.values()}) > 1 and "file" not in given:
            raise UsageError(
                "source_target_file_count_mismatch",
                prefix=prefix,
                sources=len(named["source"]),
                targets=len(named["target"]),
            )
        if "file" in given and len(given) > 1:
            raise UsageError("data_pair_file_conflict", prefix=prefix)
        if aligned:
            if any(len(files) != len(aligned) for files in given.values()):
                raise UsageError("alignment_file_count_mismatch", prefix=prefix, count=len(aligned))
            given["alignments"] = aligned
        return [dict(zip(given, files, strict=True)) for files in zip(*given.values(), strict=True)]

    @property
    def has_builtin_alignments(self) -> bool:
        """Whether the built-in task gives its own alignments."""
        return self.task == "builtin" and self.alignments == Path("builtin")

    @property
    def has_alignments(self) -> bool:
        """Whether any training pairs have alignments."""
        return self.has_builtin_alignments or any(each.alignments is not None for each in self.training)


TURN_SETTINGS = ("context_turns", "answers")
TEXT_FILE_SETTINGS = ("context_sentences", "without_spaces")  # apply to two text files
# How a corpus is read: settings of one corpus that [data] has too. They also apply to its validation file.
_CORPUS_SETTINGS = (
    "source_field",
    "target_field",
    "features_field",
    "turns_field",
    *TURN_SETTINGS,
    *TEXT_FILE_SETTINGS,
)
_LM_TEXT_SETTINGS = ("text_field", "window", "stride", "valid_share")
_FILTER_SETTINGS = (
    "max_bad_ratio",
    "max_length",
    "cut_source",
    "max_length_ratio",
    "drop_duplicates",
    "drop_copies",
    "languages",
    "temperature",
)


def as_tuple(files: Path | Sequence[Path] | None) -> tuple[Path, ...]:
    """Return no file, one file or several as a tuple."""
    if files is None:
        return ()
    return (files,) if isinstance(files, Path) else tuple(files)


def detect_format(file: Path) -> Literal["tsv", "csv", "jsonl", "table"] | None:
    """Return the format of a file with both sides, by its suffix; None for any other file.

    A folder, or a path without a suffix, is a folder of tables.
    """
    suffixes = [suffix for suffix in file.suffixes if suffix not in (".gz", ".xz")]
    found = _FORMATS.get(suffixes[-1]) if suffixes else None if file.suffix else "table"
    return "table" if found is None and file.is_dir() else found


_FORMATS: dict[str, Literal["tsv", "csv", "jsonl", "table"]] = {
    ".tsv": "tsv",
    ".csv": "csv",
    ".jsonl": "jsonl",
    ".json": "jsonl",
    ".parquet": "table",
    ".arrow": "table",
}


def list_non_defaults(settings: Settings, names: Sequence[str]) -> list[str]:
    """Return the names of the settings that differ from their defaults."""
    return [name for name in names if getattr(settings, name) != type(settings).model_fields[name].default]
