"""Model card: task, languages and training data of a model. Dialogue turns as one text."""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from attendo.settings import Settings
from attendo.text.languages import ISO_639_1

Task = Literal["translation", "summarization", "conversation", "generation"]
Share = Annotated[float, Field(ge=0, le=1)]
Language = Annotated[str, Field(pattern=r"^[a-z]{2,3}(-[A-Za-z0-9]{2,8})*$")]
TURN_SEPARATOR = "<turn>"  # between two turns; a symbol of tokenizers trained on conversations
_ESCAPED_SEPARATOR = "[turn]"  # without a space, which `data.without_spaces` would remove
CONTEXT_SEPARATOR = "<context>"  # after each preceding sentence; a symbol of tokenizers trained with context
_ESCAPED_CONTEXT = "[context]"


class ModelCard(Settings):
    """Task and languages of a model. Servers select a model by them. They do not affect computation."""

    task: Task | None = Field(None, description="task of the model")
    source_language: Language | None = Field(None, description="ISO 639 code of the source language, such as en")
    target_language: Language | None = Field(None, description="ISO 639 code of the target language")
    context_turns: Annotated[int, Field(ge=1)] | None = Field(
        None, description="maximum number of turns in a training source"
    )

    def to_dict(self) -> dict[str, Any]:
        """Return the known fields, as stored in the model folder."""
        return self.model_dump(exclude_none=True)


class TrainingSources(Settings):
    """Statistics of a sample of the training sources."""

    counted: Annotated[int, Field(ge=1)] = Field(description="sources in the sample")
    with_end: Share = Field(description="share of sources that end with sentence-final punctuation")
    several_sentences: Share = Field(description="share of sources with more than one sentence")
    tokens: dict[str, Annotated[int, Field(ge=0)]] = Field(
        default_factory=dict, description="percentiles of the source length in tokens, by percentile number"
    )

    @property
    def are_single_sentences(self) -> bool | None:
        """Whether fewer than 10% of the sources have several sentences.

        None if most lack final punctuation, so that sentences cannot be counted.
        """
        if self.several_sentences >= 0.1:
            return False
        return True if self.with_end >= 0.5 else None


class TrainedModelCard(ModelCard):
    """The model card of a model folder: user-provided fields and training statistics."""

    trained_on: TrainingSources | None = Field(None, description="statistics of the training sources")


def infer_model_card(source: Path, target: Path) -> ModelCard:
    """Infer the card from file names: train.en.gz and train.de are English to German translation."""
    names = [_language_suffix(path) for path in (source, target)]
    if None in names or names[0] == names[1]:
        return ModelCard()
    return ModelCard(task="translation", source_language=names[0], target_language=names[1])


def _language_suffix(path: Path) -> str | None:
    endings = [suffix[1:].lower() for suffix in path.suffixes if suffix not in (".gz", ".xz")]
    return endings[-1] if endings and endings[-1] in ISO_639_1 else None


def join_turns(turns: Iterable[str]) -> str:
    return TURN_SEPARATOR.join(turns)


def join_context(preceding: Iterable[str], sentence: str) -> str:
    """Return a sentence with the preceding ones before it."""
    return f"{CONTEXT_SEPARATOR} ".join([*preceding, sentence])


def escape_context(text: str) -> str:
    """Escape the separator in a sentence, so that it cannot contain several."""
    return text.replace(CONTEXT_SEPARATOR, _ESCAPED_CONTEXT)


def escape_turn(text: str) -> str:
    """Escape the turn separator in a user's text, so that a text cannot contain several turns."""
    return text.replace(TURN_SEPARATOR, _ESCAPED_SEPARATOR)
