"""The search tree: every hypothesis considered and its outcome, and the builder that grows the tree."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any, Literal

from attendo.text import EOS

Fate = Literal[
    "goes on",
    "finished",
    "cut",  # a row that cannot continue, or a free end at the limit
    "not among the best W",
    "ends, but not among the best W",
    "pushed out by better finished ones",
    "forbidden",  # by a rule; otherwise it would be among the best
    "not chosen",  # by a strategy that chooses per row, or by more than the value
    "beyond the limit",
    "left, as enough have finished",
    # with required phrases
    "ends, but phrases are missing",
    "its bank is full",  # the bank of rows that need the same number of tokens
    "no room left for the phrases",  # before the limit
]
_PUSHED_OUT: Fate = "pushed out by better finished ones"


@dataclass(frozen=True)
class SearchNode:
    """A considered hypothesis: its parent's tokens and one more."""

    number: int  # its index among the nodes
    parent: int | None  # None: it starts at BOS
    step: int  # from 1
    row: int  # the continued row, counted within the sentence or group
    id: int | None  # None: the row was cut without a token
    log_probability: float  # of the token, by the model
    value: float  # of the whole hypothesis: log-probabilities and penalties
    fate: Fate
    score: float | None = None  # of a finished or cut hypothesis, if the strategy has a ranking
    pushed_out_at: int | None = None  # the step at which enough better hypotheses had finished


@dataclass(frozen=True)
class SearchTree:
    """The search for one sentence, or in one group of a diverse beam. Groups have separate trees.

    The nodes of a step are ordered: considered ones, best first (row by row if each row chooses by itself), then those
    rejected for required phrases, then forbidden ones, then cut ones.
    """

    sentence: int  # request id
    group: int
    width: int  # W
    nodes: tuple[SearchNode, ...]

    @property
    def final_nodes(self) -> list[SearchNode]:
        """The finished and cut hypotheses."""
        return [node for node in self.nodes if node.fate in ("finished", "cut")]

    def ids(self, node: SearchNode) -> list[int]:
        """Return all tokens of a hypothesis without BOS."""
        return path_ids(self.nodes, node)

    def as_dict(self) -> dict[str, Any]:
        """Return JSON-compatible numbers, strings, lists and dicts."""
        nodes = [asdict(node) for node in self.nodes]
        return {"sentence": self.sentence, "group": self.group, "width": self.width, "nodes": nodes}

    def text(self, piece: Callable[[int], str] = str) -> str:
        """Return one line per node: its number, its parent's, the token, its log-probability, the value so far, and its
        fate.
        """
        lines, step = [f"sentence {self.sentence} · group {self.group} · W = {self.width}"], 0
        for node in self.nodes:
            if node.step != step:
                step = node.step
                lines.append(f"step {step}")
            token = "" if node.id is None else piece(node.id)
            parent = "" if node.parent is None else f"← {node.parent}"
            numbers = f"{node.log_probability:8.3f} {node.value:8.3f}"
            lines.append(f"{node.number:5} {parent:7} {token:14} {numbers}  {node.fate}")
        return "\n".join(lines)


def path_ids(nodes: Sequence[SearchNode], node: SearchNode) -> list[int]:
    """Return the tokens from the first one to the node's."""
    found = [] if node.id is None else [node.id]
    while node.parent is not None:
        node = nodes[node.parent]
        assert node.id is not None  # a cut node has no children
        found.append(node.id)
    return found[::-1]


@dataclass(frozen=True)
class CandidateRecord:
    """A continuation of a row."""

    row: int
    id: int
    log_probability: float
    value: float
    score: float | None
    rank: int  # among the considered ones, 0 is the best


@dataclass(frozen=True)
class RowSnapshot:
    """Rows of one sentence as plain numbers."""

    ids: list[list[int]]  # without BOS
    value: list[float]
    score: list[float] | list[None]
    exists: list[bool]
    open: list[bool]
    full: list[bool]
    ended: list[bool]
    cut: list[bool]


