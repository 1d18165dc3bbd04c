"""Result of an import: network, vocabulary permutations, tokenizers and decoding defaults."""

from dataclasses import dataclass, field
from typing import Any

from attendo.errors import MessagePart, ModelError
from attendo.interop.huggingface.folder import HuggingFaceFolder
from attendo.interop.huggingface.generation import import_generation
from attendo.interop.huggingface.vocabulary import VocabularyPermutation
from attendo.model.transformer import Transformer
from attendo.model_folder import StoredModel
from attendo.text import Tokenizer
from attendo.text_model import TextModel


@dataclass(frozen=True)
class ImportedModel:
    """An imported model. Tokenizers are None if only the network was requested."""

    folder: HuggingFaceFolder
    network: Transformer
    source: VocabularyPermutation
    target: VocabularyPermutation
    source_tokenizer: Tokenizer | None = None
    target_tokenizer: Tokenizer | None = None
    generation: dict[str, Any] = field(default_factory=dict)
    notes: tuple[MessagePart, ...] = ()  # differences from the original
    missing_languages: tuple[str, ...] = ()  # sides of a multilingual model, source or target, without a language

    def build_text_model(self) -> TextModel:
        """Return a text model. Raise a `ModelError` if the tokenizers were not loaded."""
        if self.source_tokenizer is None or self.target_tokenizer is None:
            raise ModelError("tokenizers_not_loaded", path=self.folder.path)
        return TextModel(StoredModel(self.network, self.source_tokenizer, self.target_tokenizer, self.generation))

    def remarks(self) -> list[MessagePart]:
        """Return the differences from the original and the missing languages."""
        return [*self.notes, *(MessagePart("language_unknown", side=side) for side in self.missing_languages)]


def read_token_id(folder: HuggingFaceFolder, name: str, default: int | None = None) -> int:
    """Return the id of a control token. A list must have exactly one id."""
    found = folder.setting(name)
    token = default if found.value is None else found.token()
    if token is None:
        raise found.make_error("needs_token")
    return token


def import_network(
    folder: HuggingFaceFolder, network: Transformer, source: VocabularyPermutation, target: VocabularyPermutation
) -> ImportedModel:
    """Return a model without tokenizers."""
    generation, notes = import_generation(folder, target)
    return ImportedModel(folder, network, source, target, generation=generation, notes=tuple(notes))
