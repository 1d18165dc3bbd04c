"""Whether the network looks only where it may: not ahead in the target, not at padding, not at other sentences."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attendo.data.batch import Batch, Example
from attendo.recipes.doctor.finding import Finding
from attendo.recipes.doctor.passes import batch_of, logits_of
from attendo.text import EOS, PAD
from attendo.train.learner import Learner

_CUTS = 4  # places from which on the target is changed
_PADDED = 3  # positions
# What a logit may change, against the spread of all logits: batches of other shapes are rounded otherwise. Where a mask
# is missing they change by about their spread.
NOISE = {"fp32": 1e-3, "bf16": 0.1, "fp16": 0.1}


def causal_leak(learner: Learner, pairs: Sequence[Example]) -> Finding:
    """Other target tokens behind a position must not change the logits up to it."""
    batch = batch_of(pairs, learner.network)
    learner.network.train()  # with the same dropout each time, because generation may take other kernels
    before = _seeded_logits(learner, batch)
    spread, last = _spread(before, batch), batch.target_ids.size(1) - 2
    changes = {}
    for cut in sorted({round(part * last / (_CUTS - 1)) for part in range(_CUTS)}):
        others = replace(batch, target_ids=_changed_after(batch.target_ids, cut, before.size(-1)))
        difference = (_seeded_logits(learner, others) - before)[:, : cut + 1]
        changes[cut] = float(difference.abs().max()) / spread
    cut = max(changes, key=lambda place: changes[place])
    values = {"change": changes[cut], "position": cut}
    if changes[cut] <= NOISE[learner.precision]:
        found = f"no logit depends on a later target token (largest change {changes[cut]:.1g})"
        return Finding("causal leak", "ok", found, values=values, about="network")
    return Finding(
        "causal leak",
        "fault",
        f"other target tokens after position {cut} change the logits up to it, by {changes[cut]:.2g} of their spread",
        "the network is shown the answers: mend the causal mask (nn/masks.py)",
        values=values,
        about="network",
    )


def padding(learner: Learner, pairs: Sequence[Example]) -> Finding:
    """More padding, and longer neighbours in the batch, must not change a sentence's logits."""
    learner.network.eval()
    rows = _ever_shorter(pairs)
    together = batch_of(rows, learner.network)
    before = logits_of(learner, together)
    spread = _spread(before, together)
    difference = logits_of(learner, _padded(together)) - before
    by_padding = float(difference[_is_token(together)].abs().max()) / spread
    alone = [logits_of(learner, batch_of([row], learner.network))[0] for row in rows]
    by_neighbours = max(
        float((logits - before[number, : len(logits)]).abs().max()) / spread for number, logits in enumerate(alone)
    )
    values = {"by_padding": by_padding, "by_neighbours": by_neighbours}
    worst = max(by_padding, by_neighbours)
    if worst <= NOISE[learner.precision]:
        found = f"no logit depends on padding or on other sentences (largest change {worst:.1g})"
        return Finding("padding", "ok", found, values=values, about="network")
    cause = "padding behind the source" if by_padding >= by_neighbours else "a longer sentence in the same batch"
    return Finding(
        "padding",
        "fault",
        f"{cause} changes a sentence's logits, by {worst:.2g} of their spread",
        "a sentence means something else in every batch: mend the padding mask (nn/masks.py, data/batch.py)",
        values=values,
        about="network",
    )


def _seeded_logits(learner: Learner, batch: Batch) -> Float[Tensor, "B T V"]:
    torch.manual_seed(0)
    return logits_of(learner, batch)


def _spread(logits: Float[Tensor, "B T V"], batch: Batch) -> float:
    return max(float(logits[_is_token(batch)].std()), 1e-12)


def _is_token(batch: Batch) -> Bool[Tensor, "B T"]:
    return batch.labels != PAD


def _changed_after(ids: Int[Tensor, "B T"], place: int, vocab_size: int) -> Int[Tensor, "B T"]:
    """Every token behind the place replaced by the next one of the vocabulary, control tokens passed over."""
    first = EOS + 1
    others = first + (ids - first + 1).clamp(min=0) % max(1, vocab_size - first)
    behind = torch.arange(ids.size(1)) > place
    return torch.where(behind[None, :], others, ids)


def _ever_shorter(pairs: Sequence[Example]) -> list[Example]:
    """Each shorter than the one before: a batch holds sentences of like length, among which a fault would hide."""
    rows = [pairs[0]]
    for pair in (*pairs[1:], pairs[0]):
        source, target = len(rows[-1].source) - 1, len(rows[-1].target) - 1
        rows.append(Example(pair.source[: max(1, source)], pair.target[: max(1, target)]))
    return rows


def _padded(batch: Batch) -> Batch:
    if not batch.source_ids.size(1):  # where nothing is read, nothing is padded
        return batch
    mask = torch.ones_like(batch.source_ids, dtype=torch.bool) if batch.source_mask is None else batch.source_mask
    more = batch.source_ids.new_full((len(mask), _PADDED), PAD)
    return replace(
        batch, source_ids=torch.cat((batch.source_ids, more), dim=1), source_mask=torch.cat((mask, more != PAD), dim=1)
    )
