"""Which text a run learns from: the settings of its data."""

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from attendo.settings import Settings

Count = Annotated[int, Field(ge=1)]


class CorpusConfig(Settings):
    """One corpus: two parallel text files, or one .tsv or .jsonl file; each plain, .gz or .xz."""

    source: Path | None = Field(None, description="source text, one sentence a line")
    target: Path | None = Field(None, description="target text, line by line beside it")
    file: Path | None = Field(None, description="instead of the two: a .tsv or .jsonl file with both sides")
    source_field: str | None = Field(None, description="column of the .tsv (from 1) or field of the .jsonl")
    target_field: str | None = Field(None, description="the same for the target")
    weight: Annotated[float, Field(gt=0)] = Field(1.0, description="how often an epoch goes through the corpus")
    tag: str | None = Field(None, description="a symbol put before every source text, such as <2de>")

    @model_validator(mode="after")
    def _one_form(self) -> Self:
        pair, fields = (self.source, self.target), (self.source_field, self.target_field)
        if self.file is None:
            if None in pair:
                raise ValueError("name the two text files (source and target), or one .tsv or .jsonl file (file)")
            if any(fields):
                raise ValueError("source_field and target_field belong to a .tsv or .jsonl file: give it as file")
            return self
        if any(pair):
            raise ValueError("give either source and target, or file, not both")
        if self.form == "jsonl" and None in fields:
            raise ValueError(f"{self.file}: name its fields in source_field and target_field")
        if self.form == "tsv" and not all(each is None or (each.isdecimal() and int(each)) for each in fields):
            raise ValueError(f"{self.file}: source_field and target_field are column numbers, from 1")
        return self

    @property
    def form(self) -> Literal["text", "tsv", "jsonl"]:
        if self.file is None:
            return "text"
        suffixes = [suffix for suffix in self.file.suffixes if suffix not in (".gz", ".xz")]
        if suffixes and suffixes[-1] == ".tsv":
            return "tsv"
        if suffixes and suffixes[-1] in (".jsonl", ".json"):
            return "jsonl"
        raise ValueError(f"{self.file}: the name must end in .tsv or .jsonl (and .gz or .xz)")

    def below(self, folder: Path | None) -> "CorpusConfig":
        """With its files in a folder; absolute names stay."""
        if folder is None:
            return self
        names = ("source", "target", "file")
        return self.replace(**{name: folder / getattr(self, name) for name in names if getattr(self, name)})

    @property
    def name(self) -> str:
        return str(self.file) if self.file is not None else f"{self.source} + {self.target}"


class DataConfig(Settings):
    """Which text a run learns from. Without validation files some pairs are kept back."""

    task: Literal["files", "builtin"] = Field("files", description="builtin: the English → Chinese grammar, no files")
    folder: Path | None = Field(None, description="where file names begin that are not absolute; here unless set")
    source: Path | None = Field(None, description="source text, one sentence a line; plain, .gz or .xz")
    target: Path | None = Field(None, description="target text, line by line beside it")
    file: Path | None = Field(None, description="instead of the two: a .tsv or .jsonl file with both sides")
    source_field: str | None = Field(None, description="column of the .tsv (from 1) or field of the .jsonl")
    target_field: str | None = Field(None, description="the same for the target")
    tag: str | None = Field(None, description="a symbol put before every source text, such as <2de>")
    corpora: tuple[CorpusConfig, ...] = Field((), description="instead of these: several corpora, each with a weight")
    prepared: Path | None = Field(None, description="instead of text: the folder that attendo prepare wrote")

    valid_source: Path | None = Field(
        None, description="source text to validate with; some pairs are kept back unless set"
    )
    valid_target: Path | None = Field(None, description="target text, line by line beside it")
    valid_file: Path | None = Field(None, description="instead of the two: a .tsv or .jsonl file, with fields as above")
    valid_tag: str | None = Field(None, description="as tag, of the validation files; the same unless set")

    max_bad_ratio: Annotated[float, Field(ge=0, le=1)] = Field(
        0.01, description="share of lines that may be left out as bad"
    )
    max_length: Count = Field(1024, description="most tokens of a side; a longer pair is a bad line")
    max_length_ratio: Annotated[float, Field(ge=1)] = Field(
        20.0, description="most tokens of one side for each of the other, in pairs with a side above 20 tokens"
    )
    pairs: Count = Field(60_000, description="sentences the builtin task makes")

    @model_validator(mode="after")
    def _check(self) -> Self:
        one = (self.source, self.target, self.file)
        given = [any(one), bool(self.corpora), self.prepared is not None]
        if self.task == "builtin" and (any(given) or self.valid is not None):
            raise ValueError("data.task builtin makes its own sentences: give no data files with it")
        if self.task == "files" and not any(given):
            raise ValueError("data.source and data.target are missing: name the two text files")
        if sum(given) > 1:
            raise ValueError("data: give one of source and target, file, corpora, or prepared")
        if self.prepared is not None and self.valid is not None:
            raise ValueError("data.prepared has its own validation pairs: name validation files when preparing")
        if not any(one) and (self.tag or (any((self.source_field, self.target_field)) and self.valid_file is None)):
            raise ValueError("data.tag, data.source_field and data.target_field belong to data.source or data.file")
        if self.valid_tag and self.valid is None:
            raise ValueError("data.valid_tag belongs to validation files: name them, or leave it out")
        self.training, self.valid  # noqa: B018  (the corpora check themselves when made)
        return self

    @property
    def training(self) -> tuple[CorpusConfig, ...]:
        """The corpora to learn from."""
        if self.task == "builtin" or self.prepared is not None:
            return ()
        if self.corpora:
            return tuple(each.below(self.folder) for each in self.corpora)
        fields = ("source", "target", "file", "source_field", "target_field", "tag")
        return (CorpusConfig(**{name: getattr(self, name) for name in fields}).below(self.folder),)

    @property
    def valid(self) -> CorpusConfig | None:
        """The validation pairs, where files hold them."""
        if not any((self.valid_source, self.valid_target, self.valid_file)):
            return None
        if self.valid_file is None and None in (self.valid_source, self.valid_target):
            raise ValueError("give both data.valid_source and data.valid_target, or neither")
        fields = (
            {} if self.valid_file is None else {"source_field": self.source_field, "target_field": self.target_field}
        )
        tag = self.valid_tag or self.tag
        files = {"source": self.valid_source, "target": self.valid_target, "file": self.valid_file}
        return CorpusConfig(**files, tag=tag, **fields).below(self.folder)
