"""Losses of the networks that predict all tokens at once, and glancing (Qian et al., 2021).

    masked       cross-entropy of the masked tokens and of the length (Ghazvininejad et al., 2019)
    ctc, graph   -log P(target | source), summed over all alignments

Glancing makes the target easier to learn: a first pass finds the most probable alignment, and the second pass is given
some tokens of the target at their aligned positions. The share of given tokens falls with training and with the
number of tokens that the first pass predicts.

R-Drop (Liang et al., 2021) predicts every sentence twice, with the same given tokens and different dropout. The loss is
the mean of both losses and half of the weighted divergence between both predictions:

    masked       at the masked tokens
    ctc          at all positions, divided by `upsample`: a source token counts once
    graph        of the next token after each prefix of the target, as for autoregressive networks. Two passes may put
                 a token at different vertices; the divergence at the vertices would forbid that.

With objective ngrams (FA-DAT, Ma et al., 2023) a graph is trained on its expected bigram precision with a brevity
penalty, which also gives credit to a path with the right bigrams at other places. There is no glancing: the network
sees only MASK, as in decoding.

Nothing here waits for the device, so that a pass can be captured.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from attendo.model.parallel import LENGTH_CLASSES, Canvas, ParallelTransformer, Prediction, count_tokens
from attendo.nn.ctc import align_to_ctc, ctc_emissions, ctc_log_likelihood
from attendo.nn.divergence import divergence
from attendo.nn.graph_next_tokens import next_token_divergence, reach_vertices
from attendo.nn.graph_ngrams import bigram_score
from attendo.nn.graph_paths import align_to_graph, graph_log_likelihood
from attendo.nn.token_scores import emission_scores
from attendo.text import BOS, EOS, PAD

# Of the length's cross-entropy per sentence, relative to that of the tokens per token, as in the paper's code.
_LENGTH_WEIGHT = 0.1


@dataclass(frozen=True)
class Targets:
    """The target without EOS, padded with PAD."""

    ids: Int[Tensor, "B T"]
    lengths: Int[Tensor, " B"]

    @classmethod
    def from_labels(cls, labels: Int[Tensor, "B T"]) -> "Targets":
        ids = labels[:, :-1].masked_fill(labels[:, :-1] == EOS, PAD)
        return cls(ids, (ids != PAD).sum(-1))

    @property
    def mask(self) -> Bool[Tensor, "B T"]:
        return self.ids != PAD

    def repeat(self, count: int) -> "Targets":
        return Targets(self.ids.repeat(count, 1), self.lengths.repeat(count))


class ParallelLoss:
    """The training loss of one network, summed over target tokens.

    `wrapped` is the network or the same network in a wrapper that exchanges gradients between processes. `glancing` is
    a tensor, so that a captured pass reads its new value.
    """

    def __init__(
        self,
        network: ParallelTransformer,
        wrapped: nn.Module,
        label_smoothing: float,
        r_drop: float = 0.0,
        objective: str = "likelihood",
    ) -> None:
        self._network, self._wrapped = network, wrapped
        self._label_smoothing, self._r_drop, self._objective = label_smoothing, r_drop, objective
        self._num_passes = 2 if r_drop else 1
        self.glancing = torch.zeros((), device=network.device)

    def __call__(
        self, source_ids: Int[Tensor, "B S"], source_mask: Bool[Tensor, "B S"] | None, labels: Int[Tensor, "B T"]
    ) -> Float[Tensor, ""]:
        targets, has_labels = Targets.from_labels(labels), (labels != PAD).any(-1)
        if self._network.config.kind == "masked":
            return self._masked_loss(source_ids, source_mask, targets, has_labels)
        canvas = self._network.empty_canvas(source_ids, source_mask)
        if self._objective == "ngrams":
            losses = negative_bigram_score(self._predict(source_ids, canvas, source_mask), canvas, targets)
            return torch.where(has_labels, losses, 0).sum()
        canvas = self._glance(source_ids, source_mask, canvas, targets)
        prediction = self._predict(source_ids, canvas, source_mask)
        canvases, repeated = canvas.repeat(self._num_passes), targets.repeat(self._num_passes)
        emissions = None if prediction.links is None else _graph_emissions(prediction, repeated)
        losses = negative_log_likelihood(prediction, canvases, repeated, emissions).view(self._num_passes, -1)
        # A target that does not fit has no loss. A row without labels is that of a process without sentences.
        counts = (losses[0] != float("inf")) & has_labels
        loss = torch.where(counts, losses.mean(0), 0).sum()
        if not self._r_drop:
            return loss
        if emissions is None:
            apart, inside = divergence(prediction.logits, _silent_tokens(prediction)), canvas.mask
            apart = apart / self._network.upsample
        else:
            apart, inside = divergence_of_next_tokens(prediction, canvases, emissions), labels != PAD
        return loss + self._r_drop / 2 * torch.where(inside & counts[:, None], apart, 0).sum()

    def _masked_loss(
        self,
        source_ids: Int[Tensor, "B S"],
        source_mask: Bool[Tensor, "B S"] | None,
        targets: Targets,
        has_labels: Bool[Tensor, " B"],
    ) -> Float[Tensor, ""]:
        """Mask a uniform number of tokens of each target: half of them on average, so their losses count twice."""
        count = (torch.rand(len(targets.ids), device=targets.ids.device) * targets.lengths).long() + 1
        hidden = choose_at_random(targets.mask, count)
        canvas = Canvas(targets.ids, targets.mask & ~hidden, targets.mask | ~has_labels[:, None])
        prediction = self._predict(source_ids, canvas, source_mask)
        n = self._num_passes
        losses = masked_cross_entropy(prediction, targets.repeat(n), hidden.repeat(n, 1), self._label_smoothing)
        source_lengths = count_tokens(source_ids, source_mask)
        lengths = length_cross_entropy(prediction, targets.repeat(n), source_lengths.repeat(n))
        # Updates divide the loss by the number of tokens, so each sentence counts as often as it has tokens.
        lengths = lengths * (has_labels * (targets.lengths + 1)).repeat(n)
        loss = (2 * losses.sum() + _LENGTH_WEIGHT * lengths.sum()) / n
        if not self._r_drop:
            return loss
        return loss + self._r_drop * torch.where(hidden, divergence(prediction.logits), 0).sum()

    def _predict(
        self, source_ids: Int[Tensor, "B S"], canvas: Canvas, source_mask: Bool[Tensor, "B S"] | None
    ) -> Prediction:
        """Run the network on as many copies of each sentence as there are passes, with different dropout."""
        n = self._num_passes
        mask = None if source_mask is None else source_mask.repeat(n, 1)
        prediction: Prediction = self._wrapped(source_ids.repeat(n, 1), canvas.repeat(n), mask)
        return prediction

    @torch.no_grad()
    def _glance(
        self, source_ids: Int[Tensor, "B S"], source_mask: Bool[Tensor, "B S"] | None, canvas: Canvas, targets: Targets
    ) -> Canvas:
        """Return the canvas with some target tokens at the positions of the best alignment."""
        first = self._network(source_ids, canvas, source_mask)
        # Autocast caches the weights that this pass has converted without a gradient. The next pass needs others.
        torch.clear_autocast_cache()
        aligned = align(first, canvas, targets)
        is_aligned = aligned > 0
        wanted = targets.ids.gather(1, (aligned - 1).clamp(min=0)).masked_fill(~is_aligned, PAD)
        for token in _silent_tokens(first):
            first.logits[..., token].fill_(float("-inf"))
        num_wrong = (is_aligned & (first.logits.argmax(-1) != wanted)).sum(-1)
        given = choose_at_random(is_aligned, (self.glancing * num_wrong).round().long())
        return Canvas(wanted, given, canvas.mask)


def glancing_share(step: int, steps: int, start: float, end: float, until: float) -> float:
    """Return the share of wrong tokens to give: from `start` linearly to `end` at `until` of all steps."""
    return start + (end - start) * min(1.0, step / max(1.0, until * steps))


def sentence_losses(
    network: ParallelTransformer,
    source_ids: Int[Tensor, "B S"],
    source_mask: Bool[Tensor, "B S"] | None,
    labels: Int[Tensor, "B T"],
) -> Float[Tensor, " B"]:
    """Return the loss of each sentence, without glancing. A masked network gets no token of the target."""
    targets = Targets.from_labels(labels)
    if network.config.kind == "masked":
        prediction = network(source_ids, Canvas(targets.ids, ~targets.mask, targets.mask), source_mask)
        lengths = length_cross_entropy(prediction, targets, count_tokens(source_ids, source_mask))
        return masked_cross_entropy(prediction, targets, targets.mask).sum(-1) + lengths
    canvas = network.empty_canvas(source_ids, source_mask)
    return negative_log_likelihood(network(source_ids, canvas, source_mask), canvas, targets)


def masked_cross_entropy(
    prediction: Prediction, targets: Targets, hidden: Bool[Tensor, "B T"], label_smoothing: float = 0.0
) -> Float[Tensor, "B T"]:
    """Return the cross-entropy of the hidden tokens, 0 elsewhere."""
    wanted = targets.ids.masked_fill(~hidden, PAD)
    losses = F.cross_entropy(
        prediction.logits.flatten(0, 1),
        wanted.flatten(),
        ignore_index=PAD,
        label_smoothing=label_smoothing,
        reduction="none",
    )
    return losses.view(wanted.shape)


def length_cross_entropy(
    prediction: Prediction, targets: Targets, source_lengths: Int[Tensor, " B"]
) -> Float[Tensor, " B"]:
    """Return the cross-entropy of each target's length."""
    assert prediction.length_logits is not None
    difference = targets.lengths - source_lengths + LENGTH_CLASSES // 2
    return F.cross_entropy(prediction.length_logits, difference.clamp(0, LENGTH_CLASSES - 1), reduction="none")


