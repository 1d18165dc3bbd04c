"""Text in, text out: the one place where tokenizers, network and search meet."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from attendo.data.batch import Example, collate
from attendo.decode.config import GenerationConfig
from attendo.decode.engines import Engine
from attendo.decode.frontier import NOTHING, Frontier
from attendo.decode.ranking import Ranking
from attendo.decode.requests import Request
from attendo.errors import ModelError, UsageError
from attendo.model.transformer import Transformer
from attendo.nn.attention import kernels_for_any_shape
from attendo.store import StoredModel, load_model, save_model
from attendo.text import EOS, PAD, Tokenizer
from attendo.text_model.choices import engine_of, ranking_of, rules_of, strategy_of
from attendo.text_model.results import EMPTY, Hypothesis, Result, Score, Trace


class TextModel:
    """A network with its tokenizers."""

    def __init__(self, stored: StoredModel) -> None:
        self.stored = stored
        self.network: Transformer = stored.network
        self.source_tokenizer: Tokenizer = stored.source_tokenizer
        self.target_tokenizer: Tokenizer = stored.target_tokenizer
        if self.network.config.decoder_only:
            raise ModelError("a decoder-only network has no source to translate: use its network directly")
        self.generation = GenerationConfig(**stored.generation)
        self.scores: dict[str, Any] = stored.scores
        self._engine_used: tuple[object, Engine] | None = None

    @property
    def device(self) -> torch.device:
        return next(self.network.parameters()).device

    def save(self, folder: str | Path) -> None:
        save_model(Path(folder), self.stored)

    def generate(
        self, texts: Sequence[str], *, n_best: int = 1, max_length: int | None = None, **options: Any
    ) -> list[Result]:
        """An answer to each text; order out is order in, and no text in is no text out.

        `n_best` is how many hypotheses each result has, fewer where fewer were found. `max_length` is the most tokens
        of an answer; unless given, it follows the length of the source. `options` are those of `GenerationConfig`, the
        model's own unless given: beam=4, sample=True, temperature=0.8 ...
        """
        _refuse_string(texts)
        config = self._config(options, n_best, max_length)
        requests = []
        for number, source in enumerate(self._encoded(texts)):
            if source:
                limit, least = self._limits(len(source), max_length, config)
                requests.append(Request(number, tuple(source), limit, least))
        results = [EMPTY] * len(texts)
        with evaluating(self.network):
            found = self._engine(config).answers(requests, strategy_of(config, n_best), rules_of(config))
            for request, frontier in found:
                unknown = tuple(self.source_tokenizer.unknown(texts[request.number]))
                results[request.number] = Result(self._hypotheses(frontier, n_best, config), unknown)
        return results

    @torch.inference_mode()
    def score(self, sources: Sequence[str], targets: Sequence[str]) -> list[float]:
        """The log-probability of each target given its source, eos included: ∑ log p(yₜ | y₍<ₜ₎, x)."""
        _refuse_string(sources)
        _refuse_string(targets)
        if len(sources) != len(targets):
            raise UsageError(f"score takes pairs: {len(sources)} sources and {len(targets)} targets")
        with evaluating(self.network):
            return [self._score(source, target) for source, target in zip(sources, targets, strict=True)]

    @torch.inference_mode()
    def trace(self, text: str, target: str | None = None) -> Trace:
        """Generate on the fast path (or take the given target), then look at it once from inside."""
        source, cut = self.source_tokenizer.encode(text), False
        if target is not None:
            answer = self.target_tokenizer.encode(target)
        else:
            result = self.generate([text])[0]
            answer, cut = list(result.ids), result.cut
        # An answer that was cut never came to predict eos: its last token is the last row.
        batch = collate([Example(source, answer[:-1] if cut else answer)]).to(self.device)
        seen: dict[str, Tensor] = {}
        with evaluating(self.network):
            self.network(batch.source_ids, batch.target_ids, batch.source_mask, tap=seen.__setitem__)
        return Trace(
            source_pieces=tuple(self.source_tokenizer.pieces([*source, EOS])),
            target_pieces=tuple(self.target_tokenizer.pieces(answer if cut else [*answer, EOS])),
            encoder=_stack(seen, "encoder", "self"),
            decoder=_stack(seen, "decoder", "self"),
            cross=_stack(seen, "decoder", "cross"),
        )

    def _score(self, source: str, target: str) -> float:
        example = Example(self.source_tokenizer.encode(source), self.target_tokenizer.encode(target))
        batch = collate([example]).to(self.device)
        logits = self.network(batch.source_ids, batch.target_ids, batch.source_mask)
        return float(logits.float().log_softmax(-1).gather(-1, batch.labels[..., None]).sum())

    def _config(self, options: dict[str, Any], n_best: int, max_length: int | None) -> GenerationConfig:
        config = self.generation.changed(**options)
        if max_length is not None and max_length < 1:
            raise UsageError(f"max_length must be at least 1, not {max_length}")
        if config.sample and (options.get("beam") or 1) > 1:
            raise UsageError("sample and beam exclude each other: n_best is how many samples are drawn")
        if n_best < 1 or (n_best > config.beam and not config.sample):
            raise UsageError(f"n_best must be from 1 to beam ({config.beam}), not {n_best}")
        return config

    def _engine(self, config: GenerationConfig) -> Engine:
        """The one of last time, where nothing about it has changed: what it has recorded can be used again."""
        key = (config.engine, config.precision, config.batch_tokens, self.network.output.weight.device)
        if self._engine_used is None or self._engine_used[0] != key:
            self._engine_used = key, engine_of(config, self.network)
        return self._engine_used[1]

    def _encoded(self, texts: Sequence[str]) -> list[list[int]]:
        sources = [self.source_tokenizer.encode(text) if text.strip() else [] for text in texts]
        config = self.network.config
        for n, source in enumerate(sources, start=1):
            if config.positions == "learned" and len(source) >= config.max_length:
                raise UsageError(
                    f"text {n} of {len(sources)} has {len(source)} tokens; the model reads at most "
                    f"{config.max_length - 1}: split it"
                )
        return sources

    def _limits(self, source_tokens: int, max_length: int | None, config: GenerationConfig) -> tuple[int, int]:
        """The most and the fewest tokens of the answer."""
        limit = max_length or int(config.max_length_factor * source_tokens) + config.max_length_extra
        if self.network.config.positions == "learned":
            limit = min(limit, self.network.config.max_length - 1)
        return limit, min(limit, int(config.min_length_factor * source_tokens) + config.min_length_extra)

    def _hypotheses(self, frontier: Frontier, n_best: int, config: GenerationConfig) -> tuple[Hypothesis, ...]:
        """The best of one sentence; a beam may have found fewer than it has rows."""
        ranking = ranking_of(config)
        order = ranking.order(frontier)[:n_best]
        best = frontier.select(order)
        found = best.log_probability != NOTHING
        rows = range(len(order)) if not found.any() else found.nonzero()[:, 0].tolist()
        return tuple(self._hypothesis(best, row, ranking) for row in rows)

    def _hypothesis(self, frontier: Frontier, row: int, ranking: Ranking) -> Hypothesis:
        ids = tuple(each for each in frontier.ids[row, 1:].tolist() if each not in (PAD, EOS))
        tokens = int(ranking.tokens(frontier)[row])
        divisor, reward = ranking.terms(tokens)
        return Hypothesis(
            text=self.target_tokenizer.decode(ids),
            ids=ids,
            pieces=tuple(self.target_tokenizer.pieces(ids)),
            parts=Score(float(frontier.log_probability[row]), float(frontier.penalty[row]), tokens, divisor, reward),
            cut=bool(frontier.cut[row]),
        )


@contextmanager
def evaluating(network: nn.Module) -> Iterator[None]:
    """Without dropout, for sentences of any length; afterwards every part is in the mode it was in."""
    before = [(module, module.training) for module in network.modules()]
    network.eval()
    try:
        with kernels_for_any_shape():
            yield
    finally:
        for module, training in before:
            module.training = training


def load(folder: str | Path, device: str = "auto") -> TextModel:
    """The model in a folder; `device` is cpu, cuda, or auto for a GPU where there is one."""
    stored = load_model(Path(folder), pick_device(device))
    try:
        return TextModel(stored)
    except UsageError as error:
        raise ModelError(f"{Path(folder) / 'generation.json'}: {error}") from None


def pick_device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    kind, _, number = name.partition(":")
    if kind not in ("cpu", "cuda") or (number and not number.isdecimal()):
        raise UsageError(f"unknown device {name}: use auto, cpu, cuda or cuda:N")
    if kind == "cuda" and int(number or 0) >= torch.cuda.device_count():
        raise UsageError(f"device {name}: {torch.cuda.device_count()} CUDA GPUs are available here; use cpu or auto")
    return torch.device(name)


def _refuse_string(texts: Sequence[str]) -> None:
    """A string is a sequence too, of letters: nobody means that."""
    if isinstance(texts, str):
        raise UsageError("a list of texts is needed: write [text] for a single one")


def _stack(seen: dict[str, Tensor], stack: str, kind: str) -> Float[Tensor, "L H T S"]:
    layers = [name for name in seen if name.startswith(f"{stack}.") and name.endswith(f".{kind}")]
    return torch.stack([seen[name][0] for name in layers]).float().cpu()
