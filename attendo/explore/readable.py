"""Whether a model can be looked into with a text: it reads this one whole, or reads a source at all."""

from attendo.errors import UsageError
from attendo.text_model import TextModel


def check_readable(model: TextModel, text: str) -> None:
    """A `UsageError` where the text has more tokens than the model reads, for what looks into a run splits nothing."""
    tokens = len(model.source_tokenizer.encode(text))
    most = min(model.generation.max_source, model.runtime.longest or model.generation.max_source)
    if tokens > most:
        raise UsageError("text_exceeds_model_length", tokens=tokens, limit=most)


def check_source(model: TextModel) -> None:
    """A `UsageError` where the model reads none."""
    if model.network.config.decoder_only:
        raise UsageError("model_without_encoder")