def choose_at_random(among: Bool[Tensor, "B T"], count: Int[Tensor, " B"]) -> Bool[Tensor, "B T"]:
    """Choose `count` of the marked positions of each row, uniformly."""
    scores = torch.rand(among.shape, device=among.device).masked_fill(~among, 2)
    return (scores.argsort(-1).argsort(-1) < count[:, None]) & among


def negative_log_likelihood(
    prediction: Prediction, canvas: Canvas, targets: Targets, emissions: Float[Tensor, "B T L"] | None = None
) -> Float[Tensor, " B"]:
    """Return -log P(target | source) of ctc and graph, infinite for a target that does not fit on the canvas.

    `emissions` are the scores of a graph's tokens, if they are known.
    """
    if prediction.links is not None:
        emissions = _graph_emissions(prediction, targets) if emissions is None else emissions
        return -graph_log_likelihood(emissions, prediction.links, targets.lengths, canvas.lengths)
    blanks, scores = ctc_emissions(prediction.logits, targets.ids, PAD, _silent_tokens(prediction))
    return -ctc_log_likelihood(blanks, scores, targets.ids, canvas.lengths, targets.lengths)


def negative_bigram_score(prediction: Prediction, canvas: Canvas, targets: Targets) -> Float[Tensor, " B"]:
    """Return -(T + 1) · brevity penalty · expected bigram precision of a graph, 0 for a target that does not fit.

    The factor is the number of target tokens with EOS, because updates divide the loss by this number.
    """
    assert prediction.links is not None
    emissions = _graph_emissions(prediction, targets)
    scores = bigram_score(emissions, prediction.links, targets.ids, targets.lengths, canvas.lengths)
    return torch.where(targets.lengths + 2 <= canvas.lengths, -(targets.lengths + 1) * scores, 0)


