"""Models that learned with a tag before every source, such as <2de>: a text without one is not what they know."""

import warnings
from collections.abc import Sequence

from attendo.decode.config import GenerationConfig
from attendo.store import StoredModel
from attendo.text_model.runtimes import ExportedFolder

_SHOWN = 12  # tags that a message names


class UntaggedWarning(UserWarning):
    """A text without a tag, for a model that learned with one before every text."""


def warn_untagged(texts: Sequence[str], stored: StoredModel | ExportedFolder, config: GenerationConfig) -> None:
    """Tags are symbols that all sources in the model's sample begin with. Which is meant, only who asks can know."""
    symbols = set(stored.source_tokenizer.symbols)
    if not symbols or config.source_prefix or not isinstance(stored, StoredModel):
        return
    if all(_first(text) in symbols for text in texts if text.strip()):
        return
    tags = {_first(source) for source, _ in stored.sample}
    if tags and tags <= symbols:
        named = ", ".join(sorted(tags)[:_SHOWN])
        message = f"this model learned with a tag before every text, such as {named}: begin each with one, and a space"
        warnings.warn(message, UntaggedWarning, stacklevel=4)


def _first(text: str) -> str:
    """What stands before the first space."""
    return text.partition(" ")[0]
