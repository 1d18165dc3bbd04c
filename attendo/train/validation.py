"""Validation: the loss on held-out pairs, and metrics of the decoded text."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import nn

from attendo.data.batch import Batch, Example, RaggedArray, collate, collate_windows
from attendo.data.bucketing import group_by_length, split_by_length
from attendo.data.pharaoh import Link
from attendo.data.token_links import TokenLinker
from attendo.metrics import Score, score
from attendo.model.parallel import ParallelTransformer
from attendo.nn.cpu_threads import adapt_threads
from attendo.text import PAD
from attendo.text_model import TextModel, eval_mode
from attendo.text_model.inputs import encode_symbols, truncate
from attendo.train.config import TrainConfig
from attendo.train.guided_alignment import AlignmentValidation
from attendo.train.loop import Validation, ValidationSample
from attendo.train.loss import cross_entropy_sum
from attendo.train.parallel_loss import sentence_losses
from attendo.train.update import Updater

TextPair = tuple[str, str]
MetricFunction = Callable[[Sequence[str], Sequence[str]], float]  # arguments: outputs, references
Item = TypeVar("Item")

_DECODE_PAIRS = {"cpu": 64, "cuda": 512}  # pairs decoded between two checks of `should_stop`
_MAX_CONTINUATION_TOKENS = 128  # maximum tokens of a logged continuation, its prompt included
_MAX_LOSS = 700.0  # largest loss whose perplexity does not overflow


class ValidationStoppedError(Exception):
    """A stop was requested during validation. The run has not changed, and validates again when resumed."""


class Validator:
    """Validates the model at a step. Decoding goes from text to text, as in use.

    `old_pairs` are the validation pairs of the model being fine-tuned, to measure forgetting. For a decoder-only model
    the loss is measured on `windows`, and the pairs are prompts and their continuations. `user_metrics` are functions
    supplied by the user.
    """

    def __init__(
        self,
        model: TextModel,
        pairs: Sequence[TextPair],
        updater: Updater,
        old_pairs: Sequence[TextPair] = (),
        windows: Iterable[Batch] | None = None,
        should_stop: Callable[[], bool] = lambda: False,
        user_metrics: Mapping[str, MetricFunction] | None = None,
    ) -> None:
        self.model, self.updater, self._should_stop = model, updater, should_stop
        self._user_metrics = user_metrics or {}
        self.config: TrainConfig = updater.config
        self._new = self._make_batches(pairs) if windows is None else ValidationSet(pairs, windows)
        self._old = self._make_batches(old_pairs) if old_pairs else None
        self._alignments: AlignmentValidation | None = None

    def __call__(self, step: int) -> Validation:
        with self.updater.eval_weights(), self.updater.autocast():
            loss, outputs, scores = self._evaluate(self._new)
            old_loss, _, old_scores = self._evaluate(self._old) if self._old else (math.nan, [], [])
            guided = self.updater.guided
            aligned = self._alignments.measure(self.model.network, guided) if self._alignments and guided else {}
        old = {"loss": old_loss, **{each.name: each.value for each in old_scores}} if self._old else {}
        shown = zip(self._new.pairs[: self.config.samples], outputs, strict=False)
        perplexity = {"perplexity": math.exp(min(loss, _MAX_LOSS))} if self.model.continues_text else {}
        return Validation(
            step=step,
            loss=loss,
            scores={each.name: each.value for each in scores} | perplexity | aligned,
            signatures={each.name: each.signature for each in scores},
            samples=tuple(ValidationSample(source, output, reference) for (source, reference), output in shown),
            old=old,
        )

    def _evaluate(self, validation_set: "ValidationSet") -> tuple[float, list[str], list[Score]]:
        loss = validation_loss(self.model.network, self._until_stopped(validation_set.batches))
        scored = self.config.metrics_to_decode or self._user_metrics
        pairs = validation_set.pairs[: self.config.metric_pairs if scored else self.config.samples]
        outputs = self._generate_outputs([source for source, _ in pairs])
        references = [target for _, target in pairs]
        scores = [score(name, outputs, references) for name in self.config.metrics_to_decode]
        own = [
            Score(name, float(metric(outputs, references)), "own", True) for name, metric in self._user_metrics.items()
        ]
        return loss, outputs, [*scores, *own]

    def _generate_outputs(self, sources: Sequence[str]) -> list[str]:
        # The weights change and passes run under autocast, which captured CUDA graphs would not follow.
        limit = {"max_length": _MAX_CONTINUATION_TOKENS} if self.model.continues_text else {}
        texts = [""] * len(sources)
        for group in self._until_stopped(split_by_length(sources, _DECODE_PAIRS[self.updater.device.type])):
            results = self.model.generate([sources[number] for number in group], engine="cached", **limit)
            for number, result in zip(group, results, strict=True):
                texts[number] = result.text.removeprefix(sources[number]) if limit else result.text
        return texts

    def _until_stopped(self, items: Iterable[Item]) -> Iterator[Item]:
        """Check for a stop request before each item, to avoid waiting for the whole validation. All ranks stop."""
        for part in items:
            if self.updater.world.any(self._should_stop()):
                raise ValidationStoppedError
            yield part

    def _make_batches(self, pairs: Sequence[TextPair]) -> "ValidationSet":
        if self.model.continues_text:
            return self._make_text_batches(pairs)
        source, target = self.model.source_tokenizer, self.model.target_tokenizer
        symbols = encode_symbols(self.model.generation, source, target)
        config, max_tokens = self.model.generation, self.model.generation.max_source - symbols.source_tokens
        sources = [truncate(source.encode(left), config, max_tokens)[0] for left, _ in pairs]
        targets = target.encode_many([right for _, right in pairs])
        pairs_of_ids = zip(sources, targets, strict=True)
        examples = [Example(symbols.wrap_source(one), (*symbols.begin, *other)) for one, other in pairs_of_ids]
        return ValidationSet(pairs, [collate(group) for group in group_by_length(examples, self.config.batch_tokens)])

    def measure_alignments(self, gold: Sequence[frozenset[Link] | None]) -> None:
        """Also measure a guided head from now on. `gold` are the links of words of each pair, or nothing."""
        if self.updater.guided is None or not any(gold):
            return
        pairs = self._new.pairs
        source, target = self.model.source_tokenizer, self.model.target_tokenizer
        linker, symbols = TokenLinker.of(source, target), encode_symbols(self.model.generation, source, target)
        most = self.model.generation.max_source - symbols.source_tokens
        ids = [(source.encode(one)[:most], target.encode(other)) for one, other in pairs]
        counts = [
            words.count_words(RaggedArray.from_lists(side)).tolist()
            for words, side in zip((linker.source, linker.target), zip(*ids, strict=True), strict=True)
        ]
        kept = [
            (pair, links)
            for pair, links, texts, one, other in zip(ids, gold, pairs, *counts, strict=True)
            if links is not None and (one, other) == (len(texts[0].split()), len(texts[1].split()))
        ]
        if kept:
            encoded, links_of_pairs = zip(*kept, strict=True)
            tokens = self.config.batch_tokens
            self._alignments = AlignmentValidation(encoded, links_of_pairs, linker, symbols, tokens)

    def _make_text_batches(self, pairs: Sequence[TextPair]) -> "ValidationSet":
        """Make windows of language-model text. The first token of each is given."""
        ids = self.model.target_tokenizer.encode_many([beginning + rest for beginning, rest in pairs])
        examples = [Example((), each) for each in ids if len(each) > 1]
        groups = group_by_length(examples, self.config.batch_tokens)
        windows = [RaggedArray.from_lists([example.target for example in group]) for group in groups]
        return ValidationSet(pairs, [collate_windows(each, first_is_given=True) for each in windows])


@dataclass(frozen=True)
class ValidationSet:
    """Validation pairs, as text and as batches."""

    pairs: Sequence[TextPair]
    batches: Iterable[Batch]


@torch.inference_mode()
def validation_loss(network: nn.Module, batches: Iterable[Batch]) -> float:
    """Return the loss per target token, without label smoothing and dropout."""
    device = next(network.parameters()).device
    total, tokens = torch.zeros((), dtype=torch.float64, device=device), 0
    with eval_mode(network):
        for batch in (each.to(device) for each in batches):
            adapt_threads()
            if isinstance(network, ParallelTransformer):
                losses = sentence_losses(network, batch.source_ids, batch.source_mask, batch.labels)
                fits = losses != math.inf  # a target with more tokens than the canvas has positions has no loss
                total += losses.double()[fits].sum()
                tokens += int((batch.labels != PAD)[fits].sum())
            else:
                logits = network(batch.source_ids, batch.target_ids, batch.source_mask)
                total += cross_entropy_sum(logits, batch.labels)
                tokens += batch.tokens
    return float(total) / tokens if tokens else math.nan
