"""`attendo verify`: compares outputs and scores across engines, batch sizes and padding.

`verify` checks a model of attendo, and `verify_exported` an exported one on its own engine. The certificate of an
export compares it with the folder that it was made from.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from attendo.data.batch import Batch, Example, RaggedArray, collate, collate_windows
from attendo.decode.beam import Beam
from attendo.decode.config import GenerationConfig
from attendo.decode.engines import CachedEngine, Engine, FastEngine, TextbookEngine
from attendo.decode.frontier import NEG_INF, Frontier
from attendo.decode.parallel import ParallelEngine
from attendo.decode.ranking import Ranking
from attendo.decode.requests import DecodeRequest
from attendo.decode.rules import ForcedPrefix, SuppressTokens
from attendo.decode.search import Strategy
from attendo.decode.strategies import Greedy, Sampling
from attendo.errors import LocalizedText, UsageError
from attendo.model.parallel import Canvas, ParallelTransformer
from attendo.model.transformer import Transformer
from attendo.nn.attention import Tap
from attendo.text import EOS, PAD
from attendo.text_model import Hypothesis, TextModel, eval_mode
from attendo.text_model.backends import member_networks, with_precision
from attendo.text_model.inputs import encode_symbols
from attendo.train.parallel_loss import sentence_losses

SUB_LAYERS = "sub-layers"  # compares fused kernels with the explicit formula
BATCH_SIZES = (1, 7, 32)
PADDING = 9
STRATEGIES: dict[str, Strategy] = {"greedy": Greedy(), "beam 4": Beam(4), "samples": Sampling(2, seed=1)}
# Searches of each kind that predicts all tokens at once: settings and strategy.
PARALLEL_SEARCHES: dict[str, dict[str, tuple[dict[str, Any], Strategy]]] = {
    "masked": {"4 passes": ({"passes": 4, "length_candidates": 3}, Greedy())},
    "ctc": {"best tokens": ({}, Greedy())},
    "graph": {
        **{
            LocalizedText("{search} path", search=LocalizedText(each)): ({"graph_search": each}, Greedy())
            for each in ("lookahead", "greedy", "viterbi")
        },
        **{
            LocalizedText("{search} by token", search=LocalizedText(name)): ({"graph_search": "tokens"}, each)
            for name, each in STRATEGIES.items()
        },
    },
}
RULES = (SuppressTokens(), ForcedPrefix())
# Log-probabilities are sums of many rounded numbers. Two results within this tolerance are equally good.
TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 0.1, torch.float16: 0.02}
_MAX_EXACT_LOGIT = 16.0  # the rounding error of larger logits grows with their size
_NO_LIMIT = 1 << 40
MAX_TOKENS = 256  # per sentence: the textbook engine reads the whole output again for each token
_MAX_PROMPT_TOKENS = 24  # of a prompt for a decoder-only model, and of its continuation
EXPORTED_TOLERANCE = 1e-3  # of log-probabilities, which exported models compute as sums of rounded numbers
EXPORTED_SEARCHES: dict[str, dict[str, Any]] = {
    "greedy": {"beam": 1},
    "beam 4": {"beam": 4, "n_best": 4},
    "samples": {"sample": True},
}


class ScoredHypothesis(Protocol):
    """Protocol of a hypothesis with ids and scores."""

    @property
    def ids(self) -> Sequence[int]: ...

    @property
    def log_probability(self) -> float: ...

    @property
    def score(self) -> float: ...


@dataclass(frozen=True)
class PathComparison:
    """Comparison of the results of two paths."""

    path: str
    what: str  # the compared strategy: "greedy", "beam 4" ...
    count: int  # of outputs or numbers; 0: nothing to compare
    different: int = 0  # outputs with a different token in a hypothesis
    ties: int = 0  # different outputs whose scores are equal within the tolerance: rounding decided
    largest: float = 0.0  # difference of log-probabilities of equal hypotheses, or of values; infinite for NaN
    allowed: float = 0.0
    example: str = ""  # of a different output

    @property
    def equal(self) -> bool:
        return self.different == self.ties and self.largest <= self.allowed


def compare_hypotheses(
    path: str,
    what: str,
    pairs: Sequence[tuple[Sequence[ScoredHypothesis], Sequence[ScoredHypothesis]]],
    allowed: float,
    decode: Callable[[Sequence[int]], str],
) -> PathComparison:
    """Compare found and expected hypotheses per output, best first."""
    different, ties, largest, example = 0, 0, 0.0, ""
    for found, expected in pairs:
        both = [(one, other) for one, other in zip(found, expected, strict=False) if one.ids == other.ids]
        largest = max(
            largest, *(absolute_difference(one.log_probability, other.log_probability) for one, other in both), 0.0
        )
        if len(both) == len(found) == len(expected):
            continue
        different += 1
        ties += len(found) == len(expected) and all(
            absolute_difference(one.score, other.score) <= allowed for one, other in zip(found, expected, strict=True)
        )
        example = example or _format_example(found, expected, decode)
    return PathComparison(path, what, len(pairs), different, ties, largest, allowed, example)


def absolute_difference(one: float, other: float) -> float:
    """Return the absolute difference: 0 for -∞ and -∞, infinite for NaN."""
    if one == other:
        return 0.0
    distance = abs(one - other)
    return math.inf if math.isnan(distance) else distance


def _format_example(
    found: Sequence[ScoredHypothesis], expected: Sequence[ScoredHypothesis], decode: Callable[[Sequence[int]], str]
) -> str:
    for one, other in zip(found, expected, strict=False):
        if one.ids != other.ids:
            return f"{decode(one.ids)!r} and {decode(other.ids)!r}"
    return f"{len(found)} hypotheses and {len(expected)}"


class ComparedHypothesis(NamedTuple):
    """A hypothesis as ids, log-probability and score."""

    ids: tuple[int, ...]  # without BOS
    log_probability: float
    score: float


HypothesesByRequest = Mapping[int, Sequence[ComparedHypothesis]]  # by request id


def verify(
    model: TextModel, texts: Sequence[str], precision: str = "auto", draft: TextModel | None = None
) -> Iterator[PathComparison]:
    """Yield comparisons as they are made. `precision` is that of `GenerationConfig`.

    With a `draft`, speculative decoding is compared with greedy search too.
    """
    if draft is not None:
        model.with_draft(draft)  # reject a draft that does not fit before the first comparison
    requests = _make_requests(model, texts)
    if not requests:
        raise UsageError("no_sentence_to_verify")
    config = model.generation.override(precision=precision)
    (network,) = member_networks(with_precision(config, model.network))
    many = config.resolve_batch_tokens(model.device.type == "cuda")
    with eval_mode(network):
        yield from _compare_sub_layers(network, requests)
        allowed = _compute_tolerance(network, requests)
        if isinstance(network, ParallelTransformer):
            yield from _verify_parallel(model, network, requests, allowed)
            return
        for name, strategy in STRATEGIES.items():
            expected, found = _run_engine(TextbookEngine(network, many), requests, strategy), {}
            for path, engine, size in _list_paths(network, many, len(requests)):
                found[path] = _run_engine(engine, requests, strategy, size)
                yield _compare_paths(model, path, name, found[path], expected, allowed)
            if name == "greedy":
                narrow = _run_engine(CachedEngine(network, many), requests, Beam(1))
                yield _compare_paths(model, "beam 1 is greedy", name, narrow, found["cached"], allowed)
                if draft is not None:
                    yield from _compare_drafted(model, draft, config, requests, found["cached"], allowed)
            yield _compare_scores(network, name, found["cached"], requests, allowed)


def _compare_drafted(
    model: TextModel,
    draft: TextModel,
    config: GenerationConfig,
    requests: Sequence[DecodeRequest],
    expected: HypothesesByRequest,
    allowed: float,
) -> Iterator[PathComparison]:
    """Compare speculative decoding with greedy search."""
    backend = model.with_draft(draft).backend
    for path in ("cached", "fast"):
        with backend.inference_mode():
            found = _run_engine(backend.engine(config.override(engine=path), constrained=False), requests, Greedy())
        yield _compare_paths(
            model, LocalizedText("{path}, with a draft", path=LocalizedText(path)), "greedy", found, expected, allowed
        )


def _verify_parallel(
    model: TextModel, network: ParallelTransformer, requests: Sequence[DecodeRequest], allowed: float
) -> Iterator[PathComparison]:
    """Compare the paths of a network that predicts all tokens at once, and a graph's search token by token."""
    many = model.generation.resolve_batch_tokens(network.device.type == "cuda")
    for name, (options, strategy) in PARALLEL_SEARCHES[network.config.kind].items():
        config = model.generation.override(**options)
        expected = _run_engine(ParallelEngine(network, config, many, explicit=True), requests, strategy)
        for path, engine, size in _list_parallel_paths(network, config, many, len(requests)):
            found = _run_engine(engine, requests, strategy, size)
            yield _compare_paths(model, path, name, found, expected, allowed)
        if network.config.kind == "graph" and config.graph_search == "tokens":
            yield _compare_graph_scores(network, name, expected, requests, allowed)


