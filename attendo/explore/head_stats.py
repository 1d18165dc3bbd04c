"""Statistics of every attention head over a text, and the choice of the best alignment head."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any, Literal, get_args

import torch
from jaxtyping import Bool, Float, Float64, Int
from torch import Tensor

from attendo.data.batch import Batch, Example, collate
from attendo.decode.requests import length_batches
from attendo.errors import DataError, MessagePart, UsageError
from attendo.explore.gold_alignment import GoldLinks, check_link_range
from attendo.metrics.alignment_error import LinkCounts
from attendo.model.head_scaling import sites
from attendo.model.transformer import Transformer
from attendo.text import BOS, EOS
from attendo.text_model import TextModel, TooLongError, eval_mode
from attendo.text_model.token_words import map_tokens_to_words
from attendo.text_model.trace import GREEDY_OPTIONS, EncodedPair

STATISTICS = ("entropy", "relative_entropy", "distance", "diagonality", "special", "largest")
LAST_LAYER_MEAN = "mean of the last layer"  # used as a site name
_UNNAMED = MessagePart("unnamed_sentence")
HeadOrder = Literal["entropy", "distance", "diagonality", "special", "alignment"]
AttentionType = Literal["cross", "encoder", "decoder"]
MAX_POSITIONS = 2048  # of the longer side per batch, padding included
_HIGHEST_FIRST = ("diagonality", "special", "agreement")


@dataclass(frozen=True)
class AttentionExtent:
    """The rows and columns of a batch of attention weights that are tokens, not padding."""

    row_counts: Sequence[int]  # one per sentence
    column_counts: Sequence[int]
    special: Bool[Tensor, "B S"]  # columns that are <s> or </s>
    causal: bool  # row i attends to columns 0 to i only


def sum_statistics(
    weights: Float[Tensor, "B H T S"], extent: AttentionExtent
) -> dict[str, tuple[Float64[Tensor, " H"], int]]:
    """Return for each statistic its sum over all rows per head, and the number of rows.

    With d = i·S/T for row i of T and S columns, and n columns visible to it:

    entropy           −∑ⱼ aⱼ ln aⱼ, in nats
    relative_entropy  entropy / ln n, over the rows with n > 1
    distance          ∑ⱼ aⱼ |d − j|
    diagonality       ∑ⱼ aⱼ over the columns with |d − j| ≤ 1
    special           ∑ⱼ aⱼ over the columns that are <s> or </s>
    largest           maxⱼ aⱼ
    """
    exact = weights.double()
    entropy = -torch.special.xlogy(exact, exact).sum(dim=-1)
    rows, columns = (
        torch.tensor(list(each), device=weights.device)[:, None] for each in (extent.row_counts, extent.column_counts)
    )
    num_rows, row = rows[:, :, None], torch.arange(weights.size(2), device=weights.device)
    # T |d − j| is an integer, so rounding does not affect the comparison with the diagonal.
    distance = (row[:, None] * columns[:, :, None] - torch.arange(weights.size(3), device=row.device) * num_rows).abs()
    num_visible = row.expand(len(rows), -1) + 1 if extent.causal else columns.expand(-1, len(row))
    real = row < rows  # [B, T]
    choosing = real & (num_visible > 1)
    each = {
        "entropy": (entropy, real),
        "relative_entropy": (entropy / num_visible.clamp(min=2).double().log()[:, None], choosing),
        "distance": (torch.einsum("bhts,bts->bht", exact, distance / num_rows.double()), real),
        "diagonality": (torch.einsum("bhts,bts->bht", exact, (distance <= num_rows).double()), real),
        "special": (torch.einsum("bhts,bs->bht", exact, extent.special.double()), real),
        "largest": (exact.amax(dim=-1), real),
    }
    return {
        name: (values.masked_fill(~counted[:, None], 0.0).sum(dim=(0, 2)).cpu(), int(counted.sum()))
        for name, (values, counted) in each.items()
    }


@dataclass(frozen=True)
class Sentence:
    """A source and its target. If the target is None, the model generates it greedily."""

    source: str
    target: str | None = None
    gold: GoldLinks | None = None
    location: MessagePart | str = _UNNAMED  # for error messages, such as `dev.en line 3`


@dataclass(frozen=True)
class ForwardPass:
    """An encoded pair, and the index of each token (except EOS) in gold links: its word, or the token itself.

    A token outside the words, such as a language token, has the index None. Symbols after EOS have no index.
    """

    pair: EncodedPair
    gold: GoldLinks | None
    source_units: Sequence[int | None]
    target_units: Sequence[int | None]

    @staticmethod
    def from_sentence(model: TextModel, sentence: Sentence, pair: EncodedPair) -> "ForwardPass":
        gold, location = sentence.gold, sentence.location
        if gold is not None and sentence.target is None:
            raise UsageError("gold_without_target_sentence", place=location)
        before, begin = len(model.generation.source_prefix), len(model.generation.target_prefix)
        units = range(pair.source.index(EOS)), range(len(_target_without_eos(pair)))
        forward = ForwardPass(pair, gold, *units)
        if gold is None or gold.source_words is None or gold.target_words is None:
            check_link_range(
                gold or GoldLinks(frozenset()), len(forward.source_units), len(forward.target_units), location
            )
            return forward
        check_link_range(gold, len(gold.source_words), len(gold.target_words), location)
        sources = map_tokens_to_words(model.source_tokenizer, sentence.source, gold.source_words, location)
        targets = map_tokens_to_words(model.target_tokenizer, sentence.target or "", gold.target_words, location)
        return replace(forward, source_units=[*[None] * before, *sources], target_units=[*[None] * begin, *targets])

    @property
    def example(self) -> Example:
        """The pair without a last EOS, which `collate` adds."""
        source = self.pair.source
        return Example(source[:-1] if source[-1] == EOS else source, self.target_ids)

    @property
    def target_ids(self) -> Sequence[int]:
        return _target_without_eos(self.pair)

    @property
    def length(self) -> int:
        return self.example.length


class AttentionStats:
    """Accumulates the statistics of each head over sentences."""

    def __init__(self) -> None:
        self._sums: dict[tuple[str, str], tuple[Tensor, int]] = {}
        self._agreement_counts: dict[str, Tensor] = {}
        self._counted_tokens = 0  # target tokens without </s>
        self._link_counts: dict[tuple[str, int], LinkCounts] = {}

    @property
    def gold_links(self) -> int:
        return next((each.sure for each in self._link_counts.values()), 0)

    def add(self, network: Transformer, passes: Sequence[ForwardPass]) -> None:
        batch = collate([each.example for each in passes]).to(network.device)
        shapes = _attention_extents(batch, passes)
        best_positions: dict[str, Int[Tensor, "B H T"]] = {}
        together: dict[str, Int[Tensor, "B 1 T"]] = {}
        total = torch.zeros(())

        def tap(site: str, weights: Float[Tensor, "B H T S"]) -> None:
            nonlocal total
            stack, _, kind = site.split(".")
            for name, (values, count) in sum_statistics(weights, shapes[f"{stack}.{kind}"]).items():
                before, counted = self._sums.get((site, name), (0.0, 0))
                self._sums[site, name] = before + values, counted + count
            if site.endswith(".cross"):
                best_positions[site] = weights.argmax(dim=-1).cpu()
                together[LAST_LAYER_MEAN] = weights.float().mean(dim=1, keepdim=True).argmax(dim=-1).cpu()
                total = total + weights.double().sum(dim=1).cpu()

        network(batch.source_ids, batch.target_ids, batch.source_mask, tap=tap)
        for row, each in enumerate(passes):
            self._add_agreement(each, total[row], {site: positions[row] for site, positions in best_positions.items()})
            self._add_links(each, {site: positions[row] for site, positions in {**best_positions, **together}.items()})

    @property
    def last_layer_error_rate(self) -> float | None:
        """Alignment error rate of the mean over the last layer's heads."""
        return self._link_counts.get((LAST_LAYER_MEAN, 0), LinkCounts()).error_rate

    def means(self, site: str, head: int) -> dict[str, Any]:
        """Return the mean statistics of one head."""
        found: dict[str, float | None] = {}
        for (own_site, name), (values, count) in self._sums.items():
            if own_site == site:
                found[name] = float(values[head]) / count if count else None
        if site in self._agreement_counts:
            found["agreement"] = float(self._agreement_counts[site][head]) / self._counted_tokens
        if (site, head) in self._link_counts:
            found["error_rate"] = self._link_counts[site, head].error_rate
        return found

    def _add_agreement(
        self, forward_pass: ForwardPass, total: Float[Tensor, "T S"], argmax_positions: dict[str, Int[Tensor, "H T"]]
    ) -> None:
        """Count the target tokens for which a head's argmax equals the argmax of the sum of all heads without </s>.

        Many heads attend mostly to </s>. If it were included, a head that always attends to it would agree best.
        """
        count, words = len(forward_pass.target_ids), len(forward_pass.source_units)
        if not count or not words:
            return
        majority = total[:count, :words].argmax(dim=-1)
        self._counted_tokens += count
        for site, positions in argmax_positions.items():
            agreements = (positions[:, :count] == majority).sum(dim=-1)
            self._agreement_counts[site] = self._agreement_counts.get(site, torch.zeros_like(agreements)) + agreements

    def _add_links(self, forward_pass: ForwardPass, argmax_positions: dict[str, Int[Tensor, "H T"]]) -> None:
        """Count a link from each target token to its argmax source token, except </s>."""
        if forward_pass.gold is None:
            return
        for site, positions in argmax_positions.items():
            for head, row in enumerate(positions[:, : len(forward_pass.target_ids)].tolist()):
                found = {
                    (forward_pass.source_units[source], target)
                    for source, target in zip(row, forward_pass.target_units, strict=True)
                    if source < len(forward_pass.source_units)
                }
                links = {(source, target) for source, target in found if source is not None and target is not None}
                counts = LinkCounts.from_links(links, forward_pass.gold.sure, forward_pass.gold.possible)
                self._link_counts[site, head] = self._link_counts.get((site, head), LinkCounts()) + counts


