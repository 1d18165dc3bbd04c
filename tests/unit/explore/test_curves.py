"""Training curves: reading metrics.jsonl, and the content of the figure."""

import json
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from error_codes import has_code
from hypothesis import given
from hypothesis import strategies as st

from attendo.errors import DataError, UsageError
from attendo.explore import figure_style
from attendo.explore.curves import History, read_histories
from attendo.explore.curves_figure import (
    COLOURS,
    MAX_POINTS,
    build_curves_figure,
    downsample,
    draw_curves,
    run_style,
    smoothing_window,
)
from attendo.explore.figure_style import choose_fonts, plot_style


def step_line(number: int, **changes: Any) -> dict[str, Any]:
    values = {"loss": 10.0 - number / 100, "lr": 1e-3, "tokens": 100, "seconds": 2.0 * number, "skipped": False}
    return {"kind": "step", "step": number, **values, **changes}


def validation_line(number: int, loss: float, best: bool = False, **scores: float | None) -> dict[str, Any]:
    return {"kind": "validation", "step": number, "loss": loss, "scores": scores, "signatures": {}, "best": best}


LINES = [
    *(step_line(number) for number in (1, 2, 3)),
    validation_line(3, 8.0, best=True, bleu=1.0),
    {"kind": "saved", "step": 3, "folder": "x", "bytes": 1},
    step_line(4, loss=None, skipped=True),
    {"kind": "savefailed", "step": 4, "reason": "x", "failures": 1},
    {"kind": "skipped", "step": 4, "pairs": [1, 2]},
    {"kind": "of another day", "step": 4},
    *(step_line(number) for number in (5, 6)),
    validation_line(6, 8.5, bleu=2.5, exact_match=None),
    {"kind": "stopped", "step": 6, "reason": "x"},
]


def write(folder: Path, lines: list[dict[str, Any]], end: str = "") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines) + end, "utf-8")
    return folder


def history(tmp_path: Path, lines: list[dict[str, Any]], name: str = "run") -> History:
    return read_histories([write(tmp_path / name, lines)])[0]


def test_a_history_has_the_values_of_the_lines(tmp_path: Path) -> None:
    run = history(tmp_path, LINES)
    assert run.name == "run"
    assert run.metrics == ("loss", "lr", "valid_loss", "bleu")
    assert [each.tolist() for each in run.curve("loss")] == [[1, 2, 3, 5, 6], [9.99, 9.98, 9.97, 9.95, 9.94]]
    assert run.curve("lr")[0].tolist() == [1, 2, 3, 4, 5, 6]
    assert [each.tolist() for each in run.curve("valid_loss")] == [[3, 6], [8.0, 8.5]]
    assert [each.tolist() for each in run.curve("bleu")] == [[3, 6], [1.0, 2.5]]
    assert len(run.curve("exact_match")[0]) == len(run.curve("unheard of")[0]) == 0
    assert (run.skipped_steps.tolist(), run.best_step) == ([4], 3.0)


def test_steps_are_mapped_to_every_axis(tmp_path: Path) -> None:
    run = history(tmp_path, LINES)
    steps = np.array([3.0, 6.0])
    assert run.axis_values(steps, "step").tolist() == [3.0, 6.0]
    assert run.axis_values(steps, "seconds").tolist() == [6.0, 12.0]
    assert run.axis_values(steps, "tokens").tolist() == [300.0, 600.0]


def test_the_later_of_two_lines_for_a_step_counts(tmp_path: Path) -> None:
    again = [step_line(2, loss=1.0), validation_line(3, 7.0), step_line(4)]
    run = history(tmp_path, LINES + again)
    assert run.curve("loss")[0].tolist() == [1, 2, 3, 4, 5, 6]
    assert run.curve("loss")[1][1] == 1.0
    assert run.curve("valid_loss")[1].tolist() == [7.0, 8.5]
    assert (run.skipped_steps.tolist(), run.best_step) == ([], None)


