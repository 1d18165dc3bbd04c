"""Text in, text out: the one place where tokenizers, network and search meet."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor

from attendo.data.batch import Example, collate, collate_sources
from attendo.decode.rules import Forbid
from attendo.decode.search import Frontier, search
from attendo.decode.strategies import Greedy
from attendo.errors import ModelError, UsageError
from attendo.model.transformer import Transformer
from attendo.settings import Settings
from attendo.store import StoredModel, load_model, save_model
from attendo.text import EOS, PAD, Tokenizer


class GenerationConfig(Settings):
    """Decoding defaults, kept in the model folder."""

    max_length_factor: Annotated[float, Field(ge=0)] = 2.0  # the most tokens out: factor times the source's, plus extra
    max_length_extra: Annotated[int, Field(ge=1)] = 20
    batch_tokens: Annotated[int, Field(ge=1)] = 4096  # source positions decoded side by side


@dataclass(frozen=True)
class Hypothesis:
    """One way to answer. `ids` are without bos, eos and pad; `cut`: the length limit came before the end."""

    text: str
    ids: tuple[int, ...]
    pieces: tuple[str, ...]
    score: float
    cut: bool


@dataclass(frozen=True)
class Result:
    """The answer to one text: the best hypothesis, and all that were kept."""

    hypotheses: tuple[Hypothesis, ...]
    unknown: tuple[str, ...] = ()  # parts of the source that the vocabulary does not have

    @property
    def text(self) -> str:
        return self.hypotheses[0].text

    @property
    def score(self) -> float:
        return self.hypotheses[0].score

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
        self.network: Transformer = stored.network.eval()
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

    def generate(self, texts: Sequence[str], *, max_length: int | None = None) -> list[Result]:
        """The most probable continuation, token by token (greedy). Order out is order in; no text in, no text out.

        `max_length` is the most tokens of an answer; unless given, it follows the length of the source.
        """
        _refuse_string(texts)
        if max_length is not None and max_length < 1:
            raise UsageError(f"max_length must be at least 1, not {max_length}")
        self.network.eval()
        sources = [self.source_tokenizer.encode(text) if text.strip() else [] for text in texts]
        self._refuse_too_long(sources)
        results: dict[int, Result] = {n: _EMPTY for n, source in enumerate(sources) if not source}
        for group in _batches(sources, self.generation.batch_tokens):
            frontier = self._greedy([sources[n] for n in group], max_length)
            for row, n in enumerate(group):
                unknown = tuple(self.source_tokenizer.unknown(texts[n]))
                results[n] = Result((self._hypothesis(frontier, row),), unknown)
        return [results[n] for n in range(len(texts))]

    @torch.inference_mode()
    def score(self, sources: Sequence[str], targets: Sequence[str]) -> list[float]:
        """The log-probability of each target given its source, eos included: ∑ log p(yₜ | y₍<ₜ₎, x)."""
        _refuse_string(sources)
        _refuse_string(targets)
        if len(sources) != len(targets):
            raise UsageError(f"score takes pairs: {len(sources)} sources and {len(targets)} targets")
        self.network.eval()
        scores = []
        for source, target in zip(sources, targets, strict=True):
            batch = collate([self._example(source, target)]).to(self.device)
            logits = self.network(batch.source_ids, batch.target_ids, batch.source_mask)
            log_probs = logits.float().log_softmax(-1).gather(-1, batch.labels[..., None])
            scores.append(float(log_probs.sum()))
        return scores

    @torch.inference_mode()
    def trace(self, text: str, target: str | None = None) -> Trace:
        """Generate on the fast path (or take the given target), then look at it once from inside."""
        self.network.eval()
        source, cut = self.source_tokenizer.encode(text), False
        if target is not None:
            answer = self.target_tokenizer.encode(target)
        else:
            result = self.generate([text])[0]
            answer, cut = list(result.ids), result.cut
        # An answer that was cut never came to predict eos: its last token is the last row.
        batch = collate([Example(source, answer[:-1] if cut else answer)]).to(self.device)
        seen: dict[str, Tensor] = {}
        self.network(batch.source_ids, batch.target_ids, batch.source_mask, tap=seen.__setitem__)
        return Trace(
            source_pieces=tuple(self.source_tokenizer.pieces([*source, EOS])),
            target_pieces=tuple(self.target_tokenizer.pieces(answer if cut else [*answer, EOS])),
            encoder=_stack(seen, "encoder", "self"),
            decoder=_stack(seen, "decoder", "self"),
            cross=_stack(seen, "decoder", "cross"),
        )

    def _example(self, source: str, target: str) -> Example:
        return Example(self.source_tokenizer.encode(source), self.target_tokenizer.encode(target))

    @torch.inference_mode()
    def _greedy(self, sources: Sequence[Sequence[int]], max_length: int | None) -> Frontier:
        ids, mask = collate_sources(sources)
        limits = [max_length or self._limit(len(source)) for source in sources]
        memory = self.network.encode(ids.to(self.device), None if mask is None else mask.to(self.device))
        limit = torch.tensor(limits, device=self.device)
        *_, last = search(self.network, self.network.start(memory), limit, Greedy(), [Forbid()])
        return last

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

    def _hypothesis(self, frontier: Frontier, row: int) -> Hypothesis:
        ids = tuple(int(n) for n in frontier.ids[row, 1:] if n not in (PAD, EOS))
        return Hypothesis(
            text=self.target_tokenizer.decode(ids),
            ids=ids,
            pieces=tuple(self.target_tokenizer.pieces(ids)),
            score=float(frontier.log_probability[row]),
            cut=bool(frontier.cut[row]),
        )


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


_EMPTY = Result((Hypothesis("", (), (), 0.0, False),))


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