def _list_parallel_paths(
    network: ParallelTransformer, config: GenerationConfig, max_positions: int, count: int
) -> Iterator[tuple[str, Engine, int]]:
    yield "cached", ParallelEngine(network, config, max_positions), _NO_LIMIT
    for size in (size for size in BATCH_SIZES if size < count):
        yield LocalizedText("cached, batches of {size}", size=size), ParallelEngine(network, config, _NO_LIMIT), size
    padded = ParallelEngine(network, config, max_positions, padding=PADDING)
    yield LocalizedText("cached, {columns} columns of padding", columns=PADDING), padded, _NO_LIMIT
    yield "fast", ParallelEngine(network, config, max_positions, captured=True), _NO_LIMIT


@torch.inference_mode()
def _compare_graph_scores(
    network: ParallelTransformer,
    what: str,
    hypotheses: HypothesesByRequest,
    requests: Sequence[DecodeRequest],
    allowed: float,
) -> PathComparison:
    """Compare the reported log-probability with the sum over all paths. A truncated output has no such sum."""
    largest, counted = 0.0, 0
    for request in requests:
        rows = [row for row in hypotheses[request.request_id] if row.ids and row.ids[-1] == EOS]
        if rows:
            batch = collate([Example(request.source, row.ids[:-1]) for row in rows]).to(network.device)
            losses = sentence_losses(network, batch.source_ids, batch.source_mask, batch.labels).tolist()
            for loss, row in zip(losses, rows, strict=True):
                largest = max(largest, absolute_difference(-loss, row.log_probability))
            counted += 1
    return PathComparison("the score of an answer", what, counted, largest=largest, allowed=allowed)


