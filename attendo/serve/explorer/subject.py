"""The inspected pair: a source, and a target that is given or generated."""

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
    """Source and target as ids, and the model, possibly with scaled heads."""

    model: TextModel
    source: tuple[int, ...]  # without EOS
    target: tuple[int, ...]  # without EOS
    cut: bool  # the length limit was reached before the end, or forced EOS
    has_end: bool  # EOS is predicted
    text: str  # of the target
    target_given: bool
    unknown: tuple[str, ...]  # words of the source that are not in the vocabulary
    unknown_in_target: tuple[str, ...] = ()

    @staticmethod
    def build(model: TextModel, request: TargetRequest, settings: ServeSettings) -> "CooperativeTask[InspectedPair]":
        """Build the pair. Without a target in the request, the model generates one, token by token."""
        search = ExplorerSearch(
            model, request.text, request.decoder, settings.max_inspected_tokens, settings.max_inspected_tokens - 1
        )
        unknown = tuple(model.source_tokenizer.unknown(request.text))
        if request.target is None:
            best = (yield from search.generate())[0]
            return InspectedPair(model, search.source, best.ids, best.cut, best.has_end, best.text, False, unknown)
        positions = model.backend.max_sequence_length
        most = settings.max_inspected_tokens if positions is None else min(settings.max_inspected_tokens, positions + 1)
        ids = encode_within_limit(request.target, model.target_tokenizer, search.target_prefix, most, "target")
        in_target = tuple(model.target_tokenizer.unknown(request.target))
        return InspectedPair(model, search.source, ids, False, True, request.target, True, unknown, in_target)

    @property
    def source_ids(self) -> tuple[int, ...]:
        return (*self.source, EOS)

    @property
    def predicted_ids(self) -> tuple[int, ...]:
        """Return the predicted ids. A target cut before its end has no EOS."""
        return (*self.target, EOS) if self.has_end else self.target

    @property
    def read_ids(self) -> tuple[int, ...]:
        return (BOS, *self.predicted_ids[:-1])

    def trace(self, masked: bool = True, layer: int | None = None) -> Trace:
        model = self.model
        tokenizers = model.source_tokenizer, model.target_tokenizer
        pair = EncodedPair(self.source_ids, self.predicted_ids, *tokenizers, self.target_given, self.unknown)
        heads = model.backend.heads if isinstance(model.backend, TorchBackend) else {}
        return trace_pair(model.network, pair, heads, masked, layer)

    def log_probabilities(self, model: TextModel | None = None) -> list[float]:
        """Return the log-probability of each predicted token, from this model or another one."""
        model = model or self.model
        with model.backend.inference_mode():
            (scored,) = model.backend.score([Example(self.source, self.target)], model.target_tokenizer)
        return list(scored.log_probabilities[: len(self.predicted_ids)])
