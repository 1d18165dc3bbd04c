"""Text in, text out: the one place where tokenizers, network and search meet."""

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from attendo.data.batch import Example, collate, collate_sources
from attendo.decode.beam import Beam
from attendo.decode.config import GenerationConfig
from attendo.decode.frontier import NOTHING, Asked, Frontier
from attendo.decode.ranking import Ranking
from attendo.decode.rules import Forbid
from attendo.decode.search import Strategy, search
from attendo.decode.strategies import Greedy
from attendo.errors import ModelError, UsageError
from attendo.model.transformer import Transformer
from attendo.nn.attention import kernels_for_any_shape
from attendo.store import StoredModel, load_model, save_model
from attendo.text import EOS, PAD, Tokenizer


@dataclass(frozen=True)
class Hypothesis:
    """One way to answer. `ids` are without bos, eos and pad; `cut`: the length limit came before the end."""

    text: str
    ids: tuple[int, ...]
    pieces: tuple[str, ...]
    score: float  # what ranks, greedy or not: log_probability / tokens ** length_penalty, eos counted
    log_probability: float  # of all tokens together, eos included unless the answer was cut
    cut: bool


@dataclass(frozen=True)
class Result:
    """The answer to one text: the best hypothesis, and all that were kept, best first."""

    hypotheses: tuple[Hypothesis, ...]
    unknown: tuple[str, ...] = ()  # parts of the source that the vocabulary does not have

    @property
    def text(self) -> str:
        return self.hypotheses[0].text

    @property
    def score(self) -> float:
        return self.hypotheses[0].score

    @property
    def log_probability(self) -> float:
        return self.hypotheses[0].log_probability

    @property
    def ids(self) -> tuple[int, ...]:
        return self.hypotheses[0].ids

    @property
    def pieces(self) -> tuple[str, ...]:
        return self.hypotheses[0].pieces

    @property
    def cut(self) -> bool:
        return self.hypotheses[0].cut


@dataclass(frozen=True)
class Trace:
    """One run seen from inside. Row t of `decoder` and `cross` is the look that predicted `target_pieces[t]`."""

    source_pieces: tuple[str, ...]  # eos included
    target_pieces: tuple[str, ...]  # the tokens predicted, eos included unless the answer was cut
    encoder: Float[Tensor, "E H S S"]
    decoder: Float[Tensor, "L H T T"]
    cross: Float[Tensor, "L H T S"]


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

    @property
    def device(self) -> torch.device:
        return next(self.network.parameters()).device

    def save(self, folder: str | Path) -> None:
        save_model(Path(folder), self.stored)

    def generate(
        self,
        texts: Sequence[str],
        *,
        beam: int | None = None,
        length_penalty: float | None = None,
        n_best: int = 1,
        max_length: int | None = None,
    ) -> list[Result]:
        """The most probable answers that a beam of this width finds; a beam of 1 is greedy, token by token.

        Order out is order in; no text in, no text out. `n_best` is how many hypotheses each result has, fewer where
        fewer were found. `max_length` is the most tokens of an answer; unless given, it follows the length of the
        source. `beam` and `length_penalty` are the model's own unless given (see `decode.strategies.Beam`).
        """
        _refuse_string(texts)
        if max_length is not None and max_length < 1:
            raise UsageError(f"max_length must be at least 1, not {max_length}")
        config = self.generation.changed(beam=beam, length_penalty=length_penalty)
        if not 1 <= n_best <= config.beam:
            raise UsageError(f"n_best must be from 1 to beam ({config.beam}), not {n_best}")
        sources = [self.source_tokenizer.encode(text) if text.strip() else [] for text in texts]
        self._refuse_too_long(sources)
        results: dict[int, Result] = {n: _EMPTY for n, source in enumerate(sources) if not source}
        for group in _batches(sources, config.batch_tokens // config.beam):
            frontier = self._search([sources[n] for n in group], max_length, config)
            for n, hypotheses in zip(group, self._hypotheses(frontier, n_best, config), strict=True):
                results[n] = Result(hypotheses, tuple(self.source_tokenizer.unknown(texts[n])))
        return [results[n] for n in range(len(texts))]

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

    @torch.inference_mode()
    def _search(self, sources: Sequence[Sequence[int]], max_length: int | None, config: GenerationConfig) -> Frontier:
        ranking = Ranking(length_penalty=config.length_penalty)
        strategy: Strategy = Greedy() if config.beam == 1 else Beam(config.beam, ranking)
        ids, mask = collate_sources(sources)
        limits = [max_length or self._limit(len(source)) for source in sources]
        limit = torch.tensor(limits, device=self.device)
        with evaluating(self.network):
            memory = self.network.encode(ids.to(self.device), None if mask is None else mask.to(self.device))
            told = search(self.network, self.network.start(memory), Asked.of(limit), strategy, [Forbid()])
            return deque(told, maxlen=1).pop().hypotheses

    def _refuse_too_long(self, sources: Sequence[Sequence[int]]) -> None:
        config = self.network.config
        for n, source in enumerate(sources, start=1):
            if config.positions == "learned" and len(source) >= config.max_length:
                raise UsageError(
                    f"text {n} of {len(sources)} has {len(source)} tokens; the model reads at most "
                    f"{config.max_length - 1}: split it"
                )

    def _limit(self, source_tokens: int) -> int:
        limit = int(self.generation.max_length_factor * source_tokens) + self.generation.max_length_extra
        config = self.network.config
        return min(limit, config.max_length - 1) if config.positions == "learned" else limit

    def _hypotheses(
        self, frontier: Frontier, n_best: int, config: GenerationConfig
    ) -> Iterator[tuple[Hypothesis, ...]]:
        """Of each sentence the best; a beam may have found fewer than it has rows."""
        scores = Ranking(length_penalty=config.length_penalty).score(frontier)
        columns = (frontier.ids[:, 1:], frontier.log_probability, scores, frontier.cut)
        rows = list(zip(*(column.tolist() for column in columns), strict=True))
        for first in range(0, len(rows), frontier.width):
            best = rows[first : first + n_best]
            found = [row for row in best if row[1] != NOTHING] or best[:1]
            yield tuple(self._hypothesis(*row) for row in found)

    def _hypothesis(self, row: Sequence[int], log_probability: float, score: float, cut: bool) -> Hypothesis:
        ids = tuple(each for each in row if each not in (PAD, EOS))
        return Hypothesis(
            text=self.target_tokenizer.decode(ids),
            ids=ids,
            pieces=tuple(self.target_tokenizer.pieces(ids)),
            score=score,
            log_probability=log_probability,
            cut=cut,
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


_EMPTY = Result((Hypothesis("", (), (), 0.0, 0.0, False),))


def _refuse_string(texts: Sequence[str]) -> None:
    """A string is a sequence too, of letters: nobody means that."""
    if isinstance(texts, str):
        raise UsageError("a list of texts is needed: write [text] for a single one")


def _batches(sources: Sequence[Sequence[int]], batch_tokens: int) -> Iterator[list[int]]:
    """Numbers of the sources that are not empty, those of like length together."""
    group: list[int] = []
    for n in sorted((n for n, source in enumerate(sources) if source), key=lambda n: len(sources[n])):
        if group and (len(group) + 1) * (len(sources[n]) + 1) > batch_tokens:
            yield group
            group = []
        group.append(n)
    if group:
        yield group


def _stack(seen: dict[str, Tensor], stack: str, kind: str) -> Float[Tensor, "L H T S"]:
    layers = [name for name in seen if name.startswith(f"{stack}.") and name.endswith(f".{kind}")]
    return torch.stack([seen[name][0] for name in layers]).float().cpu()