def max_sentence_tokens(model: TextModel) -> int:
    """Return the maximum tokens of a sentence. Longer ones are skipped."""
    config, positions = model.generation, model.backend.max_sequence_length
    limit = min(MAX_TOKENS, config.max_source, MAX_TOKENS if positions is None else positions - PADDING)
    return limit - len(config.source_prefix) - len(config.source_suffix)


def is_too_long(model: TextModel, text: str) -> bool:
    """Return whether a text is skipped as too long. A prompt for a decoder-only model is truncated instead."""
    return not model.continues_text and len(model.source_tokenizer.encode(text)) > max_sentence_tokens(model)


def _list_paths(network: Transformer, max_positions: int, count: int) -> Iterator[tuple[str, Engine, int]]:
    """Yield engines with their batch sizes. Sizes of `count` or more are skipped: "cached" gets all requests."""
    smaller = [size for size in BATCH_SIZES if size < count]
    yield "cached", CachedEngine(network, max_positions), _NO_LIMIT
    for size in smaller:
        yield LocalizedText("cached, batches of {size}", size=size), CachedEngine(network, _NO_LIMIT), size
    yield (
        LocalizedText("cached, {columns} columns of padding", columns=PADDING),
        CachedEngine(network, max_positions, PADDING),
        _NO_LIMIT,
    )
    yield "fast", FastEngine(network, max_positions), _NO_LIMIT
    for size in (size for size in smaller if size > 1):  # it always pads, and size 1 is nearly the same as one slot
        yield LocalizedText("fast, batches of {size}", size=size), FastEngine(network, max_positions), size
    yield "fast, one slot", FastEngine(network, 1), _NO_LIMIT


