"""The graph of a DA-Transformer as a network for the search: exact next-token probabilities, without more passes.

A path through the graph emits one token per vertex. Let a[v] be the probability that the last token of the prefix was
emitted at vertex v, given the prefix. BOS is emitted at vertex 0. Then the next token is emitted at w with probability
r[w] = sum over v of a[v] links[v, w], and it is the token y with probability sum over w of r[w] P[w, y]. The last
vertex emits EOS. After y, a[w] is r[w] P[w, y], normalised. So beams, samples, rules, prefixes and scores work as
with any other network.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attendo.model.parallel import Canvas, ParallelTransformer
from attendo.nn.attention import Tap
from attendo.text import BOS, EOS, PAD


@dataclass(frozen=True)
class GraphMemory:
    """The graph of each sentence, from one pass."""

    links: Float[Tensor, "B L L"]  # probabilities
    log_emissions: Float[Tensor, "B L V"]
    emissions: Float[Tensor, "B L V"]  # the same as probabilities
    last: Int[Tensor, " B"]  # the vertex that emits EOS

    def select(self, sentences: Int[Tensor, " N"]) -> "GraphMemory":
        return GraphMemory(
            self.links.index_select(0, sentences),
            self.log_emissions.index_select(0, sentences),
            self.emissions.index_select(0, sentences),
            self.last.index_select(0, sentences),
        )


@dataclass(frozen=True)
class GraphState:
    """The probability of each vertex to emit the next token of each row; None before the first step."""

    memory: GraphMemory
    reached: Float[Tensor, "R L"] | None = None

    def reorder(self, parents: Int[Tensor, " R"]) -> "GraphState":
        assert self.reached is not None  # rows are reordered only after the first token
        return GraphState(self.memory, self.reached.index_select(0, parents))

    def select(self, sentences: Int[Tensor, " N"], rows: Int[Tensor, " R"]) -> "GraphState":
        reached = None if self.reached is None else self.reached.index_select(0, rows)
        return GraphState(self.memory.select(sentences), reached)

    def insert(self, sentences: Int[Tensor, " N"], rows: Int[Tensor, " M"], start: "GraphState") -> None:
        """Put the graphs of new sentences into these slots of a state of fixed size."""
        for name, here in vars(self.memory).items():
            here.index_copy_(0, sentences, getattr(start.memory, name))
        assert self.reached is not None  # a state of fixed size has rows
        self.reached.index_copy_(0, rows, _first_vertex(start.memory, len(rows)))

    def write(self, after: "GraphState", rows: Bool[Tensor, " R"]) -> None:
        """Copy the state after a step into this one in place. Only `rows` advance."""
        assert self.reached is not None
        assert after.reached is not None
        self.reached.copy_(torch.where(rows[:, None], after.reached, self.reached))


class GraphNetwork:
    """A graph network with the interface of the search. Adjacent rows share the graph of their sentence."""

    def __init__(self, network: ParallelTransformer, tap: Tap | None = None) -> None:
        self.network, self._tap = network, tap

    @property
    def device(self) -> torch.device:
        return self.network.device

    @property
    def continues_text(self) -> bool:
        return False

    def encode(self, source_ids: Int[Tensor, "B S"], source_mask: Bool[Tensor, "B S"] | None = None) -> GraphMemory:
        canvas = self.network.empty_canvas(source_ids, source_mask)
        memory = self.network.encode(source_ids, source_mask, self._tap)
        prediction = self.network.predict(memory, canvas, self._tap)
        assert prediction.links is not None
        log_emissions = _log_emissions(prediction.logits, canvas)
        return GraphMemory(prediction.links.exp(), log_emissions, log_emissions.exp(), canvas.lengths - 1)

    def start(self, memory: GraphMemory) -> GraphState:
        return GraphState(memory)

    def step(self, ids: Int[Tensor, "R T"], state: GraphState) -> tuple[Float[Tensor, "R T V"], GraphState]:
        """Read more of the target. Return the log-probabilities after each new token, and the new state.

        Products are in float32 even under autocast: small probabilities are 0 in half precision.
        """
        memory, reached, logits = state.memory, state.reached, []
        with torch.autocast(ids.device.type, enabled=False):
            for column in ids.unbind(1):
                reached = _advance(memory, _first_vertex(memory, len(ids)) if reached is None else reached, column)
                logits.append(_next_tokens(memory, reached))
        return torch.stack(logits, 1), GraphState(memory, reached)

    def allocate_state(self, sentences: int, source_width: int, width: int, capacity: int) -> GraphState:
        """Return a state of fixed size, `width` rows per sentence. Its length does not depend on that of the target."""
        weight = self.network.output.weight
        size, vocabulary = self.network.canvas_size(source_width), weight.size(0)
        dtype = torch.promote_types(weight.dtype, torch.float32)
        links, log_emissions, emissions, reached = (
            torch.zeros(shape, dtype=dtype, device=self.device)
            for shape in (
                (sentences, size, size),
                (sentences, size, vocabulary),
                (sentences, size, vocabulary),
                (sentences * width, size),
            )
        )
        last = torch.zeros(sentences, dtype=torch.long, device=self.device)
        return GraphState(GraphMemory(links, log_emissions, emissions, last), reached)


def _first_vertex(memory: GraphMemory, rows: int) -> Float[Tensor, "R L"]:
    """Return the state before the first step: vertex 0 emits BOS."""
    first = memory.links.new_zeros(rows, memory.links.size(1))
    first[:, 0] = 1
    return first


def _log_emissions(logits: Float[Tensor, "B L V"], canvas: Canvas) -> Float[Tensor, "B L V"]:
    """Return the log-probabilities of the tokens of the vertices. The first one emits BOS, the last one nothing."""
    scores = logits.clone() if logits.dtype == torch.float64 else logits.float()
    for token in (PAD, BOS, EOS):
        scores[..., token] = float("-inf")
    vertex = torch.arange(logits.size(1), device=logits.device)
    inner = (vertex > 0) & (vertex < canvas.lengths[:, None] - 1)
    scores = scores.log_softmax(-1).masked_fill(~inner[..., None], float("-inf"))
    scores[:, 0, BOS] = 0
    return scores


def _advance(memory: GraphMemory, reached: Float[Tensor, "R L"], ids: Int[Tensor, " R"]) -> Float[Tensor, "R L"]:
    """Return the vertices of the token after `ids`, given that the vertices `reached` emitted `ids`."""
    sentences, rows = len(memory.links), len(reached)
    chosen = ids.view(sentences, 1, -1).expand(-1, reached.size(1), -1)
    emitted = memory.log_emissions.gather(2, chosen).transpose(1, 2).reshape(rows, -1)
    # In logarithms: the product may be below the smallest float32 for every vertex.
    scores = reached.log() + emitted
    best = scores.amax(-1, keepdim=True)
    here = (scores - best.nan_to_num(neginf=0.0)).exp()  # 0 everywhere if the prefix is impossible
    here = here / here.sum(-1, keepdim=True).clamp(min=torch.finfo(here.dtype).tiny)
    return (here.view(sentences, -1, here.size(1)) @ memory.links).view(rows, -1)


def _next_tokens(memory: GraphMemory, reached: Float[Tensor, "R L"]) -> Float[Tensor, "R V"]:
    sentences, rows = len(memory.links), len(reached)
    by_sentence = reached.view(sentences, -1, reached.size(1))
    probabilities = by_sentence @ memory.emissions
    probabilities[..., EOS] = by_sentence.gather(2, memory.last[:, None, None].expand(-1, by_sentence.size(1), 1))[
        ..., 0
    ]
    # An impossible prefix has no next token. Its row has log-probability -inf. Equal logits keep it free of NaN.
    impossible = reached.sum(-1, keepdim=True) == 0
    return probabilities.view(rows, -1).log().masked_fill(impossible, 0.0)
