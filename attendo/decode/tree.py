"""The tree of a search: all hypotheses that were considered, with what became of each and why."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

Fate = Literal[
    "goes on",
    "finished",
    "cut",  # a row that could go no further, or went no further where the end is free
    "not among the best W",
    "ends, but not among the best W",
    "pushed out by better finished ones",
    "forbidden",  # by a rule, where it would have been among the best
    "not chosen",  # where each row chooses for itself, or rows are chosen by more than the value
    "beyond the limit",
    "left, as enough have finished",
    # where phrases must be said
    "ends, but phrases are missing",
    "its bank is full",  # of the rows that need as many tokens more
    "no room left for the phrases",  # before the limit
]


@dataclass(frozen=True)
class Node:
    """A hypothesis that was considered: its parent's with one more token."""

    number: int  # its place among the nodes
    parent: int | None  # None: it begins at bos
    step: int  # counted from 1
    row: int  # of the sentence, or of its group, that it continues
    id: int | None  # None: nothing came, for the row was cut
    log_probability: float  # of the token, as the model has it
    value: float  # of the whole hypothesis: log-probabilities and penalties
    fate: Fate
    score: float | None = None  # of what ends or is cut, where the strategy ranks it
    pushed_out_at: int | None = None  # the step at which enough better ones had finished


@dataclass(frozen=True)
class Tree:
    """The search for one sentence, or in one group of a diverse beam, whose groups never mix.

    In a step first comes what was considered, best first (row by row, where each chooses for itself), then what phrases
    that must be said left no place for, then what was forbidden, then what was cut.
    """

    sentence: int  # its number
    group: int
    width: int  # W
    nodes: tuple[Node, ...]

    @property
    def answers(self) -> list[Node]:
        """The hypotheses that were left in the end."""
        return [node for node in self.nodes if node.fate in ("finished", "cut")]

    def ids(self, node: Node) -> list[int]:
        """All tokens of a hypothesis, bos left out."""
        return ids_of(self.nodes, node)

    def as_dict(self) -> dict[str, Any]:
        """Plain numbers, strings, lists and dicts, as JSON has them."""
        nodes = [asdict(node) for node in self.nodes]
        return {"sentence": self.sentence, "group": self.group, "width": self.width, "nodes": nodes}

    def text(self, piece: Callable[[int], str] = str) -> str:
        """A line a node: its number, its parent's, the token, its log-probability, the value so far, and its fate."""
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


def ids_of(nodes: Sequence[Node], node: Node) -> list[int]:
    """From the first token to that of the node."""
    found = [] if node.id is None else [node.id]
    while node.parent is not None:
        node = nodes[node.parent]
        assert node.id is not None  # nothing continues what was cut
        found.append(node.id)
    return found[::-1]
