"""What a parallel trace shows, and its words: shared by the terminal and the page."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby

from attendo.explore.i18n import localise
from attendo.explore.trace_text import format_number
from attendo.messages import Language
from attendo.text_model import ParallelTrace
from attendo.text_model.parallel_trace import CtcPosition, GraphLink, GraphTrace, GraphVertex
from attendo.text_model.trace import TokenCandidate

MIN_PASS = 0.01  # pass probability of the vertices, and of the links, that are shown
BLANK = "·"
parallel_string = partial(localise, "parallel")


@dataclass(frozen=True)
class ShownLink:
    """A link with the probability that a random path takes it: pass probability of the start × probability."""

    link: GraphLink
    taken: float


def select_vertices(details: GraphTrace) -> list[GraphVertex]:
    """Return the vertices of the chosen path, and those that a random path visits with at least `MIN_PASS`."""
    return [each for each in details.vertices if each.chosen or each.pass_probability >= MIN_PASS]


def select_links(details: GraphTrace) -> list[ShownLink]:
    """Return the links of the chosen path, and those that a random path takes with at least `MIN_PASS`."""
    found = [
        ShownLink(each, details.vertices[each.start].pass_probability * each.probability) for each in details.links
    ]
    return [each for each in found if each.link.chosen or each.taken >= MIN_PASS]


def list_runs(positions: Sequence[CtcPosition]) -> list[tuple[CtcPosition, ...]]:
    """Return the runs of equal tokens from left to right."""
    return [tuple(run) for _, run in groupby(positions, key=lambda each: each.id)]


def describe_trace(trace: ParallelTrace, language: Language) -> str:
    """Return one line: kind, settings, origin of the target, log-probability."""
    shown = dict(trace.options)
    if shown.get("graph_search") != "viterbi":
        shown.pop("path_length_penalty", None)  # has no effect
    if not shown.get("merge_repeats"):
        shown.pop("merge_repeats", None)
    settings = ", ".join(f"{name} {value}" for name, value in shown.items())
    kind = f"{trace.kind} ({settings})" if settings else trace.kind
    origin = parallel_string("given" if trace.given else "answered", language)
    score = parallel_string("confidences" if trace.kind == "masked" else "log_probability", language)
    return f"{kind}; {origin}; {score} {format_number(trace.log_probability)}"


def label_vertex(vertex: GraphVertex, last: int, language: Language) -> str:
    """Return the token of a vertex, or the name of the first or the last one."""
    if vertex.id is not None:
        return vertex.piece
    return parallel_string("end" if vertex.position == last else "start", language)


def label_token(candidate: TokenCandidate | CtcPosition) -> str:
    """Return the token, or the sign of a blank."""
    return candidate.piece or BLANK


def tile_weight(probability: float) -> float:
    """Return the weight that gives a tile its colour.

    The middle of the scale is left out, because no ink has enough contrast there.
    """
    return 0.84 * probability if probability < 0.5 else 0.68 + 0.64 * (probability - 0.5)


def format_share(probability: float) -> str:
    """Return a percentage of at most three digits."""
    return "<1" if 0 < probability < 0.005 else f"{100 * probability:.0f}"