def _target_without_eos(pair: EncodedPair) -> Sequence[int]:
    """Return the target without EOS. A truncated output has none."""
    return pair.target[:-1] if pair.target and pair.target[-1] == EOS else pair.target


def _attention_extents(batch: Batch, passes: Sequence[ForwardPass]) -> dict[str, AttentionExtent]:
    sources, targets = ([len(getattr(each.pair, side)) for each in passes] for side in ("source", "target"))
    marks = torch.tensor([BOS, EOS], device=batch.source_ids.device)
    source, target = (torch.isin(ids, marks) for ids in (batch.source_ids, batch.target_ids))
    return {
        "encoder.self": AttentionExtent(sources, sources, source, causal=False),
        "decoder.self": AttentionExtent(targets, targets, target, causal=True),
        "decoder.cross": AttentionExtent(targets, sources, source, causal=False),
    }


@dataclass(frozen=True)
class HeadStats:
    """Mean statistics of one head; `sum_statistics` defines them."""

    site: str  # such as decoder.1.cross
    head: int  # from 0
    entropy: float  # in nats
    relative_entropy: float | None  # None if every row has a single visible column
    distance: float  # in tokens
    diagonality: float
    special: float
    largest: float
    agreement: float | None = None  # with the mean of all heads; cross-attention only
    error_rate: float | None = None  # against gold links, if given

    @property
    def attention_type(self) -> AttentionType:
        stack, _, kind = self.site.split(".")
        return "cross" if kind == "cross" else "encoder" if stack == "encoder" else "decoder"

    @property
    def layer(self) -> int:
        return int(self.site.split(".")[1])


