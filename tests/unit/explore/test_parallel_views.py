"""A parallel trace in the terminal and as a picture: every number shown is one of the trace."""

import re
from xml.etree import ElementTree

import pytest
from rich.console import Console
from tiny import SOURCES, parallel_model, tiny_model

from attendo.explore.graph_svg import render_graph_svg
from attendo.explore.i18n import read_strings
from attendo.explore.parallel_terminal import render_parallel_trace
from attendo.explore.parallel_text import MIN_PASS, format_share, list_runs, select_links, select_vertices, tile_weight
from attendo.messages import Language
from attendo.text_model import ParallelTrace, Trace
from attendo.text_model.parallel_trace import CtcTrace, GraphLink, GraphTrace, GraphVertex, MaskPredictTrace
from attendo.text_model.trace import TokenCandidate

TEXT = SOURCES[3]


def show(trace: ParallelTrace, width: int = 100, language: Language = "en", beside: Trace | None = None) -> str:
    console = Console(width=width, highlight=False, color_system=None)
    with console.capture() as captured:
        for each in render_parallel_trace(trace, width, language, None if beside is None else ("other", beside)):
            console.print(each)
    return captured.get()


def small_graph() -> GraphTrace:
    """Vertices 0, 1 and 3 on the path, 2 beside it. No path visits 4."""
    top = (TokenCandidate("a", 4, 0.9), TokenCandidate("b", 5, 0.1))
    return GraphTrace(
        (
            GraphVertex(0, "", None, 1.0, 1.0, True, ()),
            GraphVertex(1, "a", 4, 0.9, 0.7, True, top),
            GraphVertex(2, "b", 5, 0.8, 0.3, False, top),
            GraphVertex(3, "a", 4, 0.9, 1.0, True, top),
            GraphVertex(4, "b", 5, 0.9, 0.001, False, top),
            GraphVertex(5, "", None, 1.0, 1.0, True, ()),
        ),
        (
            GraphLink(0, 1, 0.7, True),
            GraphLink(0, 2, 0.3, False),
            GraphLink(1, 3, 1.0, True),
            GraphLink(2, 3, 1.0, False),
            GraphLink(3, 5, 0.999, True),
            GraphLink(4, 5, 1.0, False),
        ),
    )


def test_vertices_and_links_that_few_paths_visit_are_not_shown() -> None:
    details = small_graph()
    assert [each.position for each in select_vertices(details)] == [0, 1, 2, 3, 5]
    links = {(each.link.start, each.link.end): each.taken for each in select_links(details)}
    assert links == pytest.approx({(0, 1): 0.7, (0, 2): 0.3, (1, 3): 0.7, (2, 3): 0.3, (3, 5): 0.999})


def test_the_picture_has_every_vertex_from_left_to_right_and_the_path_in_bold() -> None:
    root = ElementTree.fromstring(render_graph_svg(small_graph()))
    space = "{http://www.w3.org/2000/svg}"
    boxes = root.findall(f"{space}g")
    assert [each.findtext(f"{space}text") for each in boxes] == ["start", "a", "b", "a", "end"]
    lefts = [float(each.find(f"{space}rect").attrib["x"]) for each in boxes]  # type: ignore[union-attr]
    assert lefts == sorted(lefts)
    assert [each.attrib["class"] for each in boxes].count("vertex chosen") == 4
    assert len(root.findall(f"{space}circle")) == 1
    links = root.findall(f"{space}path")
    assert [each.attrib["class"] for each in links] == ["link", "link", "link chosen", "link chosen", "link chosen"]
    assert any("0 → 2: p 0.30, taken by 30%" in (each.findtext(f"{space}title") or "") for each in links)
    width, height = float(root.attrib["width"]), float(root.attrib["height"])
    for each in root.iter(f"{space}rect"):
        assert float(each.get("x", 0)) >= 0
        assert float(each.get("x", 0)) + float(each.attrib["width"]) <= width
        assert float(each.get("y", 0)) + float(each.attrib["height"]) <= height


def test_the_terminal_shows_the_graph() -> None:
    trace = parallel_model("graph", upsample=2).trace_parallel(TEXT)
    assert isinstance(trace.details, GraphTrace)
    shown = show(trace, 200)
    for each in select_vertices(trace.details)[1:-1]:
        (line,) = re.findall(rf"^ (●| ) +{each.position} +{each.pass_probability:.2f} .*", shown, re.MULTILINE)
        assert (line == "●") == each.chosen
    hidden = sum(each.pass_probability < MIN_PASS and not each.chosen for each in trace.details.vertices)
    assert (f"{hidden} more vertices" in shown) == bool(hidden)


@pytest.mark.parametrize("width", [40, 200])
def test_the_terminal_shows_every_token_of_every_pass(width: int) -> None:
    trace = parallel_model("masked").trace_parallel(TEXT, passes=3)
    assert isinstance(trace.details, MaskPredictTrace)
    shown = show(trace, width)
    assert max(len(line) for line in shown.splitlines()) <= width
    for number, tokens in enumerate(trace.details.passes):
        lines = "".join(re.findall(rf"^pass {number} +(.*)$", shown, re.MULTILINE))
        found = re.findall(r"(\[)?(\S+) (<?\d+)\]?", lines)
        assert found == [("[" if each.predicted else "", each.piece, format_share(each.probability)) for each in tokens]


def test_the_terminal_shows_the_alignment() -> None:
    trace = parallel_model("ctc").trace_parallel(TEXT)
    shown = show(trace, 60)
    merged = re.findall(r"^merged +(.*)$", shown, re.MULTILINE)
    assert " ".join(merged).split() == list(trace.target_pieces)
    numbers = " ".join(re.findall(r"^position +(.*)$", shown, re.MULTILINE)).split()
    assert isinstance(trace.details, CtcTrace)
    assert numbers == [str(n) for n in range(len(trace.details.positions))]


def test_tiles_are_darker_if_the_probability_is_higher_and_leave_out_the_middle() -> None:
    weights = [tile_weight(number / 100) for number in range(101)]
    assert weights == sorted(weights)
    assert (weights[0], weights[100]) == (0, 1)
    assert not [each for each in weights if 0.42 < each < 0.68]


def test_runs_are_equal_neighbours() -> None:
    trace = parallel_model("ctc").trace_parallel(TEXT)
    assert isinstance(trace.details, CtcTrace)
    runs = list_runs(trace.details.positions)
    assert [each for run in runs for each in run] == list(trace.details.positions)
    assert all(len({each.id for each in run}) == 1 for run in runs)
    assert tuple(run[0].piece for run in runs if not run[0].blank) == trace.target_pieces


def test_steps_of_another_model_stand_beside() -> None:
    trace, other = parallel_model("ctc").trace_parallel(TEXT), tiny_model().trace(TEXT, "猫 坐", layer=0)
    shown = show(trace, beside=other)
    assert "The same sentence, token by token: other" in shown
    assert f"Its text: {other.text}" in shown
    assert f"{other.steps(1)[0].probability:.3f}" in shown.partition("token by token")[2]


def test_both_languages_have_the_same_placeholders() -> None:
    for key, texts in read_strings()["parallel"].items():
        assert set(texts) == {"en", "zh"}, key
        assert re.findall(r"\{\d\}", texts["en"]) == re.findall(r"\{\d\}", texts["zh"]), key