@dataclass(frozen=True)
class StepRecord:
    """All effects of one step on a sentence."""

    before: RowSnapshot
    after: RowSnapshot
    hypotheses: RowSnapshot  # the possible answers after the step; the same as `after` without a beam
    parents: list[int]  # of the rows after the step
    added: list[float]  # log-probability of the last token of these rows
    joint: bool  # the rows of the sentence were chosen from all continuations
    free_end: bool  # any token after a full row is the last
    considered: list[CandidateRecord]
    forbidden: list[CandidateRecord]
    rejected: list[tuple[CandidateRecord, Fate]]

    @cached_property
    def new_rows(self) -> dict[tuple[int, int], int]:
        """New row index by parent row and token, for rows with one more token."""
        return {
            (parent, ids[-1]): row
            for row, (parent, ids) in enumerate(zip(self.parents, self.after.ids, strict=True))
            if self.after.exists[row] and len(ids) > len(self.before.ids[parent])
        }

    @property
    def candidates(self) -> Iterator[CandidateRecord]:
        """The considered continuations, then those chosen without being among the best."""
        yield from self.considered
        known = {(each.row, each.id) for each in self.considered}
        for (parent, token), row in self.new_rows.items():
            if (parent, token) not in known:
                yield CandidateRecord(parent, token, self.added[row], self.after.value[row], None, rank=len(known))

    @property
    def cut(self) -> list[int]:
        """Rows that cannot continue and do not end."""
        if self.hypotheses is self.after:
            rows = zip(self.parents, self.after.cut, self.after.ended, strict=True)
            return [parent for parent, cut, ended in rows if cut and not ended and not self.before.cut[parent]]
        ends = {each.row for each in self.considered if each.id == EOS and each.rank < self.width}
        stuck = not any(self.after.exists)
        full = [is_full and not self.free_end for is_full in self.before.full]
        at_end = [there and (is_full or stuck) for there, is_full in zip(self.before.exists, full, strict=True)]
        return [row for row, is_at_end in enumerate(at_end) if is_at_end and row not in ends]

    @property
    def current_hypotheses(self) -> set[tuple[int, ...]]:
        """Token sequences of the finished and cut hypotheses that have not been pushed out."""
        rows = zip(self.hypotheses.ids, self.hypotheses.exists, self.hypotheses.ended, self.hypotheses.cut, strict=True)
        return {tuple(ids) for ids, there, ended, cut in rows if there and (ended or cut)}

    @property
    def width(self) -> int:
        return len(self.before.ids)

    def may_end(self, row: int, token: int) -> bool:
        """Return whether the token ends the row. Without a beam, the row must also have chosen the token."""
        return self._ends(row, token) and (self.hypotheses is not self.after or (row, token) in self.new_rows)

    def fate(self, candidate: CandidateRecord) -> Fate:
        """Return the fate of a candidate. For one that ends, this is its fate if it is not among the answers."""
        row = self.new_rows.get((candidate.row, candidate.id))
        not_best = self.joint and candidate.rank >= self.width
        if self._ends(candidate.row, candidate.id):
            if not_best:
                return "ends, but not among the best W"
            return _PUSHED_OUT if self.joint else "not chosen"
        if row is not None and self.after.open[row]:
            return "goes on"
        if self.before.full[candidate.row]:
            return "beyond the limit"
        if row is not None:
            return "left, as enough have finished"
        return "not among the best W" if not_best else "not chosen"

    def _ends(self, row: int, token: int) -> bool:
        return token == EOS or (self.free_end and self.before.full[row])


class TreeBuilder:
    """Builds a search tree step by step."""

    def __init__(self, width: int) -> None:
        self.width, self.nodes = width, list[SearchNode]()
        self._rows: list[int | None] = [None] * width  # the current node of each row
        self._finished: list[int] = []  # nodes that are finished or cut, and not pushed out
        self._step = 0

    def add(self, step: StepRecord) -> None:
        self._step += 1
        numbers: dict[tuple[int, int], int] = {}
        for each in step.candidates:
            score = each.score if step.may_end(each.row, each.id) else None
            numbers[each.row, each.id] = self._append(each, step.fate(each), score)
        ending = [number for key, number in numbers.items() if step.may_end(*key)]
        for each, fate in step.rejected:
            self._append(each, fate, None)
        for each in step.forbidden:
            self._append(each, "forbidden", None)
        cut = [self._append_cut(row, step.before) for row in step.cut]
        self._update_finished(step.current_hypotheses, [*ending, *cut])
        self._rows = [None] * self.width
        for key, row in step.new_rows.items():
            self._rows[row] = numbers[key]

    def _append(self, each: CandidateRecord, fate: Fate, score: float | None) -> int:
        parent, number = self._rows[each.row], len(self.nodes)
        node = SearchNode(number, parent, self._step, each.row, each.id, each.log_probability, each.value, fate, score)
        self.nodes.append(node)
        return number

    def _append_cut(self, row: int, before: RowSnapshot) -> int:
        number, parent, fate = len(self.nodes), self._rows[row], _PUSHED_OUT
        node = SearchNode(number, parent, self._step, row, None, 0.0, before.value[row], fate, before.score[row])
        self.nodes.append(node)
        return number

    def _update_finished(self, hypotheses: set[tuple[int, ...]], new: list[int]) -> None:
        """Update the fates of finished and cut nodes by whether they are among the current hypotheses."""
        before, self._finished = self._finished, []
        for number in [*before, *new]:
            node = self.nodes[number]
            if tuple(path_ids(self.nodes, node)) in hypotheses:
                self._finished.append(number)
                self.nodes[number] = replace(node, fate="finished" if node.id == EOS else "cut")
            elif number in before or node.fate == _PUSHED_OUT:
                self.nodes[number] = replace(node, fate=_PUSHED_OUT, pushed_out_at=self._step)
