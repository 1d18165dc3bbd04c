"""Whether a model answers the same whatever the engine, batch, padding and cache, and whether its scores are those of
what it says: tried on sentences of its own.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from attendo.data.batch import Batch, Example, collate, collate_windows
from attendo.data.sequences import Sequences
from attendo.decode.beam import Beam
from attendo.decode.engines import CachedEngine, Engine, FastEngine, TextbookEngine
from attendo.decode.frontier import Frontier
from attendo.decode.ranking import Ranking
from attendo.decode.requests import Request
from attendo.decode.rules import Forbid, Prefix
from attendo.decode.search import Strategy
from attendo.decode.strategies import Greedy, Sample
from attendo.errors import UsageError
from attendo.model.transformer import Transformer
from attendo.nn.attention import Tap
from attendo.text import EOS, PAD
from attendo.text_model import TextModel, evaluating

SUB_LAYERS = "sub-layers"  # with the fast kernels, beside the formula written out
BATCHES = (1, 7, 32)
PADDING = 9
STRATEGIES: dict[str, Strategy] = {"greedy": Greedy(), "beam 4": Beam(4), "samples": Sample(2, seed=1)}
RULES = (Forbid(), Prefix())
# Log-probabilities are sums of many rounded numbers. Two answers that lie no further apart are equally good.
TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 0.1, torch.float16: 0.02}
_FINE = 16.0  # larger logits are rounded the more coarsely the larger they are
_NO_LIMIT = 1 << 40
_BEGINNING = 24  # tokens of a text that a decoder-only model continues, and at most as many behind them

Found = Mapping[int, Frontier]


@dataclass(frozen=True)
class Compared:
    """What one path gives beside another."""

    path: str
    what: str  # is compared: "greedy", "beam 4" ...
    count: int  # of answers or numbers
    different: int = 0  # with another token
    ties: int = 0  # of these, where both were equally probable: rounding decided
    largest: float = 0.0  # difference of the log-probabilities of equal answers, or of values
    allowed: float = 0.0
    example: str = ""  # of a difference

    @property
    def equal(self) -> bool:
        return self.different == self.ties and self.largest <= self.allowed


def verify(model: TextModel, texts: Sequence[str]) -> Iterator[Compared]:
    """All comparisons, each told as soon as it is made."""
    requests = _requests(model, texts)
    if not requests:
        raise UsageError("there is no sentence to verify with: name a file with some")
    network, many = model.network, model.generation.positions(model.device.type == "cuda")
    with evaluating(network):
        yield from _sub_layers(network, requests)
        allowed = _allowed(network, requests)
        for name, strategy in STRATEGIES.items():
            expected = _answers(TextbookEngine(network, many), requests, strategy)
            for path, engine, size in _paths(network, many):
                found = _answers(engine, requests, strategy, size)
                yield _compared(model, path, name, found, expected, allowed)
        greedy, narrow = (_answers(CachedEngine(network, many), requests, each) for each in (Greedy(), Beam(1)))
        yield _compared(model, "beam 1 is greedy", "greedy", narrow, greedy, allowed)
        yield _scores(model, greedy, requests, allowed)


def _paths(network: Transformer, many: int) -> Iterator[tuple[str, Engine, int]]:
    """Engines, and how many requests they get at a time."""
    yield "cached", CachedEngine(network, many), _NO_LIMIT
    for size in BATCHES:
        yield f"cached, batches of {size}", CachedEngine(network, _NO_LIMIT), size
    yield f"cached, {PADDING} columns of padding", CachedEngine(network, many, PADDING), _NO_LIMIT
    yield "fast", FastEngine(network, many), _NO_LIMIT
    yield "fast, one slot", FastEngine(network, 1), _NO_LIMIT


def _requests(model: TextModel, texts: Sequence[str]) -> list[Request]:
    config = model.generation
    sources = [tuple(model.source_tokenizer.encode(text)) for text in texts if text.strip()]
    most = model.network.config.max_length - 1 if model.network.config.positions == "learned" else _NO_LIMIT
    if model.decoder_only:
        begins = [ids[:_BEGINNING] for ids in sources if ids]
        return [
            Request(number, (), min(most, len(ids) + min(config.max_length_extra, _BEGINNING)), prefix=ids[:most])
            for number, ids in enumerate(begins)
        ]
    return [
        Request(number, source, min(most, int(config.max_length_factor * len(source)) + config.max_length_extra))
        for number, source in enumerate(source for source in sources if source and len(source) <= most - PADDING)
    ]


def _answers(engine: Engine, requests: Sequence[Request], strategy: Strategy, size: int = _NO_LIMIT) -> Found:
    groups = [requests[first : first + size] for first in range(0, len(requests), min(size, len(requests)))]
    told = (answers for group in groups for answers in engine.answers(group, strategy, RULES))
    return {request.number: found for answers in told for request, found in answers.one_by_one()}


def _compared(model: TextModel, path: str, what: str, found: Found, expected: Found, allowed: float) -> Compared:
    different, ties, largest, example = 0, 0, 0.0, ""
    for number, one in found.items():
        other = expected[number]
        apart = (one.log_probability - other.log_probability).abs().nan_to_num(0.0)
        if _ids(one) == _ids(other):
            largest = max(largest, float(apart.max()))
            continue
        different += 1
        ties += bool(abs(_score(one) - _score(other)) <= allowed)
        example = example or f"{_text(model, one)!r} and {_text(model, other)!r}"
    return Compared(path, what, len(found), different, ties, largest, allowed, example)


def _score(hypotheses: Frontier) -> float:
    """Of the best hypothesis."""
    return float(Ranking().score(hypotheses)[0])


def _scores(model: TextModel, answers: Found, requests: Sequence[Request], allowed: float) -> Compared:
    """The log-probability told with an answer, beside that of reading it."""
    largest, counted = 0.0, 0
    for request in requests:
        found = answers[request.number]
        ids = _ids(found)[0]
        if model.decoder_only:
            batch = collate_windows(Sequences.of([ids])).to(model.device)
        elif found.cut[0]:  # it has no end to be counted
            continue
        else:
            batch = collate([Example(request.source, [each for each in ids if each != EOS])]).to(model.device)
        with torch.inference_mode():
            logits = model.network(batch.source_ids, batch.target_ids, batch.source_mask)
            read = logits.float().log_softmax(-1).gather(-1, batch.labels[..., None]).sum()
        largest, counted = max(largest, abs(float(read) - float(found.log_probability[0]))), counted + 1
    return Compared("the score of an answer", "greedy", counted, largest=largest, allowed=allowed)


@torch.inference_mode()
def _sub_layers(network: Transformer, requests: Sequence[Request]) -> Iterator[Compared]:
    """What each sub-layer gives with the fast kernels, beside the formula written out."""
    batch = _batch(network, requests)
    fused, written_out = (_outputs(network, batch, tap) for tap in (None, lambda site, weights: None))
    allowed = TOLERANCE[network.output.weight.dtype]
    sides = {"encoder": batch.source_mask, "decoder": batch.labels != PAD, "output": batch.labels != PAD}
    for name, given in fused.items():
        is_token = sides[name.split(".")[0]]
        apart = (given - written_out[name]).float().abs()
        largest = float((apart if is_token is None else apart[is_token]).max())
        scale = max(1.0, float(given.float().abs().max()))
        yield Compared(name, SUB_LAYERS, apart.numel(), largest=largest, allowed=allowed * scale)


@torch.inference_mode()
def _allowed(network: Transformer, requests: Sequence[Request]) -> float:
    """How far apart log-probabilities may be."""
    largest = float(_outputs(network, _batch(network, requests), None)["output"].abs().max())
    return TOLERANCE[network.output.weight.dtype] * max(1.0, largest / _FINE)


def _batch(network: Transformer, requests: Sequence[Request]) -> Batch:
    """Some of the sources, each with itself as an answer, as far as the vocabulary goes; or texts without a source."""
    top, device = network.output.out_features - 1, network.output.weight.device
    if network.decoder_only:
        return collate_windows(Sequences.of([request.prefix for request in requests[: BATCHES[-1]]])).to(device)
    some = (request.source for request in requests[: BATCHES[-1]])
    return collate([Example(ids, [min(each, top) for each in ids]) for ids in some]).to(device)


def _outputs(network: Transformer, batch: Batch, tap: Tap | None) -> dict[str, Tensor]:
    """Of every sub-layer, by its name."""
    given: dict[str, Tensor] = {}
    hooks = [
        module.register_forward_hook(lambda _, __, out, name=name: given.__setitem__(name, out))
        for name, module in network.named_modules()
        if name.endswith(("self_attention", "cross_attention", "feed_forward")) or name == "output"
    ]
    network(batch.source_ids, batch.target_ids, batch.source_mask, tap=tap)
    for hook in hooks:
        hook.remove()
    return given


def _ids(hypotheses: Frontier) -> list[list[int]]:
    return [[each for each in row[1:] if each != PAD] for row in hypotheses.ids.tolist()]


def _text(model: TextModel, hypotheses: Frontier) -> str:
    return model.target_tokenizer.decode([each for each in _ids(hypotheses)[0] if each != EOS])
