"""The engine of networks that predict all target tokens at once.

    ctc       the best token of every position; runs are merged and blanks dropped
    graph     the tokens of one path through the graph: greedy, lookahead or joint Viterbi
    masked    mask-predict: all tokens, then the least confident ones again, several times

A graph also decodes token by token, as an autoregressive network does (`decode/graph_network.py`). Requests use that if
they need it: with a beam, samples, a prefix, a minimum length, or a rule that depends on earlier tokens.

The log-probability of an answer is that of its alignment: the best one, a lower bound of log P(target | source). For a
masked network it is the sum of the confidences, which is no likelihood.
"""

from collections import deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from operator import attrgetter
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attendo.decode.config import GenerationConfig
from attendo.decode.engines import BUCKET_WIDTHS, CachedEngine, Engine, FastEngine
from attendo.decode.frontier import Frontier
from attendo.decode.graph_network import GraphNetwork
from attendo.decode.networks import force_explicit_attention
from attendo.decode.options import MAX_TOKENS
from attendo.decode.requests import (
    DecodeRequest,
    FinishedBatch,
    RunningBatch,
    length_batches,
    limit_tensors,
    pad_sources,
)
from attendo.decode.rules import ForcedPrefix, ForceEosAtLimit, MinLength, SuppressTokens, UnscoredPrefix
from attendo.decode.search import Rule, Strategy, run_step_hook
from attendo.decode.static_batch import CudaGraphRunner, round_up
from attendo.decode.strategies import Greedy
from attendo.model.decoder_state import Memory
from attendo.model.parallel import LENGTH_CLASSES, Canvas, ParallelTransformer, Prediction, count_tokens
from attendo.nn.attention import Tap
from attendo.nn.graph_paths import decode_joint_viterbi, follow_path
from attendo.text import BOS, EOS, PAD

_MAX_STATIC_NUMBERS = 1 << 29  # of the graphs of a batch that is decoded token by token: 2 GB in float32
_MAX_GRAPHS = 16  # CUDA graphs that an engine keeps, one per batch shape
_INDEPENDENT_RULES = (SuppressTokens, ForceEosAtLimit)  # do not depend on earlier tokens
_REQUEST_RULES = (ForcedPrefix, UnscoredPrefix, MinLength)  # without effect on requests that have no prefix or minimum


def searches_by_token(config: GenerationConfig, strategy: Strategy, rules: Sequence[Rule]) -> bool:
    """Whether a graph needs the probabilities of each next token for this search."""
    depends = not all(isinstance(rule, _INDEPENDENT_RULES) for rule in rules)
    return depends or not isinstance(strategy, Greedy) or config.graph_search == "tokens"


def decodes_by_token(
    request: DecodeRequest, config: GenerationConfig, strategy: Strategy, rules: Sequence[Rule]
) -> bool:
    """Whether a graph decodes this request token by token. Other requests of the same call have no influence."""
    others = [rule for rule in rules if not isinstance(rule, _REQUEST_RULES)]
    return bool(request.prefix) or request.min_length > 0 or searches_by_token(config, strategy, others)


def find_suppressed(rules: Sequence[Rule]) -> tuple[int, ...]:
    """Return the tokens that the rules never choose."""
    return tuple(token for rule in rules if isinstance(rule, SuppressTokens) for token in rule.ids)


class ParallelAnswers(NamedTuple):
    """The answers of a batch. The tokens are followed by PAD."""

    ids: Int[Tensor, "B L"]
    lengths: Int[Tensor, " B"]
    log_probability: Float[Tensor, " B"]

    def pack(self) -> Int[Tensor, "B N"]:
        """Pack all tensors into one, because each transfer to the host synchronises the device."""
        return torch.cat((self.ids, self.lengths[:, None], self.log_probability.double().view(torch.long)[:, None]), 1)

    @staticmethod
    def unpack(packed: Int[Tensor, "B N"]) -> "ParallelAnswers":
        return ParallelAnswers(packed[:, :-2], packed[:, -2], packed[:, -1].contiguous().view(torch.double).float())