def _make_requests(model: TextModel, texts: Sequence[str]) -> list[DecodeRequest]:
    config, positions = model.generation, model.backend.max_sequence_length
    most = _NO_LIMIT if positions is None else positions
    short = (text for text in texts if text.strip() and not is_too_long(model, text))
    symbols = encode_symbols(config, model.source_tokenizer, model.target_tokenizer)
    sources = [tuple(model.source_tokenizer.encode(text)) for text in short]
    if model.continues_text:
        begins = [ids[:_MAX_PROMPT_TOKENS] for ids in sources if ids]
        return [
            DecodeRequest(
                number, (), min(most, len(ids) + min(config.max_length_extra, _MAX_PROMPT_TOKENS)), prefix=ids[:most]
            )
            for number, ids in enumerate(begins)
        ]
    return [
        DecodeRequest(
            number,
            symbols.wrap_source(source),
            min(most, int(config.max_length_factor * len(source)) + config.max_length_extra),
        )
        for number, source in enumerate(source for source in sources if source)
    ]


def _run_engine(
    engine: Engine, requests: Sequence[DecodeRequest], strategy: Strategy, batch_size: int = _NO_LIMIT
) -> HypothesesByRequest:
    groups = [requests[first : first + batch_size] for first in range(0, len(requests), min(batch_size, len(requests)))]
    results = (result for group in groups for result in engine.generate(group, strategy, RULES))
    return {request.request_id: _to_hypotheses(found) for result in results for request, found in result.split()}


def _to_hypotheses(hypotheses: Frontier) -> list[ComparedHypothesis]:
    """Convert rows to hypotheses. A beam may find fewer hypotheses than it has rows."""
    ids = [tuple(each for each in row[1:] if each != PAD) for row in hypotheses.ids.tolist()]
    scores = Ranking().score(hypotheses).tolist()
    rows = map(ComparedHypothesis, ids, hypotheses.log_probability.tolist(), scores)
    return [row for row in rows if row.log_probability != NEG_INF]


def _compare_paths(
    model: TextModel, path: str, what: str, found: HypothesesByRequest, expected: HypothesesByRequest, allowed: float
) -> PathComparison:
    def text(ids: Sequence[int]) -> str:
        return model.target_tokenizer.decode([each for each in ids if each != EOS])

    pairs = [(found.get(number, ()), rows) for number, rows in expected.items()]
    return compare_hypotheses(path, what, pairs, allowed, text)


@torch.inference_mode()
def _compare_scores(
    network: Transformer, what: str, hypotheses: HypothesesByRequest, requests: Sequence[DecodeRequest], allowed: float
) -> PathComparison:
    """Compare the reported log-probability of an output with forced decoding. A truncated output has no EOS term."""
    largest, counted, device = 0.0, 0, network.output.weight.device
    for request in requests:
        rows = [row for row in hypotheses[request.request_id] if row.ids]
        if not rows:
            continue
        if network.continues_text:
            batch = collate_windows(RaggedArray.from_lists([row.ids for row in rows])).to(device)
        else:
            targets = ([each for each in row.ids if each != EOS] for row in rows)
            batch = collate([Example(request.source, ids) for ids in targets]).to(device)
        logits = network(batch.source_ids, batch.target_ids, batch.source_mask)
        read = logits.float().log_softmax(-1).gather(-1, batch.labels[..., None])[..., 0]
        for row, of_tokens in zip(rows, read, strict=True):
            largest = max(largest, absolute_difference(float(of_tokens[: len(row.ids)].sum()), row.log_probability))
        counted += 1
    return PathComparison("the score of an answer", what, counted, largest=largest, allowed=allowed)


@torch.inference_mode()
def _compare_sub_layers(network: Transformer, requests: Sequence[DecodeRequest]) -> Iterator[PathComparison]:
    """Compare each sub-layer's output with fused kernels and with the explicit formula."""
    batch = _make_batch(network, requests)
    fused, written_out = (_record_outputs(network, batch, tap) for tap in (None, lambda site, weights: None))
    allowed = TOLERANCE[network.output.weight.dtype]
    read = _decoder_input(network, batch)
    target = read.mask if isinstance(read, Canvas) else batch.labels != PAD
    sides = {"encoder": batch.source_mask, "decoder": target, "output": target}
    for name, given in fused.items():
        is_token = sides[name.split(".")[0]]
        apart = (given - written_out[name]).float().abs()
        largest = float((apart if is_token is None else apart[is_token]).max())
        scale = max(1.0, _finite_or_zero(given.float().abs().max()))
        yield PathComparison(name, SUB_LAYERS, apart.numel(), largest=largest, allowed=allowed * scale)