@pytest.mark.parametrize("end", ["{", '{"kind": "step", "step": 7, "loss": 1', '{"kind": "step", "st', "\0\0"])
def test_a_truncated_last_line_is_ignored(tmp_path: Path, end: str) -> None:
    run = read_histories([write(tmp_path / "run", LINES, end)])[0]
    assert run.steps.tolist() == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize(
    "bad",
    [
        "{",
        "",
        "no JSON",
        "[1, 2]",
        "3",
        "[" * 100_000,
        '{"step": 3}',
        '{"kind": "step"}',
        '{"kind": 1, "step": 3}',
        '{"kind": "step", "step": "3"}',
        '{"kind": "step", "step": 3, "loss": "low", "lr": 1, "tokens": 1, "seconds": 1}',
        '{"kind": "step", "step": 3, "loss": 1, "lr": true, "tokens": 1, "seconds": 1}',
        '{"kind": "step", "step": 3, "loss": 1, "lr": 1, "tokens": null, "seconds": 1}',
        '{"kind": "step", "step": 3, "loss": 1, "lr": 1, "tokens": 1, "seconds": 1' + "0" * 400 + "}",
        '{"kind": "validation", "step": 3, "loss": 1, "scores": [1]}',
        '{"kind": "validation", "step": 3, "loss": 1, "old": 1}',
        '{"kind": "validation", "step": 3, "loss": 1, "scores": {"bleu": "high"}}',
    ],
)
def test_an_invalid_line_raises_with_its_number(tmp_path: Path, bad: str) -> None:
    folder = write(tmp_path / "run", LINES[:2], f"{bad}\n{json.dumps(step_line(3))}\n")
    with pytest.raises(DataError, check=has_code("metrics_line_invalid", line=3, file="metrics.jsonl")):
        read_histories([folder])


def test_invalid_utf8_raises_with_the_line(tmp_path: Path) -> None:
    (tmp_path / "text.jsonl").write_bytes(b'{"kind": "\xff"}\n')
    with pytest.raises(DataError, check=has_code("metrics_line_invalid", line=1)):
        read_histories([tmp_path / "text.jsonl"])


@pytest.mark.parametrize(("content", "count"), [("", 0), ("cut", 1), ('{"kind": "saved", "step": 3}\n', 1)])
def test_a_file_without_steps_is_rejected(tmp_path: Path, content: str, count: int) -> None:
    write(tmp_path / "run", [], content)
    with pytest.raises(DataError, check=has_code("metrics_file_without_steps", count=count)):
        read_histories([tmp_path / "run"])


def test_a_missing_file_is_rejected(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "missing"):
        with pytest.raises(DataError, check=has_code("metrics_file_unreadable")):
            read_histories([path])


def test_runs_are_named_by_the_shortest_distinct_path_ends(tmp_path: Path) -> None:
    for name in ("a/x", "b/x", "b/y"):
        write(tmp_path / name, LINES)
    (tmp_path / "old.jsonl").write_bytes((tmp_path / "a/x/metrics.jsonl").read_bytes())
    paths = [tmp_path / each for each in ("a/x", "b/x/metrics.jsonl", "b/y", "a/../a/x", "old.jsonl")]
    assert [run.name for run in read_histories(paths)] == ["a/x", "b/x", "y", "old.jsonl"]


