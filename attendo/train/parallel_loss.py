"""Losses of the networks that predict all tokens at once, summed over sentences, and glancing (Qian et al., 2021)."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attendo.model.parallel import LENGTH_CLASSES, Canvas, ParallelTransformer, Prediction
from attendo.nn.alignments import align_to_ctc, align_to_graph, ctc_log_likelihood, graph_log_likelihood
from attendo.text import BOS, EOS, PAD

_LENGTH_WEIGHT = 0.1


@dataclass(frozen=True)
class Targets:
    """The target without EOS."""

    ids: Int[Tensor, "B T"]
    lengths: Int[Tensor, " B"]

    @classmethod
    def from_labels(cls, labels: Int[Tensor, "B T"]) -> "Targets":
        ids = labels[:, :-1].masked_fill(labels[:, :-1] == EOS, PAD)
        return cls(ids, (labels != PAD).sum(-1) - 1)

    @property
    def mask(self) -> Bool[Tensor, "B T"]:
        return self.ids != PAD


def choose_at_random(among: Bool[Tensor, "B T"], count: Int[Tensor, " B"]) -> Bool[Tensor, "B T"]:
    """Choose `count` of the marked positions of each row, uniformly. Nothing waits for the device."""
    scores = torch.rand(among.shape, device=among.device).masked_fill(~among, 2)
    return (scores.argsort(-1).argsort(-1) < count[:, None]) & among


def masked_loss(
    network: Callable[..., Prediction], source_ids: Tensor, source_mask: Tensor | None, labels: Tensor, smoothing: float
) -> tuple[Tensor, Tensor]:
    """Cross-entropy of the masked tokens, and of the length. Returns the loss and the number of masked tokens."""
    targets = Targets.from_labels(labels)
    count = (torch.rand(len(labels), device=labels.device) * targets.lengths).long() + 1
    hidden = choose_at_random(targets.mask, count)
    prediction = network(source_ids, Canvas(targets.ids, targets.mask & ~hidden, targets.mask), source_mask)
    wanted = targets.ids.masked_fill(~hidden, PAD)
    loss = F.cross_entropy(
        prediction.logits.flatten(0, 1), wanted.flatten(), ignore_index=PAD, label_smoothing=smoothing, reduction="sum"
    )
    width = source_ids.size(1) if source_mask is None else source_mask.sum(-1)
    length_class = (targets.lengths - width + LENGTH_CLASSES // 2).clamp(0, LENGTH_CLASSES - 1)
    assert prediction.length_logits is not None
    lengths = F.cross_entropy(prediction.length_logits, length_class, reduction="sum")
    return loss + _LENGTH_WEIGHT * lengths, hidden.sum()


def emission_scores(
    logits: Float[Tensor, "B L V"], ids: Int[Tensor, "B T"], silent: list[int]
) -> Float[Tensor, "B L T"]:
    """Log-probabilities of the target's tokens at every position. Tokens in `silent` have probability 0."""
    impossible = torch.zeros(logits.size(-1), device=logits.device)
    impossible[silent] = float("-inf")
    total = (logits.float() + impossible).logsumexp(-1)
    chosen = logits.gather(2, ids[:, None].expand(-1, logits.size(1), -1)).float()
    return chosen - total[..., None]


def align(prediction: Prediction, canvas: Canvas, targets: Targets) -> Int[Tensor, "B L"]:
    """Return the target token (counted from 1) of each canvas position on the best alignment; 0 is none."""
    if prediction.links is not None:
        emissions = emission_scores(prediction.logits, targets.ids, [PAD, BOS, EOS]).transpose(1, 2)
        vertices = align_to_graph(emissions, prediction.links, targets.lengths, canvas.lengths)
        order = torch.arange(1, targets.ids.size(1) + 1, device=vertices.device).expand_as(vertices)
        aligned = torch.zeros_like(canvas.ids)
        return aligned.scatter_reduce(1, vertices, torch.where(vertices > 0, order, 0), "amax")
    emissions = emission_scores(prediction.logits, targets.ids, [BOS, EOS])
    blanks = emission_scores(prediction.logits, torch.full_like(targets.ids[:, :1], PAD), [BOS, EOS])[..., 0]
    return align_to_ctc(blanks, emissions, targets.ids, canvas.lengths, targets.lengths)


def negative_log_likelihood(prediction: Prediction, canvas: Canvas, targets: Targets) -> Float[Tensor, " B"]:
    if prediction.links is not None:
        emissions = emission_scores(prediction.logits, targets.ids, [PAD, BOS, EOS]).transpose(1, 2)
        return -graph_log_likelihood(emissions, prediction.links, targets.lengths, canvas.lengths)
    emissions = emission_scores(prediction.logits, targets.ids, [BOS, EOS])
    blanks = emission_scores(prediction.logits, torch.full_like(targets.ids[:, :1], PAD), [BOS, EOS])[..., 0]
    return -ctc_log_likelihood(blanks, emissions, targets.ids, canvas.lengths, targets.lengths)


def alignment_loss(
    network: ParallelTransformer,
    source_ids: Tensor,
    source_mask: Tensor | None,
    labels: Tensor,
    glance: Tensor | float,
    same_dropout: bool = True,
) -> tuple[Tensor, Tensor]:
    """-log P(target | source) of ctc and graph with glancing. Returns the loss and the share of right predictions."""
    targets = Targets.from_labels(labels)
    canvas = network.empty_canvas(source_ids, source_mask)
    right = torch.zeros((), device=labels.device)
    if network.training:
        before = torch.cuda.get_rng_state() if same_dropout and labels.is_cuda else None
        with torch.no_grad():
            first = network(source_ids, canvas, source_mask)
            aligned = align(first, canvas, targets)
            wanted = torch.where(aligned > 0, targets.ids.gather(1, (aligned - 1).clamp(min=0)), PAD)
            same = (first.logits.argmax(-1) == wanted) & (aligned > 0)
            size = (aligned > 0).sum(-1)
            count = (glance * (size - same.sum(-1))).round().long()
            given = choose_at_random(aligned > 0, count)
            right = same.sum() / size.sum()
        if before is not None:
            after = torch.cuda.get_rng_state()
            torch.cuda.set_rng_state(before)
        canvas = Canvas(wanted, given, canvas.mask)
    loss = negative_log_likelihood(network(source_ids, canvas, source_mask), canvas, targets)
    if network.training and before is not None:
        torch.cuda.set_rng_state(after)
    possible = loss < float("inf")
    return torch.where(possible, loss, 0).sum(), right
