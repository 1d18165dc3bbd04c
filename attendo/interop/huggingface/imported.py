"""What an import brings: a network, the order of its vocabularies, its tokenizers and its ways to answer."""

from dataclasses import dataclass, field
from typing import Any

from attendo.errors import ModelError
from attendo.interop.huggingface.folder import HuggingFaceFolder
from attendo.interop.huggingface.vocabulary import VocabularyPermutation
from attendo.model.transformer import Transformer
from attendo.model_folder import StoredModel
from attendo.text import Tokenizer
from attendo.text_model import TextModel

MULTILINGUAL_MODEL_TYPES = ("m2m_100", "mbart")


@dataclass(frozen=True)
class ImportedModel:
    """Tokenizers are missing where only the network was asked for."""

    folder: HuggingFaceFolder
    network: Transformer
    source: VocabularyPermutation
    target: VocabularyPermutation
    source_tokenizer: Tokenizer | None = None
    target_tokenizer: Tokenizer | None = None
    generation: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()  # what is not as it was there

    def build_text_model(self) -> TextModel:
        """With its tokenizers, ready to answer and to be saved."""
        if self.source_tokenizer is None or self.target_tokenizer is None:
            raise ModelError("tokenizers_not_loaded", path=self.folder.path)
        return TextModel(StoredModel(self.network, self.source_tokenizer, self.target_tokenizer, self.generation))

    def sides_without_language(self) -> list[str]:
        """The sides, source and target, whose language must still be told: before a text stands none."""
        if self.folder.model_type not in MULTILINGUAL_MODEL_TYPES:
            return []
        return [side for side in ("source", "target") if f"{side}_prefix" not in self.generation]

    def remarks(self) -> list[str]:
        """What is not as it was there, or must still be told, one line each."""
        languages = [
            f"it has several languages, and that of the {side} is not told: name it with --{side}-language, or "
            f"{side}_prefix in every call"
            for side in self.sides_without_language()
        ]
        return [*self.notes, *languages]


def read_token_id(folder: HuggingFaceFolder, name: str, default: int | None = None) -> int:
    """Of a control token. Of several ends there can be but one."""
    found = folder.setting(name)
    token = default if found.value is None else found.token()
    if token is None:
        raise found.make_error("one token")
    return token
