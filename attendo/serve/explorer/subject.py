"""What a view is about: a source, and the answer to it that was given or that the model finds."""

from dataclasses import dataclass

from attendo.data.batch import Example
from attendo.serve.explorer.model_access import CooperativeTask, ExplorerSearch, encode_within_limit
from attendo.serve.explorer.schemas import TargetRequest
from attendo.serve.settings import ServeSettings
from attendo.text import BOS, EOS
from attendo.text_model import TextModel
from attendo.text_model.backends import TorchBackend
from attendo.text_model.trace import EncodedPair, Trace, trace_pair


@dataclass(frozen=True)
class InspectedPair:
    """A source and its answer as ids, and the model that is asked about them, its heads scaled where some are."""

    model: TextModel
    source: tuple[int, ...]  # eos left out
    target: tuple[int, ...]  # of the answer, eos left out
    cut: bool  # whether its end did not come, or was forced by the limit
    has_end: bool  # whether eos is predicted
    text: str  # of the answer
    target_given: bool
    unknown: tuple[str, ...]  # words of the source that the vocabulary lacks
    unknown_in_target: tuple[str, ...] = ()

    @staticmethod
    def build(model: TextModel, request: TargetRequest, settings: ServeSettings) -> "CooperativeTask[InspectedPair]":
        """Where no answer is given, the model's own is searched for, token by token."""
        search = ExplorerSearch(model, request.text, request.decoder, settings.tokens, settings.tokens - 1)
        unknown = tuple(model.source_tokenizer.unknown(request.text))
        if request.target is None:
            best = (yield from search.generate())[0]
            return InspectedPair(model, search.source, best.ids, best.cut, best.has_end, best.text, False, unknown)
        positions = model.runtime.max_sequence_length
        most = settings.tokens if positions is None else min(settings.tokens, positions + 1)
        ids = encode_within_limit(request.target, model.target_tokenizer, search.target_prefix, most, "target")
        in_target = tuple(model.target_tokenizer.unknown(request.target))
        return InspectedPair(model, search.source, ids, False, True, request.target, True, unknown, in_target)

    @property
    def source_ids(self) -> tuple[int, ...]:
        return (*self.source, EOS)

    @property
    def predicted_ids(self) -> tuple[int, ...]:
        """An answer that was cut before its end never came to predict eos."""
        return (*self.target, EOS) if self.has_end else self.target

    @property
    def read_ids(self) -> tuple[int, ...]:
        return (BOS, *self.predicted_ids[:-1])

    def trace(self, masked: bool = True, layer: int | None = None) -> Trace:
        model = self.model
        tokenizers = model.source_tokenizer, model.target_tokenizer
        pair = EncodedPair(self.source_ids, self.predicted_ids, *tokenizers, self.target_given, self.unknown)
        heads = model.runtime.heads if isinstance(model.runtime, TorchBackend) else {}
        return trace_pair(model.network, pair, heads, masked, layer)

    def log_probabilities(self, model: TextModel | None = None) -> list[float]:
        """Of each token that stands there, by this model or another one."""
        model = model or self.model
        with model.runtime.inference_mode():
            (scored,) = model.runtime.score([Example(self.source, self.target)], model.target_tokenizer)
        return list(scored.log_probabilities[: len(self.predicted_ids)])
