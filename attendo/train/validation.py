"""How well the model does on pairs it does not learn from: their loss, and scores of the text it makes of them."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import nn

from attendo.data.batch import Batch, Example, Sequences, collate, collate_windows
from attendo.data.bucketing import group_by_length
from attendo.metrics import Score, score
from attendo.nn.cpu_threads import adapt_threads
from attendo.text_model import TextModel, evaluating
from attendo.text_model.inputs import prefixes_of, shortened
from attendo.train.config import TrainConfig
from attendo.train.loop import Sample, Validation
from attendo.train.loss import summed_loss
from attendo.train.update import Learner

TextPair = tuple[str, str]
Metric = Callable[[Sequence[str], Sequence[str]], float]  # of outputs and references
Part = TypeVar("Part")

_AT_ONCE = {"cpu": 64, "cuda": 512}  # pairs decoded between two looks at whether to stop
_CONTINUED = 128  # tokens of a continuation that is shown, its beginning included
_LARGEST = 700.0  # loss whose perplexity is still a number


class ValidationStoppedError(Exception):
    """Somebody asked for an end. Nothing is lost: the run has changed nowhere, and validates when it goes on."""


class Validator:
    """Called with the number of a step; decodes as a user would, text in and text out.

    `old` are the validation pairs of the model that is being fine-tuned: what it forgets shows there. Of running text
    `windows` are what the loss is measured on, and the pairs are beginnings to be continued. `own_metrics` are
    functions of a user.
    """

    def __init__(
        self,
        model: TextModel,
        pairs: Sequence[TextPair],
        learner: Learner,
        old: Sequence[TextPair] = (),
        windows: Iterable[Batch] | None = None,
        stop: Callable[[], bool] = lambda: False,
        own_metrics: Mapping[str, Metric] | None = None,
    ) -> None:
        self.model, self.learner, self._stop = model, learner, stop
        self._own_metrics = own_metrics or {}
        self.config: TrainConfig = learner.config
        self._new = self._batched(pairs) if windows is None else ValidationPart(pairs, windows)
        self._old = self._batched(old) if old else None

    def __call__(self, step: int) -> Validation:
        with self.learner.weights(), self.learner.autocast():
            loss, outputs, scores = self._validated(self._new)
            old_loss, _, old_scores = self._validated(self._old) if self._old else (math.nan, [], [])
        old = {"loss": old_loss, **{each.name: each.value for each in old_scores}} if self._old else {}
        shown = zip(self._new.pairs[: self.config.samples], outputs, strict=False)
        perplexity = {"perplexity": math.exp(min(loss, _LARGEST))} if self.model.decoder_only else {}
        return Validation(
            step=step,
            loss=loss,
            scores={each.name: each.value for each in scores} | perplexity,
            signatures={each.name: each.signature for each in scores},
            samples=tuple(Sample(source, output, reference) for (source, reference), output in shown),
            old=old,
        )

    def _validated(self, part: "ValidationPart") -> tuple[float, list[str], list[Score]]:
        loss = validation_loss(self.model.network, self._while_wanted(part.batches))
        scored = self.config.decoded_metrics or self._own_metrics
        pairs = part.pairs[: self.config.metric_pairs if scored else self.config.samples]
        outputs = self._outputs([source for source, _ in pairs])
        references = [target for _, target in pairs]
        scores = [score(name, outputs, references) for name in self.config.decoded_metrics]
        own = [
            Score(name, float(metric(outputs, references)), "own", True) for name, metric in self._own_metrics.items()
        ]
        return loss, outputs, [*scores, *own]

    def _outputs(self, sources: Sequence[str]) -> list[str]:
        # The weights change and passes run under autocast, which what was recorded for a GPU would not follow.
        limit = {"max_length": _CONTINUED} if self.model.decoder_only else {}
        at_once = _AT_ONCE[self.learner.device.type]
        order = sorted(range(len(sources)), key=lambda place: len(sources[place]))  # like lengths together
        texts = [""] * len(sources)
        for first in self._while_wanted(range(0, len(order), at_once)):
            group = order[first : first + at_once]
            results = self.model.generate([sources[place] for place in group], engine="cached", **limit)
            for place, result in zip(group, results, strict=True):
                texts[place] = result.text.removeprefix(sources[place]) if limit else result.text
        return texts

    def _while_wanted(self, parts: Iterable[Part]) -> Iterator[Part]:
        """Whoever asks for an end waits for one part, not for the whole validation. All ranks leave together."""
        for part in parts:
            if self.learner.world.any(self._stop()):
                raise ValidationStoppedError
            yield part

    def _batched(self, pairs: Sequence[TextPair]) -> "ValidationPart":
        if self.model.decoder_only:
            return self._batched_texts(pairs)
        source, target = self.model.source_tokenizer, self.model.target_tokenizer
        before, begin = prefixes_of(self.model.generation, source, target)
        sources = [shortened(source.encode(left), self.model.generation, len(before))[0] for left, _ in pairs]
        targets = target.encode_many([right for _, right in pairs])
        examples = [Example((*before, *one), (*begin, *other)) for one, other in zip(sources, targets, strict=True)]
        return ValidationPart(pairs, [collate(group) for group in group_by_length(examples, self.config.batch_tokens)])

    def _batched_texts(self, pairs: Sequence[TextPair]) -> "ValidationPart":
        """Each a window of running text, whose first token is given."""
        ids = self.model.target_tokenizer.encode_many([beginning + rest for beginning, rest in pairs])
        examples = [Example((), each) for each in ids if len(each) > 1]
        groups = group_by_length(examples, self.config.batch_tokens)
        windows = [Sequences.of([example.target for example in group]) for group in groups]
        return ValidationPart(pairs, [collate_windows(each, first_is_given=True) for each in windows])


@dataclass(frozen=True)
class ValidationPart:
    """Pairs as text, and in batches."""

    pairs: Sequence[TextPair]
    batches: Iterable[Batch]


@torch.inference_mode()
def validation_loss(network: nn.Module, batches: Iterable[Batch]) -> float:
    """Per target token, without label smoothing, dropout off."""
    device = next(network.parameters()).device
    total, tokens = torch.zeros((), dtype=torch.float64, device=device), 0
    with evaluating(network):
        for batch in (each.to(device) for each in batches):
            adapt_threads()
            logits = network(batch.source_ids, batch.target_ids, batch.source_mask)
            total += summed_loss(logits, batch.labels)
            tokens += batch.tokens
    return float(total) / tokens
