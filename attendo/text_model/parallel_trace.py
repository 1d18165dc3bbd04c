"""Trace of a network that predicts all tokens at once: passes of mask-predict, the graph, or the CTC alignment."""

from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, field
from itertools import groupby, pairwise
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attendo.decode.config import GenerationConfig
from attendo.decode.parallel import (
    BestRow,
    choose_ctc_row,
    choose_path,
    decodes_by_token,
    find_suppressed,
    predict_masked,
    propose_lengths,
    score_candidates,
    score_path,
    starts_run,
)
from attendo.errors import UsageError
from attendo.messages import Language
from attendo.model.config import ModelConfig
from attendo.model.decoder_state import Memory
from attendo.model.parallel import Canvas, ParallelTransformer, Prediction, count_tokens
from attendo.model.trace import trace_canvas
from attendo.nn.ctc import align_to_ctc, ctc_emissions
from attendo.nn.graph_paths import align_to_graph, visit_probabilities
from attendo.nn.token_scores import emission_scores
from attendo.text import BOS, EOS, PAD, Tokenizer
from attendo.text.tokenizer import end_source, strip_line_end
from attendo.text_model.generation import PreparedCall
from attendo.text_model.results import Hypothesis
from attendo.text_model.trace import TokenCandidate, Trace, TraceOrigin, move_to_cpu, round_values

if TYPE_CHECKING:
    from attendo.explore.saved_page import SavedPage

_KIND_OPTIONS = {
    "masked": ("passes", "length_candidates", "merge_repeats"),
    "graph": ("graph_search", "path_length_penalty", "merge_repeats"),
    "ctc": (),
}
MASK_PIECE = "<mask>"  # of a position that holds no token
MIN_LINK = 0.05  # probability of the links that a trace lists; those of the path are always listed


@dataclass(frozen=True)
class MaskedToken:
    """A token after one pass of mask-predict."""

    piece: str
    id: int
    probability: float  # in the pass that predicted it: its confidence
    predicted: bool  # True if this pass predicted it, False if it was given


@dataclass(frozen=True)
class LengthCandidate:
    """A target length that mask-predict tried."""

    length: int  # tokens
    probability: float  # by the length head
    mean_log_probability: float  # of the tokens after the last pass, and of the length
    text: str
    chosen: bool  # the highest mean log-probability


@dataclass(frozen=True)
class MaskPredictTrace:
    """The length candidates, and the passes of the chosen one. Pass 0 predicts all tokens."""

    lengths: tuple[LengthCandidate, ...]  # most probable first
    passes: tuple[tuple[MaskedToken, ...], ...]


@dataclass(frozen=True)
class GraphVertex:
    """A vertex. The first and the last one have no token: their piece is empty and their id is None."""

    position: int
    piece: str  # the token that a path through the vertex says
    id: int | None
    probability: float  # of the token
    pass_probability: float  # that a random path visits the vertex
    chosen: bool  # on the chosen path
    top: tuple[TokenCandidate, ...]  # most probable first


@dataclass(frozen=True)
class GraphLink:
    """A link between two vertices, by their positions."""

    start: int
    end: int
    probability: float  # of this hop, given the start
    chosen: bool


@dataclass(frozen=True)
class GraphTrace:
    """All vertices, and the links with a probability of at least `min_link` or on the chosen path."""

    vertices: tuple[GraphVertex, ...]
    links: tuple[GraphLink, ...]
    min_link: float = MIN_LINK


@dataclass(frozen=True)
class CtcPosition:
    """The token of one position. A blank has an empty piece."""

    position: int
    piece: str
    id: int
    probability: float
    blank: bool
    chosen: bool  # the first position of a run: its token is in the answer
    top: tuple[TokenCandidate, ...]  # most probable first; a blank has an empty piece


@dataclass(frozen=True)
class CtcTrace:
    """The positions from left to right."""

    positions: tuple[CtcPosition, ...]