def divergence_of_next_tokens(
    prediction: Prediction, canvas: Canvas, emissions: Float[Tensor, "R T L"]
) -> Float[Tensor, "B N"]:
    """Return the divergence between both passes of a graph after each prefix of the target, the last one the whole."""
    assert prediction.links is not None
    reached = reach_vertices(emissions, prediction.links, canvas.lengths)
    return next_token_divergence(prediction.logits, reached, canvas.lengths, _silent_tokens(prediction), EOS)


def align(prediction: Prediction, canvas: Canvas, targets: Targets) -> Int[Tensor, "B L"]:
    """Return the target token (counted from 1) of each position on the most probable alignment; 0 is none."""
    if prediction.links is None:
        blanks, emissions = ctc_emissions(prediction.logits, targets.ids, PAD, _silent_tokens(prediction))
        return align_to_ctc(blanks, emissions, targets.ids, canvas.lengths, targets.lengths)
    emissions = _graph_emissions(prediction, targets)
    vertices = align_to_graph(emissions, prediction.links, targets.lengths, canvas.lengths)
    order = torch.arange(1, targets.ids.size(1) + 1, device=vertices.device).expand_as(vertices)
    return torch.zeros_like(canvas.ids).scatter_reduce(1, vertices, torch.where(vertices > 0, order, 0), "amax")


def _graph_emissions(prediction: Prediction, targets: Targets) -> Float[Tensor, "B T L"]:
    return emission_scores(prediction.logits, targets.ids, _silent_tokens(prediction)).transpose(1, 2)


def _silent_tokens(prediction: Prediction) -> tuple[int, ...]:
    """Return the tokens without probability. PAD is the blank of CTC."""
    return (BOS, EOS) if prediction.links is None else (PAD, BOS, EOS)