@dataclass(frozen=True)
class HeadReport:
    """Statistics of all heads, in network order."""

    heads: tuple[HeadStats, ...]
    sentences: int
    source_tokens: int  # </s> included
    target_tokens: int  # </s> included
    gold_links: int  # sure ones
    last_layer_error_rate: float | None = None  # of its heads' mean, the default without a stored head

    @property
    def alignment_metric(self) -> Literal["error_rate", "agreement"]:
        """The statistic that selects the best alignment head."""
        return "error_rate" if self.gold_links else "agreement"

    @property
    def best(self) -> HeadStats:
        """The best alignment head; ties go to the first."""
        found = self.rank("alignment")[0]
        if getattr(found, self.alignment_metric) is None:
            raise DataError("no_alignable_target_token")
        return found

    @property
    def alignment_head(self) -> dict[str, Any]:
        """The entry that scores.json of a model folder stores: the best head and the number that it was chosen by."""
        best = self.best
        return {
            "layer": best.layer,
            "head": best.head,
            self.alignment_metric: getattr(best, self.alignment_metric),
        }

    def sort_field(self, order: HeadOrder) -> str:
        """Return the field that an order sorts by."""
        return self.alignment_metric if order == "alignment" else order

    def rank(self, order: HeadOrder) -> list[HeadStats]:
        """Sort the heads: lowest entropy, distance or error rate first, else highest first. None comes last."""
        if order not in get_args(HeadOrder):
            raise UsageError("unknown_head_order", orders=", ".join(get_args(HeadOrder)), order=order)
        name = self.sort_field(order)
        sign = -1 if name in _HIGHEST_FIRST else 1

        def sort_value(head: HeadStats) -> float:
            value = getattr(head, name)
            return math.inf if value is None else sign * value

        return sorted(self.heads, key=sort_value)

    def as_json(self, order: HeadOrder) -> dict[str, Any]:
        return {
            "sentences": self.sentences,
            "source_tokens": self.source_tokens,
            "target_tokens": self.target_tokens,
            "gold_links": self.gold_links,
            "last_layer_error_rate": self.last_layer_error_rate,
            "sorted_by": self.sort_field(order),
            "best_alignment_head": self.alignment_head,
            "heads": [{"layer": each.layer, "kind": each.attention_type, **vars(each)} for each in self.rank(order)],
        }


