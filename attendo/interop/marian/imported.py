"""Result of an import from Marian: network, vocabulary permutations, tokenizers and decoding defaults."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from attendo.errors import MessagePart
from attendo.interop.huggingface.vocabulary import VocabularyPermutation
from attendo.interop.marian.archive import ModelFiles
from attendo.model.transformer import Transformer
from attendo.model_folder import StoredModel
from attendo.text import Tokenizer
from attendo.text_model import TextModel


@dataclass(frozen=True)
class MarianFolder:
    """A folder or zip file with a model of Marian."""

    files: ModelFiles
    weights: str  # name of the npz file
    vocabularies: tuple[str, str]  # names of the files of source and target
    model_type: str = "native Marian"

    @property
    def path(self) -> Path:
        return self.files.path


@dataclass(frozen=True)
class ImportedMarian:
    """An imported model. The permutations have one row more than Marian: the zero vector that starts its decoder."""

    folder: MarianFolder
    network: Transformer
    source: VocabularyPermutation
    target: VocabularyPermutation
    source_tokenizer: Tokenizer
    target_tokenizer: Tokenizer
    generation: dict[str, Any] = field(default_factory=dict)
    notes: tuple[MessagePart, ...] = ()  # differences from the original

    @property
    def decodes_as_it_scores(self) -> bool:
        """Whether Marian's decoder gives a translation the score that Marian's scorer gives it. False with pre-norm."""
        return self.network.config.norm == "post"

    def build_text_model(self) -> TextModel:
        return TextModel(StoredModel(self.network, self.source_tokenizer, self.target_tokenizer, self.generation))

    def remarks(self) -> list[MessagePart]:
        """Return the differences from the original."""
        return list(self.notes)
