"""Forward passes of one model over encoded pairs: teacher forcing, divergence from an oracle, generation."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from attendo.data.batch import Batch, Example, collate
from attendo.decode.config import GenerationConfig
from attendo.decode.requests import DecodeRequest, encode_and_start, run_in_length_batches
from attendo.decode.rules import ForcedPrefix, SuppressTokens
from attendo.decode.search import Rule, Seq2SeqNetwork, Strategy, run_step_hook
from attendo.explore.exposure.corruptions import Ids
from attendo.text import BOS, EOS, PAD
from attendo.text.tokenizer import end_source
from attendo.text_model import TextModel

FloatArray = NDArray[np.float64]
NEG_INF = float("-inf")
_CPU_POSITIONS, _GPU_POSITIONS = 1024, 4096  # per batch; each position has a logit for every token of the vocabulary


@dataclass(frozen=True)
class GoldPass:
    """The model's predictions after the prefixes of one reference."""

    log_probs: FloatArray  # of the reference's tokens and EOS
    predictions: Ids  # the most probable token at each position
    best_wrong: int  # the most probable token at the chosen position that is not the reference's, and not EOS


class ModelPasses:
    """Runs a model in batches. `advance` is called with the number of sentences of each finished batch."""

    def __init__(self, model: TextModel, config: GenerationConfig, advance: Callable[[int], None]) -> None:
        network = model.backend.network(config)
        assert network is not None  # an autoregressive network
        self._model, self._config, self._advance, self._network = model, config, advance, network
        self._given = len(config.target_prefix)  # tokens that every target begins with; they are not predicted
        on_gpu = model.device.type == "cuda"
        self._positions = config.batch_tokens or (_GPU_POSITIONS if on_gpu else _CPU_POSITIONS)

    def read_references(self, pairs: Sequence[Example], positions: Sequence[int | None]) -> list[GoldPass]:
        """Predict every token of the references. `positions` are those whose best wrong token is returned."""
        found: dict[int, GoldPass] = {}

        def read(group: Sequence[int], batch: Batch) -> None:
            log_probs = self._predict(self._network, batch)
            each = log_probs.gather(-1, batch.labels[..., None])[..., 0].double().cpu().numpy()
            log_probs[..., [PAD, BOS]] = NEG_INF
            predictions = log_probs.argmax(-1).tolist()
            columns = torch.tensor([self._given + (positions[line] or 0) for line in group], device=log_probs.device)
            rows = torch.arange(len(group), device=log_probs.device)
            others = log_probs[rows, columns].scatter(1, batch.labels[rows, columns][:, None], NEG_INF)
            others[:, EOS] = NEG_INF
            wrong = others.argmax(-1).tolist()
            for row, line in enumerate(group):
                tokens = slice(self._given, len(pairs[line].target) + 1)
                found[line] = GoldPass(each[row, tokens], tuple(predictions[row][tokens]), wrong[row])

        self._run(pairs, read)
        return [found[line] for line in range(len(pairs))]

    def score(self, pairs: Sequence[Example]) -> list[FloatArray]:
        """Return the log-probability of every target token and of EOS."""
        found: dict[int, FloatArray] = {}

        def read(group: Sequence[int], batch: Batch) -> None:
            log_probs = self._predict(self._network, batch)
            each = log_probs.gather(-1, batch.labels[..., None])[..., 0].double().cpu().numpy()
            for row, line in enumerate(group):
                found[line] = each[row, self._given : len(pairs[line].target) + 1]

        self._run(pairs, read)
        return [found[line] for line in range(len(pairs))]

    def measure_divergences(self, oracle: TextModel, pairs: Sequence[Example]) -> list[FloatArray]:
        """Return KL(oracle ‖ model) of the next token after each prefix of the targets, in nats."""
        network = oracle.backend.network(self._config)
        assert network is not None
        found: dict[int, FloatArray] = {}

        def read(group: Sequence[int], batch: Batch) -> None:
            right, own = self._predict(network, batch), self._predict(self._network, batch)
            each = (right.exp() * (right - own)).sum(-1, dtype=torch.float64).cpu().numpy()
            for row, line in enumerate(group):
                found[line] = each[row, self._given : len(pairs[line].target) + 1]

        self._run(pairs, read)
        return [found[line] for line in range(len(pairs))]

    def generate(self, pairs: Sequence[Example], strategy: Strategy, max_tokens: int | None = None) -> list[Ids]:
        """Return the model's own output for each source: its tokens, and EOS unless it reached the limit.

        `max_tokens` replaces the limits of the model. The random numbers of a line follow from its number.
        """
        requests = [self._make_request(line, pair, max_tokens) for line, pair in enumerate(pairs, start=1)]
        rules: list[Rule] = [SuppressTokens()]
        if self._given:
            rules.append(ForcedPrefix())
        found: dict[int, Ids] = {}
        for finished in self._model.backend.engine(self._config, constrained=False).generate(requests, strategy, rules):
            rows, lengths = finished.hypotheses.ids.tolist(), finished.hypotheses.length.tolist()
            for request, ids, length in zip(finished.requests, rows, lengths, strict=True):
                found[request.request_id] = tuple(ids[1 + self._given : 1 + length])
            self._advance(len(lengths))
        return [found[request.request_id] for request in requests]

    def _make_request(self, line: int, pair: Example, max_tokens: int | None) -> DecodeRequest:
        config, most = self._config, self._model.backend.max_sequence_length
        tokens = len(end_source(pair.source)) - 1 - len(config.source_prefix) - len(config.source_suffix)
        limit = int(config.max_length_factor * tokens) + config.max_length_extra
        limit = max(limit, self._given + config.max_length_extra) if max_tokens is None else self._given + max_tokens
        prefix = tuple(pair.target[: self._given])
        return DecodeRequest(line, tuple(pair.source), limit if most is None else min(limit, most), 0, prefix)

    def _run(self, pairs: Sequence[Example], read: Callable[[Sequence[int], Batch], None]) -> None:
        """Call `read` with the line numbers and the tensors of batches of similar length."""

        def run(group: Sequence[int]) -> None:
            run_step_hook()
            read(group, collate([pairs[line] for line in group]).to(self._model.device))
            self._advance(len(group))

        with torch.inference_mode():
            run_in_length_batches([pair.length for pair in pairs], self._positions, run)

    def _predict(self, network: Seq2SeqNetwork, batch: Batch) -> Float[Tensor, "B T V"]:
        """Return the log-probabilities of the token after each target token."""
        logits, _ = network.step(batch.target_ids, encode_and_start(network, batch.source_ids, batch.source_mask))
        return logits.float().log_softmax(-1)