@torch.inference_mode()
def measure_heads(model: TextModel, sentences: Iterable[Sentence], max_positions: int = MAX_POSITIONS) -> HeadReport:
    """Return the statistics of every head over these sentences. The batch size does not affect them."""
    sentences = list(sentences)
    if not sentences:
        raise DataError("no_sentences_for_heads")
    check_has_encoder(model)
    model.require_autoregressive("a report on heads")
    network = model.network
    passes = [
        ForwardPass.from_sentence(model, each, pair)
        for each, pair in zip(sentences, _encode_pairs(model, sentences), strict=True)
    ]
    stats = AttentionStats()
    with eval_mode(network):
        for group in length_batches(passes, attrgetter("length"), max_positions):
            stats.add(network, group)
    heads = tuple(
        HeadStats(site=site, head=head, **stats.means(site, head))
        for site in sites(network.config)
        for head in range(network.config.num_heads)
    )
    tokens = [sum(len(getattr(each.pair, side)) for each in passes) for side in ("source", "target")]
    return HeadReport(heads, len(sentences), tokens[0], tokens[1], stats.gold_links, stats.last_layer_error_rate)


def _encode_pairs(model: TextModel, sentences: Sequence[Sentence]) -> list[EncodedPair]:
    targets = _generate_missing_targets(model, sentences)
    pairs = [
        EncodedPair.encode(each.source, target, model.generation, model.source_tokenizer, model.target_tokenizer)
        for each, target in zip(sentences, targets, strict=True)
    ]
    limit = model.backend.max_sequence_length
    for each, pair in zip(sentences, pairs, strict=True):
        tokens = max(len(pair.source), len(pair.target)) - 1
        if limit is not None and tokens > limit:
            raise DataError("sentence_exceeds_model_length", place=each.location, tokens=tokens, limit=limit)
    return pairs


def _generate_missing_targets(model: TextModel, sentences: Sequence[Sentence]) -> list[Any]:
    """Return the targets: the given text, or the model's greedy output."""
    without_target = [each for each in sentences if each.target is None]
    try:
        answers = iter(model.generate([each.source for each in without_target], **GREEDY_OPTIONS))
    except TooLongError as error:
        location, tokens, limit = without_target[error.number].location, error.values["tokens"], error.values["limit"]
        raise DataError("sentence_exceeds_model_length", place=location, tokens=tokens, limit=limit) from None
    return [next(answers).best if each.target is None else each.target for each in sentences]


def check_text_length(model: TextModel, text: str) -> None:
    """Raise a `UsageError` if the text exceeds the model's maximum length. Inspection does not split text."""
    tokens = len(model.source_tokenizer.encode(text))
    limit = min(model.generation.max_source, model.backend.max_sequence_length or model.generation.max_source)
    if tokens > limit:
        raise UsageError("text_exceeds_model_length", tokens=tokens, limit=limit)


def check_has_encoder(model: TextModel) -> None:
    """Raise a `UsageError` for a decoder-only model."""
    model.require_cross_attention("a report on heads")
    if model.network.config.decoder_only:
        raise UsageError("model_without_encoder")