@dataclass(frozen=True)
class ParallelTrace:
    """How a network that predicts all tokens at once reaches its answer to one text."""

    config: ModelConfig
    source_pieces: tuple[str, ...]  # eos included
    source_ids: tuple[int, ...]
    target_pieces: tuple[str, ...]  # of the answer, without eos
    target_ids: tuple[int, ...]
    text: str
    log_probability: float  # of the chosen alignment; the sum of the confidences if the kind is masked
    details: MaskPredictTrace | GraphTrace | CtcTrace
    given: bool = False  # True if the target was given
    cut: bool = False  # True if the answer ends at its maximum length
    unknown: tuple[str, ...] = ()  # parts of the source that are not in the vocabulary
    options: dict[str, Any] = field(default_factory=dict)  # decoding settings of the kind
    origin: "ParallelOrigin | None" = field(default=None, repr=False, compare=False)

    def __repr__(self) -> str:
        return f"<ParallelTrace of {self.text!r}: {self.kind}, {len(self.source_pieces)} source tokens>"

    @property
    def kind(self) -> str:
        return self.config.kind

    def show(self, language: Language = "en") -> "SavedPage":
        """Return the page of the whole network and of this trace, in one file. A notebook displays it, offline."""
        from attendo.explore.saved_page import SavedPage

        return SavedPage.of(self, language)

    def as_json(self) -> dict[str, Any]:
        """Return plain values: numbers rounded to 6 digits."""
        content: dict[str, Any] = {
            "config": self.config.model_dump(),
            "kind": self.kind,
            "text": self.text,
            "given": self.given,
            "cut": self.cut,
            "unknown": list(self.unknown),
            "source": {"pieces": list(self.source_pieces), "ids": list(self.source_ids)},
            "predicted": {"pieces": list(self.target_pieces), "ids": list(self.target_ids)},
            "log_probability": self.log_probability,
            "options": dict(self.options),
            **asdict(self.details),
        }
        found: dict[str, Any] = round_values(content)
        return found


@dataclass(frozen=True)
class ParallelOrigin:
    """What a trace was computed from."""

    network: ParallelTransformer
    text: str  # of the source
    tokenizer: Tokenizer  # of the target


def trace_call(
    network: ParallelTransformer, call: PreparedCall, answer: Hypothesis, target: str | None, count: int
) -> ParallelTrace:
    """Trace the answer to a call with one text, or a given target. `count` is the number of tokens per position."""
    requests, strategy, rules = call.prepare_search()
    (request,), (source_tokenizer, tokenizer), config = requests, call.tokenizers, call.config
    given = None if target is None else tuple(tokenizer.encode(strip_line_end(target)))
    if given is not None and network.config.kind == "masked":
        raise UsageError("masked_target_not_traceable")
    ids = answer.ids if given is None else given
    # A search by token sums over all paths. The trace shows the most probable one of its answer.
    aligned = ids if network.config.kind == "graph" and decodes_by_token(request, config, strategy, rules) else given
    tracer = ParallelTracer(network, tokenizer, config, find_suppressed(rules), count)
    log_probability, details = tracer.trace(request.source, aligned)
    options = {name: getattr(config, name) for name in _KIND_OPTIONS[network.config.kind]}
    if given is not None:
        options = {}  # nothing is searched
    elif aligned is not None and "merge_repeats" in options:
        options["merge_repeats"] = False  # it has no effect on a search token by token
    return ParallelTrace(
        config=network.config,
        source_pieces=tuple(source_tokenizer.pieces(end_source(request.source))),
        source_ids=tuple(end_source(request.source)),
        target_pieces=tuple(tokenizer.pieces(ids)),
        target_ids=tuple(ids),
        text=answer.text if given is None else tokenizer.decode(ids),
        log_probability=log_probability,
        details=details,
        given=given is not None,
        cut=given is None and answer.cut,
        unknown=tuple(source_tokenizer.unknown(strip_line_end(call.texts[0]))),
        options=options,
    )


def trace_last_pass(trace: ParallelTrace, layer: int | None = None, inputs_of: Collection[str] = ()) -> Trace:
    """Return every tensor of the last pass by name. Its rows are the positions of the canvas.

    A position that holds no token reads `MASK_PIECE`. The blanks of ctc have an empty piece.
    """
    assert trace.origin is not None
    network, tokenizer = trace.origin.network, trace.origin.tokenizer
    source = torch.tensor(trace.source_ids, device=network.device)
    ids, given, canvas = _last_canvas(network, trace, source)
    entries = trace_canvas(network, source, canvas, layer, inputs_of)
    # The first and the last vertex of a graph say nothing: what their logits prefer is shown.
    best = entries["output.logits"].value.argmax(-1).tolist()
    predicted = [best[n] if token is None else token for n, token in enumerate(ids)]
    pieces = tokenizer.pieces(predicted)
    return Trace(
        config=network.config,
        source_pieces=trace.source_pieces,
        read_pieces=tuple(piece if known else MASK_PIECE for piece, known in zip(pieces, given, strict=True)),
        target_pieces=tuple("" if token == PAD else piece for token, piece in zip(predicted, pieces, strict=True)),
        source_ids=trace.source_ids,
        target_ids=tuple(predicted),
        entries={name: move_to_cpu(each) for name, each in entries.items()},
        tokenizer=tokenizer,
        text=trace.text,
        given=trace.given,
        unknown=trace.unknown,
        origin=TraceOrigin(network),
    )


