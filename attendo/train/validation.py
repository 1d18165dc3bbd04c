"""How well the model does on pairs it does not learn from: their loss, and scores of the text it makes of them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn

from attendo.data.batch import Batch, Example, collate
from attendo.data.buckets import group_by_length
from attendo.metrics import Score, score
from attendo.text_model import TextModel, evaluating
from attendo.text_model.prefixes import prefixes_of
from attendo.train.config import TrainConfig
from attendo.train.learner import Learner
from attendo.train.loss import summed_loss
from attendo.train.reports import Sample, Validation

TextPair = tuple[str, str]


class Validator:
    """Called with the number of a step; decodes as a user would, text in and text out.

    `old` are the validation pairs of the model that is being fine-tuned: what it forgets shows there.
    """

    def __init__(
        self, model: TextModel, pairs: Sequence[TextPair], learner: Learner, old: Sequence[TextPair] = ()
    ) -> None:
        self.model, self.learner = model, learner
        self.config: TrainConfig = learner.config
        self._new = self._batched(pairs)
        self._old = self._batched(old) if old else None

    def __call__(self, step: int) -> Validation:
        with self.learner.weights(), self.learner.autocast():
            loss, outputs, scores = self._validated(self._new)
            old_loss, _, old_scores = self._validated(self._old) if self._old else (math.nan, [], [])
        old = {"loss": old_loss, **{each.name: each.value for each in old_scores}} if self._old else {}
        shown = zip(self._new.pairs[: self.config.samples], outputs, strict=False)
        return Validation(
            step=step,
            loss=loss,
            scores={each.name: each.value for each in scores},
            signatures={each.name: each.signature for each in scores},
            samples=tuple(Sample(source, output, reference) for (source, reference), output in shown),
            old=old,
        )

    def _validated(self, part: "ValidationPart") -> tuple[float, list[str], list[Score]]:
        loss = validation_loss(self.model.network, part.batches)
        pairs = part.pairs[: self.config.metric_pairs if self.config.decoded_metrics else self.config.samples]
        # The weights change and passes run under autocast, which what was recorded for a GPU would not follow.
        results = self.model.generate([source for source, _ in pairs], engine="cached")
        outputs = [result.text for result in results]
        references = [target for _, target in pairs]
        return loss, outputs, [score(name, outputs, references) for name in self.config.decoded_metrics]

    def _batched(self, pairs: Sequence[TextPair]) -> "ValidationPart":
        source, target = self.model.source_tokenizer, self.model.target_tokenizer
        before, begin = prefixes_of(self.model.generation, source, target)
        examples = [Example((*before, *source.encode(left)), (*begin, *target.encode(right))) for left, right in pairs]
        return ValidationPart(pairs, [collate(group) for group in group_by_length(examples, self.config.batch_tokens)])


@dataclass(frozen=True)
class ValidationPart:
    """Pairs as text, and in batches."""

    pairs: Sequence[TextPair]
    batches: Sequence[Batch]


@torch.inference_mode()
def validation_loss(network: nn.Module, batches: Sequence[Batch]) -> float:
    """Per target token, without label smoothing, dropout off."""
    device = next(network.parameters()).device
    total = torch.zeros((), dtype=torch.float64, device=device)
    with evaluating(network):
        for batch in (each.to(device) for each in batches):
            logits = network(batch.source_ids, batch.target_ids, batch.source_mask)
            total += summed_loss(logits, batch.labels)
    return float(total) / sum(batch.tokens for batch in batches)