def test_runs_with_symlinked_metrics_keep_their_names(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    for name in ("a", "b"):
        write(tmp_path / name, LINES)
        moved = (tmp_path / name / "metrics.jsonl").rename(tmp_path / "kept" / f"{name}.jsonl")
        (tmp_path / name / "metrics.jsonl").symlink_to(moved)
    assert [run.name for run in read_histories([tmp_path / "a", tmp_path / "b"])] == ["a", "b"]


@pytest.mark.slow
def test_long_paths_are_distinct_in_the_legend(tmp_path: Path) -> None:
    paths = [write(tmp_path / name / ("of-a-long-name-" * 3) / "checkpoints" / "seed-1", LINES) for name in "ab"]
    names = build_curves_figure(read_histories(paths), ["loss"], "step").legends[0].get_texts()
    assert [name.get_text() for name in names] == ["a/…/checkpoints/seed-1", "b/…/checkpoints/seed-1"]


def test_the_smooth_loss_is_a_moving_mean_per_token(tmp_path: Path) -> None:
    values = [(8.0, 100), (6.0, 300), (None, 100), (4.0, 100), (2.0, 100), (3.0, 100)]
    lines = [step_line(number, loss=loss, tokens=tokens) for number, (loss, tokens) in enumerate(values, 1)]
    run = history(tmp_path, lines)
    steps, loss = run.smooth_loss(3)
    assert steps.tolist() == [1, 2, 4, 5, 6]
    assert loss.tolist() == pytest.approx([8.0, 3000 / 500, 2400 / 500, 3.0, 2.5])
    assert run.smooth_loss(1)[1].tolist() == pytest.approx([8.0, 6.0, 4.0, 2.0, 3.0])


def test_the_smoothing_window_is_a_hundredth_of_the_run() -> None:
    assert [smoothing_window(count) for count in (0, 1, 199, 200, 1000, 10**6)] == [1, 1, 1, 3, 11, 201]


@given(st.integers(1, 5 * MAX_POINTS), st.integers(0, 99))
def test_downsampling_keeps_the_extremes(count: int, seed: int) -> None:
    values = np.random.default_rng(seed).normal(size=count)
    indices, points = downsample(np.arange(float(count)), values)
    assert len(points) <= MAX_POINTS
    assert (points.min(), points.max()) == (values.min(), values.max())
    assert (np.diff(indices) > 0).all()
    assert (values[indices.astype(int)] == points).all()


def test_a_long_line_is_downsampled() -> None:
    steps = np.arange(100_000.0)
    assert len(downsample(steps, np.sin(steps))[0]) == MAX_POINTS


def test_every_metric_has_a_panel_with_its_name_and_its_unit(tmp_path: Path) -> None:
    last = validation_line(6, 8.5, bleu=2.5, exact_match=50.0, own_score=1.0)
    run = history(tmp_path, [*LINES, {**last, "old": {"loss": 3.0, "bleu": 30.0}}])
    panels = build_curves_figure([run], [], "step").axes
    assert [(panel.get_title("left") or panel.get_title(), panel.get_ylabel()) for panel in panels] == [
        ("Training loss", "nats per target token"),
        ("Validation loss", "nats per target token"),
        ("Learning rate", "$\\times\\,10^{-3}$"),
        ("BLEU", ""),
        ("Exact match", "%"),
        ("Own score", ""),
        ("Validation loss, old pairs", "nats per target token"),
        ("BLEU, old pairs", ""),
    ]
    assert [panel.get_xlabel() for panel in panels] == [""] * 5 + ["step"] * 3


def test_the_chosen_metrics_are_drawn_in_their_order(tmp_path: Path) -> None:
    run = history(tmp_path, LINES)
    with plot_style(["DejaVu Sans"]):
        titles = [
            panel.get_title(loc="left") for panel in build_curves_figure([run], ["bleu", "loss", "bleu"], "step").axes
        ]
    assert titles == ["BLEU", "Training loss"]


def test_an_unknown_metric_raises_with_a_suggestion(tmp_path: Path) -> None:
    run = history(tmp_path, LINES)
    with pytest.raises(
        UsageError, check=has_code("unknown_run_metric", metric="blue", suggestion=" (did you mean bleu?)")
    ):
        build_curves_figure([run], ["blue"], "step")
    with pytest.raises(UsageError, check=has_code("unknown_run_metric", metric="exact_match")):
        build_curves_figure([run], ["exact_match"], "step")


def test_a_run_of_skipped_steps_has_only_its_learning_rate(tmp_path: Path) -> None:
    run = history(tmp_path, [step_line(1, loss=None, skipped=True)])
    assert run.metrics == ("lr",)
    assert draw_curves([run], [], "step", "png")
    with pytest.raises(UsageError, check=has_code("no_metrics_to_draw")):
        build_curves_figure([history(tmp_path, [step_line(1, loss=None, lr=None)])], [], "step")


@pytest.mark.parametrize(
    ("axis", "seconds", "tokens", "label", "end"),
    [
        ("step", 1.0, 1, "step", 10.0),
        ("seconds", 17.9, 1, "training time (seconds)", 179.0),
        ("seconds", 18.0, 1, "training time (minutes)", 3.0),
        ("seconds", 1080.0, 1, "training time (hours)", 3.0),
        ("seconds", 86_400.0, 1, "training time (days)", 10.0),
        ("tokens", 1.0, 999, "target tokens", 9990.0),
        ("tokens", 1.0, 1000, "target tokens (thousands)", 10.0),
        ("tokens", 1.0, 10**6, "target tokens (millions)", 10.0),
        ("tokens", 1.0, 10**9, "target tokens (billions)", 10.0),
    ],
)
def test_the_unit_of_the_axis_fits_the_run(
    tmp_path: Path, axis: Any, seconds: float, tokens: int, label: str, end: float
) -> None:
    lines = [step_line(number, seconds=seconds * number, tokens=tokens) for number in range(1, 11)]
    panel = build_curves_figure([history(tmp_path, lines)], ["loss"], axis).axes[0]
    assert panel.get_xlabel() == label
    assert panel.lines[0].get_xdata()[-1] == pytest.approx(end)


def test_validations_without_steps_need_the_step_axis(tmp_path: Path) -> None:
    run = history(tmp_path, [validation_line(0, 5.0)])
    assert len(build_curves_figure([run], [], "step").axes) == 1
    with pytest.raises(UsageError, check=has_code("run_has_only_validations", run="run")):
        build_curves_figure([run], [], "seconds")


def test_the_figure_marks_skipped_steps_the_best_and_the_mean(tmp_path: Path) -> None:
    lines = [step_line(number, loss=None if number == 70 else 5.0, skipped=number == 70) for number in range(1, 301)]
    run = history(tmp_path, [*lines, validation_line(100, 4.0, best=True), validation_line(200, 4.5)])
    figure = build_curves_figure([run], [], "step")
    loss, valid, _ = figure.axes
    raw, mean, skipped = loss.lines
    assert (raw.get_alpha(), mean.get_alpha()) == (0.25, None)
    assert (skipped.get_marker(), list(skipped.get_xdata())) == ("x", [70.0])
    best = valid.lines[1]
    assert (best.get_fillstyle(), list(best.get_xdata()), list(best.get_ydata())) == ("none", [100.0], [4.0])
    named, explained = ([text.get_text() for text in legend.get_texts()] for legend in figure.legends)
    assert named == ["run"]
    assert explained == ["single steps; the line is the mean of 3", "skipped step", "best validation"]


def test_one_outlier_does_not_flatten_the_curve(tmp_path: Path) -> None:
    lines = [step_line(number, loss=1000.0 if number == 5000 else 5.0 - number / 10_000) for number in range(1, 10_001)]
    low, high = build_curves_figure([history(tmp_path, lines)], ["loss"], "step").axes[0].get_ylim()
    assert 3.0 < low < 4.0
    assert 5.0 < high < 20.0


def test_runs_have_distinct_and_constant_styles(tmp_path: Path) -> None:
    styles = [(run_style(order)["color"], run_style(order)["linestyle"]) for order in range(24)]
    assert len(set(styles)) == 24
    runs = [history(tmp_path, LINES[:3], "a"), history(tmp_path, LINES, "_b"), history(tmp_path, LINES, "$c$" * 60)]
    figure = build_curves_figure(runs, ["bleu"], "step")
    assert [line.get_color() for line in figure.axes[0].lines[::2]] == list(COLOURS[1:3])
    texts = figure.legends[0].get_texts()
    names = [text.get_text() for text in texts]
    assert not any(text.get_parse_math() for text in texts)
    assert names[0] == "_b"
    assert names[1].startswith("…")
    assert names[1].endswith("$c$")


@pytest.mark.slow
@pytest.mark.parametrize(("form", "start"), [("png", b"\x89PNG"), ("svg", b"<?xml")])
def test_figures_do_not_depend_on_matplotlib_settings(tmp_path: Path, form: str, start: bytes) -> None:
    import matplotlib

    runs = [history(tmp_path, LINES, "a_$b$"), history(tmp_path, LINES, "c\nd")]
    first = draw_curves(runs, ["loss"], "step", form)
    with matplotlib.rc_context({"lines.linewidth": 9, "axes.facecolor": "black", "font.size": 30}):
        assert draw_curves(runs, ["loss"], "step", form) == first
        assert matplotlib.rcParams["lines.linewidth"] == 9
    assert first.startswith(start)


def test_chinese_names_use_a_font_with_their_characters(tmp_path: Path) -> None:
    from matplotlib.font_manager import findfont
    from matplotlib.ft2font import FT2Font

    assert choose_fonts("plain text, é") == ["DejaVu Sans"]
    chosen = choose_fonts("base 英译中")
    if figure_style._choose_known_fonts("英译中")[1]:
        pytest.skip("no Chinese font is installed")
    charmaps = [FT2Font(findfont(name)).get_charmap().keys() for name in chosen[1:]]
    assert set(map(ord, "英译中")) <= set().union(*charmaps)
    assert draw_curves([history(tmp_path, LINES, "英译中")], ["lr"], "step", "pdf").count(b"/Type3") > 0


def test_characters_without_a_font_give_no_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from matplotlib.font_manager import fontManager

    dejavu = [font for font in fontManager.ttflist if font.name.startswith("DejaVu")]
    monkeypatch.setattr(fontManager, "ttflist", dejavu)
    monkeypatch.setattr(figure_style, "_register_new_fonts", lambda: 0)
    assert choose_fonts("中") == ["DejaVu Sans"]
    assert draw_curves([history(tmp_path, LINES, "中")], ["lr"], "step", "png")


def test_fonts_installed_later_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both fonts are part of matplotlib, so the fonts of this machine do not matter."""
    import matplotlib
    import matplotlib.font_manager as manager
    from matplotlib.ft2font import FT2Font

    known, new = (f"{matplotlib.get_data_path()}/fonts/ttf/{name}.ttf" for name in ("DejaVuSans", "STIXNonUni"))
    lacking = min(FT2Font(new).get_charmap().keys() - FT2Font(known).get_charmap().keys())
    entry = manager.ttfFontProperty(FT2Font(known))
    monkeypatch.setattr(manager.fontManager, "ttflist", [entry])
    monkeypatch.setattr(manager, "findfont", lambda _name: known)
    monkeypatch.setattr(manager, "findSystemFonts", lambda: [known, new, "/nowhere.ttf"])
    figure_style._register_new_fonts.cache_clear()
    assert choose_fonts(chr(lacking)) == ["DejaVu Sans", "STIXNonUnicode"]
    figure_style._register_new_fonts.cache_clear()


def test_without_matplotlib_an_error_is_raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = history(tmp_path, LINES)
    monkeypatch.setitem(sys.modules, "matplotlib.style", None)
    with pytest.raises(UsageError, check=has_code("matplotlib_missing", command="attendo plot")):
        draw_curves([run], [], "step", "png")


def test_nan_and_infinity_are_not_drawn(tmp_path: Path) -> None:
    lines = [step_line(1, loss=math.nan), step_line(2, loss=math.inf), step_line(3)]
    assert history(tmp_path, lines).curve("loss")[0].tolist() == [3]