@torch.inference_mode()
def _compute_tolerance(network: Transformer, requests: Sequence[DecodeRequest]) -> float:
    """Return the tolerance for log-probabilities."""
    largest = _finite_or_zero(_record_outputs(network, _make_batch(network, requests), None)["output"].abs().max())
    return TOLERANCE[network.output.weight.dtype] * max(1.0, largest / _MAX_EXACT_LOGIT)


def _finite_or_zero(largest: Tensor) -> float:
    """Return 0 for overflow, so that it adds no tolerance."""
    return float(largest.nan_to_num(0.0, posinf=0.0))


def _make_batch(network: Transformer, requests: Sequence[DecodeRequest]) -> Batch:
    """Return a batch of some sources, with their own ids as targets, limited to the vocabulary; or prompts alone."""
    top, device = network.output.out_features - 1, network.output.weight.device
    if network.continues_text:
        return collate_windows(RaggedArray.from_lists([request.prefix for request in requests[: BATCH_SIZES[-1]]])).to(
            device
        )
    some = (request.source for request in requests[: BATCH_SIZES[-1]])
    return collate([Example(ids, [min(each, top) for each in ids]) for ids in some]).to(device)


def _decoder_input(network: Transformer, batch: Batch) -> Any:
    """Return the decoder's input: target ids, or a canvas without given tokens."""
    if not isinstance(network, ParallelTransformer):
        return batch.target_ids
    if network.config.kind != "masked":
        return network.empty_canvas(batch.source_ids, batch.source_mask)
    mask = batch.labels != PAD
    return Canvas(batch.labels, torch.zeros_like(mask), mask)


def _record_outputs(network: Transformer, batch: Batch, tap: Tap | None) -> dict[str, Tensor]:
    """Return the output of every sub-layer, by name."""
    given: dict[str, Tensor] = {}
    hooks = [
        module.register_forward_hook(lambda _, __, out, name=name: given.__setitem__(name, out))
        for name, module in network.named_modules()
        if name.endswith(("self_attention", "cross_attention", "feed_forward")) or name == "output"
    ]
    network(batch.source_ids, _decoder_input(network, batch), batch.source_mask, tap=tap)
    for hook in hooks:
        hook.remove()
    return given


def verify_exported(model: TextModel, texts: Sequence[str]) -> Iterator[PathComparison]:
    """Yield comparisons as they are made. Searches that the engine does not support are skipped."""
    texts = [text for text in texts if text.strip()]
    if not texts:
        raise UsageError("no_sentence_to_verify")
    for name, options in EXPORTED_SEARCHES.items():
        try:
            together = _generate(model, texts, options, len(texts))
        except UsageError:
            continue
        for size in (size for size in BATCH_SIZES if size < len(texts)):
            found = _generate(model, texts, options, size)
            pairs, path = (
                list(zip(found, together, strict=True)),
                LocalizedText("{name}, batches of {size}", name=model.backend.name, size=size),
            )
            yield compare_hypotheses(path, name, pairs, EXPORTED_TOLERANCE, model.target_tokenizer.decode)
    yield _compare_exported_scores(model, texts)


def _generate(
    model: TextModel, texts: Sequence[str], options: dict[str, Any], batch_size: int
) -> list[tuple[Hypothesis, ...]]:
    groups = [texts[first : first + batch_size] for first in range(0, len(texts), batch_size)]
    return [result.hypotheses for group in groups for result in model.generate(group, **options)]


def _compare_exported_scores(model: TextModel, texts: Sequence[str]) -> PathComparison:
    """Compare the reported log-probability of an output with forced decoding. A truncated output has no EOS term.

    Tokenising the output text may give other token pieces than generation. Such outputs are skipped.
    """
    tokenizer, answers = model.target_tokenizer, _generate(model, texts, EXPORTED_SEARCHES["greedy"], len(texts))
    comparable = [
        (text, answer)
        for text, (answer, *_) in zip(texts, answers, strict=True)
        if tokenizer.pieces(tokenizer.encode(answer.text)) == list(answer.pieces)
    ]
    read = model.score_tokens([text for text, _ in comparable], [answer.text for _, answer in comparable])
    largest = 0.0
    for one, (_, answer) in zip(read, comparable, strict=True):
        of_tokens = one.log_probabilities[: len(answer.pieces) + answer.has_end]
        largest = max(largest, absolute_difference(sum(of_tokens), answer.log_probability))
    return PathComparison(
        "the score of an answer", "greedy", len(comparable), largest=largest, allowed=EXPORTED_TOLERANCE
    )