def merge_repeats(answers: ParallelAnswers) -> ParallelAnswers:
    """Leave out the tokens that equal the token before. The log-probability stays that of the alignment."""
    return _collect(answers.ids, starts_run(answers.ids), answers.log_probability)


Runner = Callable[[Tensor], Tensor]  # packed answers to a batch of one shape: source ids and lengths


class ParallelEngine:
    """Decodes requests for a network of kind masked, ctc or graph.

    `captured` uses batches of fixed shape, which are CUDA graphs on a GPU. `explicit` computes attention by its
    formula instead of fused kernels. `padding` adds source columns, which must not change the answers.
    """

    def __init__(
        self,
        network: ParallelTransformer,
        config: GenerationConfig,
        batch_tokens: int,
        captured: bool = False,
        explicit: bool = False,
        padding: int = 0,
    ) -> None:
        self._network, self._config, self._padding = network, config, padding
        self._tap: Tap | None = force_explicit_attention if explicit else None
        self._captured = captured
        self._batch_tokens = max(1, batch_tokens // (network.upsample or config.length_candidates))
        self._runners: dict[Hashable, Runner] = {}
        self._token_engine = self._make_token_engine() if network.config.kind == "graph" else None

    def _make_token_engine(self) -> Engine:
        graph = GraphNetwork(self._network, self._tap)
        if not self._captured:
            return CachedEngine(graph, self._batch_tokens, self._padding)
        # A batch of fixed shape keeps two numbers for each token of the vocabulary at each vertex.
        vertices = _MAX_STATIC_NUMBERS // (2 * self._network.output.out_features)
        return FastEngine(graph, max(1, min(self._batch_tokens, vertices // self._network.upsample)))

    def generate(
        self, requests: Sequence[DecodeRequest], strategy: Strategy, rules: Sequence[Rule]
    ) -> Iterator[FinishedBatch]:
        by_token, at_once = list[DecodeRequest](), list[DecodeRequest]()
        for each in requests:
            (by_token if decodes_by_token(each, self._config, strategy, rules) else at_once).append(each)
        if by_token:
            assert self._token_engine is not None  # other networks reject these options before
            yield from self._token_engine.generate(by_token, strategy, rules)
        forces_eos = any(isinstance(rule, ForceEosAtLimit) for rule in rules)
        silent = find_suppressed(rules)
        for group in length_batches(at_once, attrgetter("num_positions"), self._batch_tokens):
            run_step_hook()
            answers = self._decode(group, silent)
            yield FinishedBatch(group, _make_frontier(group, answers, strategy.free_end, forces_eos))

    @torch.no_grad()
    def _decode(self, group: Sequence[DecodeRequest], silent: tuple[int, ...]) -> ParallelAnswers:
        longest = max(each.source_length for each in group)
        if not self._captured:
            ids, mask = pad_sources(group, self._network.device, longest + self._padding)
            is_padded = self._padding > 0 or any(each.source_length < longest for each in group)
            answers = self._predict(ids, mask if is_padded else None, silent)
            return ParallelAnswers.unpack(answers.pack().cpu())
        rows, width = 1 << (len(group) - 1).bit_length(), self._round_width(longest)
        ids, mask = pad_sources(group, torch.device("cpu"), width)
        sheet = torch.cat((ids, mask.sum(-1, keepdim=True)), 1)
        sheet = torch.cat((sheet, sheet[-1:].expand(rows - len(group), -1)))  # unused rows repeat the last sentence
        with self._borrow_runner(rows, width, silent) as run:
            return ParallelAnswers.unpack(run(sheet).cpu()[: len(group)].clone())

    def _round_width(self, width: int) -> int:
        """Round up to a width that other batches share, within the learned positions."""
        return min(round_up(width, BUCKET_WIDTHS), self._network.max_positions or MAX_TOKENS)

    @contextmanager
    def _borrow_runner(self, rows: int, width: int, silent: tuple[int, ...]) -> Iterator[Runner]:
        """Lend the runner of a batch shape to one caller at a time. Those of the last calls are kept."""
        key = (rows, width, silent)
        runner = self._runners.pop(key, None) or self._make_runner(rows, width, silent)
        try:
            yield runner
        finally:
            self._runners[key] = runner
            if len(self._runners) > _MAX_GRAPHS:
                del self._runners[next(iter(self._runners))]

    def _make_runner(self, rows: int, width: int, silent: tuple[int, ...]) -> Runner:
        if self._network.config.kind == "masked":
            return _MaskedRunner(self._network, self._config, (rows, width), silent, self._round_width)
        device, columns = self._network.device, self._network.canvas_size(width) + 2
        here = torch.zeros((rows, width + 1), dtype=torch.long, device=device)
        answers = torch.zeros((rows, columns), dtype=torch.long, device=device)

        def work() -> None:
            mask = torch.arange(width, device=device) < here[:, -1:]
            answers.copy_(self._predict(here[:, :-1], mask, silent).pack())

        capture = CudaGraphRunner(work, device)

        def run(sheet: Tensor) -> Tensor:
            here.copy_(sheet)
            capture()
            return answers

        return run

    def _predict(
        self, source_ids: Int[Tensor, "B S"], source_mask: Bool[Tensor, "B S"] | None, silent: tuple[int, ...]
    ) -> ParallelAnswers:
        answers = self._choose(source_ids, source_mask, silent)
        return merge_repeats(answers) if self._config.merge_repeats else answers

    def _choose(
        self, source_ids: Int[Tensor, "B S"], source_mask: Bool[Tensor, "B S"] | None, silent: tuple[int, ...]
    ) -> ParallelAnswers:
        network, config = self._network, self._config
        memory = network.encode(source_ids, source_mask, self._tap)
        if network.config.kind == "masked":
            source_lengths = count_tokens(source_ids, source_mask)
            sizes, scores = propose_lengths(network, memory, source_lengths, config.length_candidates)
            passes = predict_masked(network, memory, sizes, int(sizes.max()), config.passes, silent, self._tap)
            return select_length(passes[-1], scores)
        canvas = network.empty_canvas(source_ids, source_mask)
        if network.config.kind == "ctc":
            return decode_ctc(network, memory, canvas, silent, self._tap)
        return decode_graph(network, memory, canvas, config.graph_search, config.path_length_penalty, silent, self._tap)


class _MaskedRunner:
    """Mask-predict of one batch shape: a CUDA graph of the encoder, and one of all passes for each target width.

    Between the two it waits for the device, because the width depends on the predicted lengths.
    """

    def __init__(
        self,
        network: ParallelTransformer,
        config: GenerationConfig,
        shape: tuple[int, int],
        silent: tuple[int, ...],
        round_width: Callable[[int], int],
    ) -> None:
        self._network, self._config, self._silent, self._round_width = network, config, silent, round_width
        (rows, self._width), device = shape, network.device
        self._sheet = torch.zeros((rows, self._width + 1), dtype=torch.long, device=device)
        self._sizes = torch.zeros((rows, config.length_candidates), dtype=torch.long, device=device)
        self._length_scores = torch.zeros(self._sizes.shape, device=device)
        self._states: Tensor | None = None  # of the encoder, in the precision of the network
        self._encode = CudaGraphRunner(self._run_encoder, device)
        self._passes: dict[int, tuple[Tensor, CudaGraphRunner]] = {}  # answers and passes by target width

    def __call__(self, sheet: Tensor) -> Tensor:
        self._sheet.copy_(sheet)
        self._encode()
        width = self._round_width(int(self._sizes.max()))
        if width not in self._passes:
            self._passes[width] = self._make_passes(width)
        answers, run = self._passes[width]
        run()
        return answers

    def _run_encoder(self) -> None:
        memory = self._network.encode(self._sheet[:, :-1], self._source_mask())
        if self._states is None:
            self._states = torch.empty_like(memory.states)
        self._states.copy_(memory.states)
        source_lengths = self._sheet[:, -1]
        sizes, scores = propose_lengths(self._network, memory, source_lengths, self._sizes.size(1))
        self._sizes.copy_(sizes)
        self._length_scores.copy_(scores)

    def _make_passes(self, width: int) -> tuple[Tensor, CudaGraphRunner]:
        answers = torch.zeros((len(self._sheet), width + 2), dtype=torch.long, device=self._sheet.device)

        def work() -> None:
            assert self._states is not None  # the encoder has run
            memory = Memory(self._states, self._source_mask())
            passes = predict_masked(self._network, memory, self._sizes, width, self._config.passes, self._silent)
            found = select_length(passes[-1], self._length_scores)
            answers.copy_((merge_repeats(found) if self._config.merge_repeats else found).pack())

        return answers, CudaGraphRunner(work, self._sheet.device)

    def _source_mask(self) -> Bool[Tensor, "B S"]:
        return torch.arange(self._width, device=self._sheet.device) < self._sheet[:, -1:]


class ParallelBatch(RunningBatch):
    """Requests of a server that are decoded together, in one step. The slots are free again after every step."""

    def __init__(self, engine: Engine, strategy: Strategy, rules: Sequence[Rule], max_sentences: int) -> None:
        self._engine, self._strategy, self._rules = engine, strategy, rules
        self._requests, self._frontier = [None] * max_sentences, None

    def step(self, waiting: "deque[DecodeRequest]") -> Iterator[FinishedBatch]:
        """Decode as many waiting requests as fit."""
        group = [waiting.popleft() for _ in range(min(len(waiting), len(self._requests)))]
        return self._engine.generate(group, self._strategy, self._rules)


def decode_graph(
    network: ParallelTransformer,
    memory: Memory,
    canvas: Canvas,
    search: str = "lookahead",
    length_penalty: float = 1.0,
    silent: tuple[int, ...] = (),
    tap: Tap | None = None,
) -> ParallelAnswers:
    """Decode the tokens of one path: greedy, lookahead or viterbi (joint Viterbi)."""
    prediction = network.predict(memory, canvas, tap)
    path = choose_path(prediction, canvas.lengths, network.upsample, search, length_penalty, silent)
    assert prediction.links is not None
    return _collect(path.ids, path.chosen, score_path(prediction.links, path, canvas.lengths))


class BestRow(NamedTuple):
    """A token for each position with its log-probability, and the positions whose tokens are the answer."""

    ids: Int[Tensor, "B L"]
    log_probs: Float[Tensor, "B L"]
    chosen: Bool[Tensor, "B L"]


def choose_path(
    prediction: Prediction,
    num_vertices: Int[Tensor, " B"],
    upsample: int,
    search: str,
    length_penalty: float = 1.0,
    silent: tuple[int, ...] = (),
) -> BestRow:
    """Choose the vertices of one path, without the first and the last vertex, which have no token."""
    links = prediction.links
    assert links is not None
    log_probs, ids = _best_tokens(prediction.logits, (PAD, BOS, EOS), silent)
    size, last = links.size(1), (num_vertices - 1)[:, None]
    vertex = torch.arange(size, device=links.device)
    inner = (vertex > 0) & (vertex < last)
    if search == "viterbi":
        # The limit of each sentence depends on its own length, not on the longest of the batch.
        most, steps = (2 * num_vertices // upsample).clamp(min=1), max(1, 2 * size // upsample)
        chosen = decode_joint_viterbi(log_probs, links, num_vertices, most, steps, length_penalty)
    else:
        scores = links if search == "greedy" else links + log_probs.masked_fill(~inner, 0)[:, None]
        chosen = follow_path(torch.where(vertex < last, scores.argmax(-1), vertex)) & inner
    return BestRow(ids, log_probs, chosen)


def score_path(links: Float[Tensor, "B L L"], path: BestRow, num_vertices: Int[Tensor, " B"]) -> Float[Tensor, " B"]:
    """Return the log-probability of the hops between the chosen vertices, and of their tokens."""
    chosen, last = path.chosen, (num_vertices - 1)[:, None]
    vertex = torch.arange(chosen.size(1), device=chosen.device)
    on_path = chosen | (vertex == 0) | (vertex == last)
    # The next vertex on the path: the smallest one to the right.
    after = torch.where(on_path, vertex, chosen.size(1) - 1).flip(1).cummin(1).values.flip(1)
    successor = torch.cat((after[:, 1:], after[:, -1:]), 1)
    hops = links.gather(2, successor[..., None])[..., 0]
    leaving = on_path & (vertex < last)
    return torch.where(leaving, hops, 0).sum(-1) + torch.where(chosen, path.log_probs, 0).sum(-1)


def decode_ctc(
    network: ParallelTransformer,
    memory: Memory,
    canvas: Canvas,
    silent: tuple[int, ...] = (),
    tap: Tap | None = None,
) -> ParallelAnswers:
    """Take the best token of every position, merge runs and drop blanks. The blank is PAD."""
    row = choose_ctc_row(network.predict(memory, canvas, tap).logits, canvas.mask, silent)
    return _collect(row.ids, row.chosen, torch.where(canvas.mask, row.log_probs, 0).sum(-1))


def choose_ctc_row(
    logits: Float[Tensor, "B L V"], inside: Bool[Tensor, "B L"], silent: tuple[int, ...] = ()
) -> BestRow:
    """Choose the best token of every position. The first position of each run is the answer, blanks (PAD) are not."""
    banned = tuple(token for token in silent if token != PAD)
    log_probs, ids = _best_tokens(logits, (BOS, EOS), banned)
    return BestRow(ids, log_probs, starts_run(ids) & inside)


def starts_run(ids: Int[Tensor, "B L"]) -> Bool[Tensor, "B L"]:
    """Mark the positions with another token than the position before, but not the blanks (PAD)."""
    starts = torch.ones_like(ids, dtype=torch.bool)
    starts[:, 1:] = ids[:, 1:] != ids[:, :-1]
    return starts & (ids != PAD)


class MaskedPass(NamedTuple):
    """The rows after one pass of mask-predict, `length_candidates` adjacent rows per sentence."""

    ids: Int[Tensor, "R T"]
    log_probs: Float[Tensor, "R T"]  # of each token, in the pass that predicted it
    hidden: Bool[Tensor, "R T"]  # the tokens that this pass predicted
    inside: Bool[Tensor, "R T"]  # False at padding


def predict_masked(
    network: ParallelTransformer,
    memory: Memory,
    lengths: Int[Tensor, "B C"],
    width: int,
    passes: int = 10,
    silent: tuple[int, ...] = (),
    tap: Tap | None = None,
) -> list[MaskedPass]:
    """Return the passes of mask-predict (Ghazvininejad et al., 2019), for all target lengths of each sentence.

    Pass 0 predicts all tokens. Pass t predicts the least confident ones again, a share of (passes - t) / passes. No
    length is above `width`, which is given because nothing here may wait for the device.
    """
    sizes, candidates = lengths.flatten(), lengths.size(1)
    states = memory.states.repeat_interleave(candidates, 0)
    mask = None if memory.mask is None else memory.mask.repeat_interleave(candidates, 0)
    inside = torch.arange(width, device=sizes.device) < sizes[:, None]
    ids = torch.zeros_like(inside, dtype=torch.long)
    log_probs = torch.zeros(inside.shape, device=inside.device)
    done: list[MaskedPass] = []
    for number in range(passes):
        count = sizes if number == 0 else (sizes * (passes - number) // passes).clamp(min=1)
        ranks = log_probs.masked_fill(~inside, 1).argsort(dim=-1, stable=True).argsort(-1)
        hidden = (ranks < count[:, None]) & inside
        canvas = Canvas(ids, inside & ~hidden, inside)
        found_log_probs, found = _best_tokens(
            network.predict(Memory(states, mask), canvas, tap).logits, (PAD, BOS, EOS), silent
        )
        ids, log_probs = torch.where(hidden, found, ids), torch.where(hidden, found_log_probs, log_probs)
        done.append(MaskedPass(ids, log_probs, hidden, inside))
    return done


def propose_lengths(
    network: ParallelTransformer, memory: Memory, source_lengths: Int[Tensor, " B"], count: int
) -> tuple[Int[Tensor, "B C"], Float[Tensor, "B C"]]:
    """Return the most probable target lengths and their log-probabilities by the length head.

    A length below 1 or above the learned positions comes last, and is clamped.
    """
    scores = network.predict_lengths(memory).float().log_softmax(-1)
    lengths = source_lengths[:, None] + torch.arange(LENGTH_CLASSES, device=scores.device) - LENGTH_CLASSES // 2
    possible = lengths.clamp(min=1, max=network.max_positions)
    best = scores.masked_fill(possible != lengths, float("-inf")).topk(count, -1)
    return possible.gather(1, best.indices), scores.gather(1, best.indices)


def select_length(last: MaskedPass, length_scores: Float[Tensor, "B C"]) -> ParallelAnswers:
    """Select the best row of each sentence. `length_scores` are the log-probabilities of the lengths."""
    total, mean = score_candidates(last, length_scores)
    candidates = length_scores.size(1)
    best = mean.view(-1, candidates).argmax(-1) + torch.arange(len(length_scores), device=mean.device) * candidates
    return _collect(last.ids[best], last.inside[best], total[best])


def score_candidates(
    last: MaskedPass, length_scores: Float[Tensor, "B C"]
) -> tuple[Float[Tensor, " R"], Float[Tensor, " R"]]:
    """Return the sum of the tokens' log-probabilities in each row, and the mean over the tokens and the length.

    The length counts as EOS does in an autoregressive model. Without it, lengths that leave out words are preferred.
    """
    total = torch.where(last.inside, last.log_probs, 0).sum(-1)
    return total, (total + length_scores.flatten()) / (last.inside.sum(-1) + 1)


def _best_tokens(
    logits: Float[Tensor, "B L V"], impossible: tuple[int, ...], banned: tuple[int, ...]
) -> tuple[Float[Tensor, "B L"], Int[Tensor, "B L"]]:
    """Return the best token of each position and its log-probability by the model.

    Tokens in `impossible` have probability 0. Those in `banned` are not chosen, and do not change the others.
    """
    scores = logits.float() if logits.dtype != torch.float32 else logits.clone()
    _exclude(scores, impossible)
    total = scores.logsumexp(-1)
    best, ids = _exclude(scores, banned).max(-1)
    return best - total, ids


def _exclude(scores: Float[Tensor, "B L V"], tokens: tuple[int, ...]) -> Float[Tensor, "B L V"]:
    for token in tokens:  # one by one: indexing with a list copies it to the device
        scores[..., token].fill_(float("-inf"))
    return scores


def _collect(
    ids: Int[Tensor, "B L"], chosen: Bool[Tensor, "B L"], log_probability: Float[Tensor, " B"]
) -> ParallelAnswers:
    """Move the chosen tokens to the left."""
    order = (~chosen).byte().argsort(dim=-1, stable=True)
    lengths = chosen.sum(-1)
    position = torch.arange(ids.size(1), device=ids.device)
    return ParallelAnswers(
        ids.gather(1, order).masked_fill(position >= lengths[:, None], PAD), lengths, log_probability
    )


def _make_frontier(
    group: Sequence[DecodeRequest], answers: ParallelAnswers, free_end: bool, forces_eos: bool
) -> Frontier:
    """Return the answers as finished rows.

    One with more tokens than its limit is cut. With a free end its last token may be any, so it has one more. It ends
    with EOS all the same if EOS is forced.
    """
    empty = Frontier.start(limit_tensors(group, torch.device("cpu")))
    too_long = answers.lengths > empty.limits.max_length
    lengths = torch.minimum(answers.lengths, empty.limits.max_length + free_end)
    has_eos = ~too_long | forces_eos
    position = torch.arange(empty.ids.size(1))
    ids = empty.ids.clone()
    width = min(answers.ids.size(1), ids.size(1) - 1)
    ids[:, 1 : width + 1] = answers.ids[:, :width]
    ids = ids.masked_fill(position > lengths[:, None], PAD)
    ends = (position == lengths[:, None] + 1) & has_eos[:, None]
    return replace(
        empty,
        ids=ids.masked_fill(ends, EOS),
        length=lengths + has_eos,
        log_probability=answers.log_probability,
        open=torch.zeros_like(too_long),
        ended=has_eos | free_end,
        cut=~has_eos,
    )
