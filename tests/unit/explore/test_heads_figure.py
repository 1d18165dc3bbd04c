"""The figure of heads: a grid of layers and heads for each site, with a value in each cell."""

from xml.etree import ElementTree

import pytest
from late_import import needs

from attendo.explore.figure_style import plot_style
from attendo.explore.head_report import build_heads_figure, draw_heads
from attendo.explore.head_stats import HeadOrder, HeadReport, HeadStats

pytestmark = needs("matplotlib")


def report(layers: int = 2, heads: int = 3) -> HeadReport:
    found = []
    for stack, kind in (("encoder", "self"), ("decoder", "self"), ("decoder", "cross")):
        for layer in range(layers):
            for head in range(heads):
                value = (layer * heads + head) / 10
                agreement = value / 2 if kind == "cross" else None
                site = f"{stack}.{layer}.{kind}"
                found.append(HeadStats(site, head, 3 * value, value, 20 * value, value, value, value, agreement))
    return HeadReport(tuple(found), 1, 1, 1, 0)


def texts(picture: bytes) -> list[str]:
    return [
        "".join(each.itertext()).strip() for each in ElementTree.fromstring(picture).iter() if each.tag.endswith("text")
    ]


def test_every_head_has_a_cell_with_its_value() -> None:
    found = texts(draw_heads(report(), "special", "svg")[0])
    assert [each for each in found if each.endswith("attention")] == [
        *("Encoder self-attention", "Decoder self-attention", "Cross-attention")
    ]
    assert found.count("0.50") >= 3
    assert "share on <s> and </s>" in found
    assert "framed: best alignment head" in found


def test_alignment_is_shown_for_cross_attention_only() -> None:
    found = texts(draw_heads(report(), "alignment", "svg")[0])
    assert [each for each in found if each.endswith("-attention")] == ["Cross-attention"]
    assert "agreement with the mean of all heads" in found
    assert "0.25" in found


def test_the_frame_is_around_the_best_head() -> None:
    with plot_style(["DejaVu Sans"], maps=True):
        figure = build_heads_figure(report(), "entropy")
    (frame,) = figure.axes[2].patches
    assert (int(frame.get_x()), int(frame.get_y())) == (2, 1)
    assert not figure.axes[0].patches


@pytest.mark.parametrize(("order", "top"), [("entropy", 1.5), ("distance", 10.0), ("diagonality", 1.0)])
def test_scales_end_at_one_or_at_the_largest_value(order: HeadOrder, top: float) -> None:
    with plot_style(["DejaVu Sans"], maps=True):
        figure = build_heads_figure(report(), order)
    assert figure.axes[0].collections[0].get_clim() == pytest.approx((0, top))


def test_grids_with_many_heads_are_stacked() -> None:
    with plot_style(["DejaVu Sans"], maps=True):
        wide, tall = (build_heads_figure(report(heads=heads), "entropy").get_size_inches() for heads in (8, 16))
    assert wide[0] > wide[1]
    assert tall[0] < wide[0]


@pytest.mark.slow
@pytest.mark.parametrize(("form", "start"), [("png", b"\x89PNG"), ("pdf", b"%PDF"), ("svg", b"<?xml")])
def test_the_same_numbers_give_the_same_bytes(form: str, start: bytes) -> None:
    first, second = (draw_heads(report(1, 2), "entropy", form)[0] for _ in range(2))
    assert first.startswith(start)
    assert first == second
