"""Minimum risk training (Shen et al., 2016): fine-tuning that lowers the expected risk of the model's own outputs.

For a source x, the candidates Y are N samples of the current model (temperature 1, no dropout), equal ones once, and
the reference. Their scores are computed in one pass with dropout:

    s(y) = sum over t of log p(y[t] | y[<t], x)
    Q(y) = exp(alpha · s(y)) / sum over y' in Y of exp(alpha · s(y'))
    risk(y) = 1 - utility(y, reference) / 100
    loss = mean over x of sum over y in Y of Q(y) · risk(y)  +  weight · cross-entropy of the references per token

The gradient of the first part is alpha · Q(y) · (risk(y) - sum over y' of Q(y') · risk(y')) · grad s(y): the mean risk
is a built-in baseline. Decoded text is needed for the utility, so an update waits for the device.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from attendo.data.batch import Batch
from attendo.decode.engines import CachedEngine
from attendo.decode.requests import DecodeRequest
from attendo.decode.rules import ForcedPrefix, SuppressTokens
from attendo.decode.search import Rule
from attendo.decode.strategies import Sampling
from attendo.metrics.pairwise import pairwise_bleu, pairwise_chrf
from attendo.model.transformer import Transformer
from attendo.text import BOS, EOS, PAD, Tokenizer
from attendo.text_model import eval_mode
from attendo.train.config import TrainConfig

Ids = tuple[int, ...]
# Risk of each candidate against a reference, from 0 (best) to 1. Both are ids that may end with EOS.
RiskFunction = Callable[[Sequence[Ids], Ids], Sequence[float]]

_LENGTH_FACTOR, _LENGTH_EXTRA = 2, 8  # a sample has at most 2 tokens per token of the reference, and 8 more


def compute_text_risk(utility: str, tokenizer: Tokenizer, candidates: Sequence[Ids], reference: Ids) -> list[float]:
    """Return 1 - utility / 100 of each candidate's text. The utility is sentence chrF or sentence BLEU."""
    compute = pairwise_chrf if utility == "chrf" else pairwise_bleu
    texts = [tokenizer.decode(each) for each in candidates]
    risks: list[float] = (1 - compute(texts, [tokenizer.decode(reference)])[:, 0] / 100).tolist()
    return risks


def make_text_risk(config: TrainConfig, tokenizer: Tokenizer) -> RiskFunction | None:
    """Return the risk function of a run, or None if its objective is another."""
    return partial(compute_text_risk, config.mrt_utility, tokenizer) if config.objective == "mrt" else None


@dataclass(frozen=True)
class Candidates:
    """Candidates of B sources, C rows for each. The first row is the reference, unused rows are padding."""

    labels: Int[Tensor, "R T"]
    risk: Float[Tensor, "B C"]
    belongs: Bool[Tensor, "B C"]  # to Y; unused rows and a reference that only has a cross-entropy do not
    reward: float  # utility of the samples (0 to 100), mean over those of a sentence, summed over sentences

    def to(self, device: torch.device) -> "Candidates":
        return Candidates(self.labels.to(device), self.risk.to(device), self.belongs.to(device), self.reward)

    @property
    def inputs(self) -> Int[Tensor, "R T"]:
        """The decoder's input: BOS and the labels before the last."""
        ids = self.labels.roll(1, 1).masked_fill(self.labels.roll(1, 1) == EOS, PAD)
        ids[:, 0] = BOS
        return ids


