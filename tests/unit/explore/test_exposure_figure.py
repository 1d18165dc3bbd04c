"""The figure of exposure bias: panels, curves and names."""

from xml.etree import ElementTree

import pytest
from late_import import needs
from tiny import SOURCES, TARGETS, tiny_model

from attendo.explore.exposure import ExposureReport, ParallelText, measure_exposure
from attendo.explore.exposure.figure import build_exposure_figure, draw_exposure
from attendo.explore.figure_style import plot_style

pytestmark = needs("matplotlib")


@pytest.fixture(scope="module")
def reports() -> dict[str, ExposureReport]:
    text = ParallelText(SOURCES, TARGETS)
    return {f"seed_{seed}": measure_exposure(tiny_model(seed), text, tiny_model(3)) for seed in (0, 1)}


def test_curves_have_the_values_of_the_report(reports: dict[str, ExposureReport]) -> None:
    with plot_style(["DejaVu Sans"]):
        figure = build_exposure_figure(reports)
    accuracy, recovery, excess, distractor = figure.axes
    (first, *_), report = reports.values(), reports["seed_0"]
    assert first is report
    assert [line.get_ydata().tolist() for line in accuracy.lines[:2]] == [
        pytest.approx([100 * (value or 0) for value in values])
        for values in (report.accuracy.gold, report.accuracy.own)
    ]
    assert accuracy.lines[0].get_xdata().tolist() == list(range(1, 7))
    assert len(accuracy.lines) == len(distractor.lines) == 4
    assert len(recovery.lines) == 9  # four for each model, and zero
    assert recovery.lines[0].get_ydata()[0] == report.recovery["random"].deltas[0]
    assert report.excess is not None
    assert excess.lines[1].get_ydata().tolist() == pytest.approx(report.excess["greedy"].percent)
    assert distractor.lines[3].get_ydata().tolist() == pytest.approx(reports["seed_1"].distractor.distractor)


def test_models_have_colours_and_names(reports: dict[str, ExposureReport]) -> None:
    with plot_style(["DejaVu Sans"]):
        figure = build_exposure_figure(reports)
    one, own, other, _ = figure.axes[0].lines
    assert one.get_color() == own.get_color() != other.get_color()
    assert one.get_linestyle() != own.get_linestyle()
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["seed_0", "seed_1"]


def test_a_model_alone_has_a_colour_for_each_corruption(reports: dict[str, ExposureReport]) -> None:
    with plot_style(["DejaVu Sans"]):
        figure = build_exposure_figure({"one": reports["seed_0"]})
    assert len({line.get_color() for line in figure.axes[1].lines[:4]}) == 4
    assert not figure.legends


def test_without_an_oracle_the_third_panel_has_the_quarters() -> None:
    report = measure_exposure(tiny_model(), ParallelText(SOURCES, TARGETS))
    with plot_style(["DejaVu Sans"]):
        figure = build_exposure_figure({"one": report})
    titles = [panel.get_title(loc="left") for panel in figure.axes]
    assert titles[2] == "Precision by quarter of the output"
    assert [line.get_ydata().tolist() for line in figure.axes[2].lines] == [
        pytest.approx([100 * (value or 0) for value in values])
        for values in (report.quarters.unigrams, report.quarters.bigrams)
    ]


def test_a_line_alone_has_no_distractor() -> None:
    with plot_style(["DejaVu Sans"]):
        figure = build_exposure_figure({"one": measure_exposure(tiny_model(), ParallelText(SOURCES[:1], TARGETS[:1]))})
    assert not figure.axes[3].lines
    assert [text.get_text() for text in figure.axes[3].texts] == ["no line has a distractor"]


def test_positions_of_few_sentences_are_not_drawn() -> None:
    text = ParallelText(SOURCES[:1] * 30, ["猫"] * 29 + ["我 爱 猫"])
    with plot_style(["DejaVu Sans"]):
        figure = build_exposure_figure({"one": measure_exposure(tiny_model(), text)})
    assert len(figure.axes[0].lines[0].get_xdata()) == 2  # 猫 and EOS


@pytest.mark.parametrize(("file_format", "begin"), [("svg", b"<?xml"), ("png", b"\x89PNG")])
def test_the_picture_is_a_file_of_the_format(
    reports: dict[str, ExposureReport], file_format: str, begin: bytes
) -> None:
    picture = draw_exposure(reports, file_format)
    assert picture.startswith(begin)
    if file_format == "svg":
        assert ElementTree.fromstring(picture).tag.endswith("svg")