def _last_canvas(
    network: ParallelTransformer, trace: ParallelTrace, source: Int[Tensor, " S"]
) -> tuple[list[int | None], list[bool], Canvas]:
    """Return the predicted tokens of the last pass, whether it was given them, and its canvas."""
    match trace.details:
        case MaskPredictTrace(passes=passes):
            ids: list[int | None] = [each.id for each in passes[-1]]
            given = [not each.predicted for each in passes[-1]]
            canvas = Canvas(
                torch.tensor([ids], device=source.device),
                torch.tensor([given], device=source.device),
                torch.ones(1, len(ids), dtype=torch.bool, device=source.device),
            )
            return ids, given, canvas
        case GraphTrace(vertices=vertices):
            ids = [each.id for each in vertices]
        case CtcTrace(positions=positions):
            ids = [each.id for each in positions]
    return ids, [False] * len(ids), network.empty_canvas(source[None], None)


@dataclass(frozen=True)
class ParallelTracer:
    """Computes the details of a trace with the functions that decode."""

    network: ParallelTransformer
    tokenizer: Tokenizer  # of the target
    config: GenerationConfig
    suppressed: tuple[int, ...]  # tokens that are never chosen
    count: int  # most probable tokens per position

    @torch.no_grad()
    def trace(
        self, source: Sequence[int], target: Sequence[int] | None
    ) -> tuple[float, MaskPredictTrace | GraphTrace | CtcTrace]:
        """Return the log-probability of the alignment, and the details.

        `source` has no eos. A `target` is aligned with the positions instead of being chosen.
        """
        ids = torch.tensor([end_source(source)], device=self.network.device)
        memory = self.network.encode(ids, None)
        if self.network.config.kind == "masked":
            return self._trace_passes(memory, ids)
        canvas = self.network.empty_canvas(ids, None)
        prediction = self.network.predict(memory, canvas)
        if self.network.config.kind == "ctc":
            return self._trace_ctc(prediction, canvas.mask, target)
        return self._trace_graph(prediction, canvas.lengths, target)

    def _trace_passes(self, memory: Memory, source_ids: Int[Tensor, "1 S"]) -> tuple[float, MaskPredictTrace]:
        config, lengths = self.config, count_tokens(source_ids, None)
        tried = config.length_candidates
        sizes, scores = propose_lengths(self.network, memory, lengths, tried)
        done = predict_masked(self.network, memory, sizes, int(sizes.max()), config.passes, self.suppressed)
        totals, means = score_candidates(done[-1], scores)
        best = int(means.argmax())
        candidates = [
            LengthCandidate(size, probability, mean, self._decode(row[:size]), number == best)
            for number, (size, probability, mean, row) in enumerate(
                zip(sizes[0].tolist(), scores[0].exp().tolist(), means.tolist(), done[-1].ids.tolist(), strict=True)
            )
        ]
        passes = [self._list_tokens(each.ids[best], each.log_probs[best], each.hidden[best]) for each in done]
        length = candidates[best].length
        return float(totals[best]), MaskPredictTrace(tuple(candidates), tuple(each[:length] for each in passes))

    def _decode(self, ids: list[int]) -> str:
        return self.tokenizer.decode([token for token, _ in groupby(ids)] if self.config.merge_repeats else ids)

    def _list_tokens(
        self, ids: Int[Tensor, " T"], log_probs: Float[Tensor, " T"], predicted: Bool[Tensor, " T"]
    ) -> tuple[MaskedToken, ...]:
        found = zip(self._pieces(ids.tolist()), ids.tolist(), log_probs.exp().tolist(), predicted.tolist(), strict=True)
        return tuple(MaskedToken(*each) for each in found)

    def _trace_graph(
        self, prediction: Prediction, num_vertices: Int[Tensor, " 1"], target: Sequence[int] | None
    ) -> tuple[float, GraphTrace]:
        links = prediction.links
        assert links is not None
        if target is None:
            search = (self.network.upsample, self.config.graph_search, self.config.path_length_penalty)
            path = choose_path(prediction, num_vertices, *search, self.suppressed)
        else:
            path = self._align_to_graph(prediction, num_vertices, target)
        silent = (PAD, BOS, EOS)
        last = int(num_vertices) - 1
        visits, top = visit_probabilities(links.double())[0].tolist(), self._top_tokens(prediction.logits[0], silent)
        pieces, ids = self._pieces(path.ids[0].tolist()), path.ids[0].tolist()
        probabilities, chosen = path.log_probs[0].exp().tolist(), path.chosen[0].tolist()
        vertices = [
            GraphVertex(n, pieces[n], ids[n], probabilities[n], visits[n], chosen[n], top[n])
            if 0 < n < last
            else GraphVertex(n, "", None, 1.0, visits[n], True, ())
            for n in range(last + 1)
        ]
        return float(score_path(links, path, num_vertices)), GraphTrace(
            tuple(vertices), _list_links(links[0], vertices)
        )

    def _align_to_graph(
        self, prediction: Prediction, num_vertices: Int[Tensor, " 1"], target: Sequence[int]
    ) -> BestRow:
        """Return the most probable path that says the target."""
        links, device = prediction.links, prediction.logits.device
        assert links is not None
        if len(target) > int(num_vertices) - 2:
            raise UsageError("target_exceeds_canvas", tokens=len(target), limit=int(num_vertices) - 2)
        ids = torch.tensor([list(target)], dtype=torch.long, device=device)
        emissions = emission_scores(prediction.logits, ids, (PAD, BOS, EOS))
        shape = (torch.tensor([len(target)], device=device), num_vertices)
        path = align_to_graph(emissions.mT, links, *shape)[0]
        row = choose_path(prediction, num_vertices, self.network.upsample, "greedy")
        chosen = torch.zeros_like(row.chosen)
        chosen[0, path] = True
        row.ids[0, path] = ids[0]
        row.log_probs[0, path] = emissions[0, path, torch.arange(len(target), device=device)]
        return BestRow(row.ids, row.log_probs, chosen)

    def _trace_ctc(
        self, prediction: Prediction, inside: Bool[Tensor, "1 L"], target: Sequence[int] | None
    ) -> tuple[float, CtcTrace]:
        if target is None:
            row = choose_ctc_row(prediction.logits, inside, self.suppressed)
        else:
            row = self._align_to_ctc(prediction.logits, target)
        top, ids, chosen = self._top_tokens(prediction.logits[0], (BOS, EOS)), row.ids[0].tolist(), row.chosen[0]
        pieces, probabilities = self._pieces(ids), row.log_probs[0].exp().tolist()
        positions = [
            CtcPosition(n, pieces[n], ids[n], probabilities[n], ids[n] == PAD, bool(chosen[n]), top[n])
            for n in range(len(ids))
        ]
        return float(row.log_probs.sum()), CtcTrace(tuple(positions))

    def _align_to_ctc(self, logits: Float[Tensor, "1 L V"], target: Sequence[int]) -> BestRow:
        """Return the most probable row that becomes the target when runs are merged."""
        repeated = sum(one == other for one, other in pairwise(target))  # a blank must separate equal tokens
        if len(target) + repeated > logits.size(1):
            raise UsageError("target_exceeds_canvas", tokens=len(target), limit=logits.size(1))
        ids = torch.tensor([list(target)], dtype=torch.long, device=logits.device)
        blanks, emissions = ctc_emissions(logits, ids, PAD, (BOS, EOS))
        sizes = (torch.tensor([logits.size(1)], device=ids.device), torch.tensor([len(target)], device=ids.device))
        aligned = align_to_ctc(blanks, emissions, ids, *sizes)
        scores = torch.cat((blanks[..., None], emissions), -1).gather(2, aligned[..., None])[..., 0]
        row = torch.cat((ids.new_full((1, 1), PAD), ids), 1).gather(1, aligned)
        return BestRow(row, scores, starts_run(row))

    def _top_tokens(
        self, logits: Float[Tensor, "L V"], impossible: tuple[int, ...]
    ) -> list[tuple[TokenCandidate, ...]]:
        """Return the most probable tokens of each position."""
        scores = logits.float().clone()
        scores[:, list(impossible)] = float("-inf")
        best = scores.softmax(-1).topk(min(self.count, scores.size(-1) - len(impossible)), -1)
        return [
            tuple(TokenCandidate(*each) for each in zip(self._pieces(ids), ids, probabilities, strict=True))
            for ids, probabilities in zip(best.indices.tolist(), best.values.tolist(), strict=True)
        ]

    def _pieces(self, ids: list[int]) -> list[str]:
        """Return the pieces. PAD is the blank, or no token, and has an empty piece."""
        return [piece if token != PAD else "" for piece, token in zip(self.tokenizer.pieces(ids), ids, strict=True)]


def _list_links(links: Float[Tensor, "L L"], vertices: Sequence[GraphVertex]) -> tuple[GraphLink, ...]:
    path = [each.position for each in vertices if each.chosen]
    hops = set(pairwise(path))
    probabilities = links.double().exp()
    listed = {*hops, *map(tuple, (probabilities >= MIN_LINK).nonzero().tolist())}
    return tuple(
        GraphLink(start, end, float(probabilities[start, end]), (start, end) in hops) for start, end in sorted(listed)
    )