class MinimumRisk:
    """The loss of minimum risk training, and the reports about its candidates.

    `wrapped` is the network or the same network in a wrapper that exchanges gradients between processes.
    """

    def __init__(
        self,
        network: Transformer,
        wrapped: nn.Module,
        config: TrainConfig,
        risk: RiskFunction,
        target_prefix: Sequence[int] = (),
    ) -> None:
        self._network, self._wrapped, self._config, self._risk = network, wrapped, config, risk
        self._prefix = tuple(target_prefix)
        width = config.mrt_candidates
        self._engine = CachedEngine(network, config.batch_tokens * width)
        # Sums over the sentences of an update.
        self.reward, self.entropy = (torch.zeros((), device=network.device) for _ in range(2))

    def start_update(self) -> None:
        """Reset the sums of an update."""
        self.reward.zero_()
        self.entropy.zero_()

    def draw_candidates(self, batch: Batch) -> Candidates:
        """Sample from the current weights. Torch's random numbers give the seed, so a resumed run draws the same."""
        seed = int(torch.randint(2**62, ()))
        references = [tuple(each for each in row if each != PAD) for row in batch.labels.tolist()]
        with torch.no_grad(), eval_mode(self._network):
            samples = self._sample(_split_sources(batch), references, seed)
        return self._assemble(references, samples)

    def compute_loss(self, batch: Batch, candidates: Candidates, sentence_weight: float) -> Float[Tensor, ""]:
        """Return the sum of risks times `sentence_weight`, and the weighted sum of cross-entropies."""
        logits = self._wrapped(batch.source_ids, candidates.inputs, batch.source_mask)
        scores = score_sequences(logits, candidates.labels).view(candidates.risk.shape)
        shares = candidate_shares(scores, candidates.belongs, self._config.mrt_alpha)
        self.reward += candidates.reward
        self.entropy += torch.special.entr(shares.detach()).sum()
        risk = (shares * candidates.risk).sum()
        return sentence_weight * risk - self._config.mrt_cross_entropy * scores[:, 0].sum()

    def _sample(self, sources: Sequence[Ids], references: Sequence[Ids], seed: int) -> list[list[Ids]]:
        """Return the samples of each source. A row without reference is that of a process without sentences."""
        limit = self._network.config.max_length - 1 if self._network.config.positions == "learned" else None
        requests = [
            DecodeRequest(number, source, _limit_length(len(reference), limit), prefix=self._prefix)
            for number, (source, reference) in enumerate(zip(sources, references, strict=True))
            if reference
        ]
        rules: list[Rule] = [SuppressTokens(), *([ForcedPrefix()] if self._prefix else [])]
        found: list[list[Ids]] = [[] for _ in sources]
        for answers in self._engine.generate(requests, Sampling(self._config.mrt_candidates, seed), rules):
            for request, frontier in answers.split():
                rows = zip(frontier.ids.tolist(), frontier.length.tolist(), strict=True)
                found[request.request_id] = [tuple(ids[1 : length + 1]) for ids, length in rows]
        return found

    def _assemble(self, references: Sequence[Ids], samples: Sequence[Sequence[Ids]]) -> Candidates:
        width, with_reference = 1 + self._config.mrt_candidates, self._config.mrt_reference
        risk, belongs = torch.zeros(len(references), width), torch.zeros(len(references), width, dtype=torch.bool)
        rows: list[Ids] = []
        reward = 0.0
        for number, (reference, drawn) in enumerate(zip(references, samples, strict=True)):
            others = [each for each in dict.fromkeys(drawn) if not (with_reference and each == reference)]
            belongs[number, 0] = with_reference or not drawn
            belongs[number, 1 : 1 + len(others)] = True
            rows += [reference, *others, *[()] * (width - 1 - len(others))]
            if drawn:
                texts = [each[len(self._prefix) :] for each in (reference, *others)]  # a prefix is no output
                risks = dict(zip((reference, *others), self._risk(texts, texts[0]), strict=True))
                risk[number, : 1 + len(others)] = torch.tensor([risks[each] for each in (reference, *others)])
                reward += 100 * (1 - sum(risks[each] for each in drawn) / len(drawn))
        longest = max(1, *map(len, rows))
        labels = torch.tensor([[*row, *[PAD] * (longest - len(row))] for row in rows])
        return Candidates(labels, risk, belongs, reward)


def score_sequences(logits: Float[Tensor, "R T V"], labels: Int[Tensor, "R T"]) -> Float[Tensor, " R"]:
    """Return the log-probability of each row: the sum over its tokens."""
    losses = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=PAD, reduction="none")
    return -losses.view(labels.shape).sum(-1)


def candidate_shares(scores: Float[Tensor, "B C"], belongs: Bool[Tensor, "B C"], alpha: float) -> Float[Tensor, "B C"]:
    """Return Q: the softmax of alpha · scores over the candidates that belong to Y, 0 elsewhere."""
    return (alpha * scores).masked_fill(~belongs, float("-inf")).softmax(-1)


def _split_sources(batch: Batch) -> list[Ids]:
    """Return the ids of each source without padding, and without a last EOS."""
    rows = batch.source_ids.tolist()
    lengths = [len(row) for row in rows] if batch.source_mask is None else batch.source_mask.sum(-1).tolist()
    return [tuple(row[: length - int(row[length - 1] == EOS)]) for row, length in zip(rows, lengths, strict=True)]


def _limit_length(reference_tokens: int, limit: int | None) -> int:
    longest = _LENGTH_FACTOR * reference_tokens + _LENGTH_EXTRA
    return longest if limit is None else min(longest, limit)
