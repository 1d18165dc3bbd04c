"""Makes the table and the picture of docs/three-kinds.md from the files of `generation_kinds.py --json`.

    python benchmarks/kinds_page.py kinds.json [kinds-seed-2.json ...] [--picture kinds.svg] [--language zh]

Several files are seeds of the same systems: their numbers are averaged. The table goes to standard output. The picture,
which needs the `plot` extra, shows quality against latency. `--ratios-only` is for a busy machine, where systems that
took turns can be compared, but their times mean nothing.
"""

import argparse
import json
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Any

from attendo.explore.curves_figure import COLOURS
from attendo.explore.figure_style import plot_style, save_figure

SIZE = (7.4, 4.2)  # inches
# Names of systems that have a description. Others are shown as they are.
LABELS = {
    "greedy": ("encoder–decoder, greedy", "编码器–解码器，贪心"),
    "beam5": ("encoder–decoder, beam 5", "编码器–解码器，束宽 5"),
    "drafted_ctc": ("encoder–decoder, ctc draft", "编码器–解码器，ctc 草稿"),
    "deep_encoder": ("12 + 1 layers, greedy", "12 + 1 层，贪心"),
    "deep_encoder_beam5": ("12 + 1 layers, beam 5", "12 + 1 层，束宽 5"),
    "decoder_only": ("decoder-only, greedy", "只有解码器，贪心"),
    "decoder_only_beam5": ("decoder-only, beam 5", "只有解码器，束宽 5"),
    "masked4": ("masked, 4 passes, 1 length", "masked，4 遍，1 个长度"),
    "masked10": ("masked, 10 passes, 5 lengths", "masked，10 遍，5 个长度"),
    "ctc": ("ctc", "ctc"),
    "graph": ("graph, lookahead", "graph，lookahead"),
    "graph_viterbi": ("graph, joint Viterbi", "graph，联合 Viterbi"),
    "graph_beam5": ("graph, beam 5", "graph，束宽 5"),
    "graph_ngrams": ("graph, bigrams, lookahead", "graph，二元组，lookahead"),
    "graph_ngrams_viterbi": ("graph, bigrams, joint Viterbi", "graph，二元组，联合 Viterbi"),
    "graph_kd": ("graph, teacher, lookahead", "graph，教师，lookahead"),
    "graph_kd_viterbi": ("graph, teacher, joint Viterbi", "graph，教师，联合 Viterbi"),
    "kd_ngrams": ("graph, teacher and bigrams, lookahead", "graph，教师和二元组，lookahead"),
    "kd_ngrams_viterbi": ("graph, teacher and bigrams, joint Viterbi", "graph，教师和二元组，联合 Viterbi"),
}
HEADINGS = {
    "bleu": ("BLEU", "BLEU"),
    "chrf": ("chrF", "chrF"),
    "exact_match": ("exact match, %", "完全匹配，%"),
    "log_probability_per_token": ("log P per token", "每词元 log P"),
    "repeated_percent": ("repeated words, %", "重复的词，%"),
    "length_ratio": ("length", "长度"),
    "ms_p50": ("ms at batch 1: p50 (p95)", "批大小 1 的毫秒数：p50（p95）"),
    "times_faster_alone": ("speed relative to {name}", "速度之比（对{name}）"),
    "tokens_per_second": ("tokens/s at batch {batch}", "批大小 {batch} 的词元/秒"),
    "times_faster_in_batches": ("at batch {batch}, relative to {name}", "批大小 {batch} 时的速度之比（对{name}）"),
    "parameters": ("parameters", "参数"),
    "target_tokens": ("target tokens seen, millions", "见过的目标词元，百万"),
    "training_seconds": ("training, s", "训练，秒"),
}
METRICS = ("bleu", "chrf", "exact_match")
RATIOS = ("times_faster_alone", "times_faster_in_batches")
TIMES = ("ms_p50", "tokens_per_second", "training_seconds")


def main() -> None:
    arguments = _parse_arguments()
    files = [json.loads(path.read_text("utf-8")) for path in arguments.files]
    systems, metrics = average(files), arguments.metrics.split(",")
    vocabularies = {each["reference_tokens"] for each in systems} - {None}
    if len(vocabularies) > 1:
        raise SystemExit(f"the models have other vocabularies: {sorted(vocabularies)} tokens in the same references")
    is_chinese, ratios_only = arguments.language == "zh", arguments.ratios_only
    print("\n".join(make_table(systems, metrics, files[0]["batch"], is_chinese, ratios_only)))
    if arguments.picture is not None:
        arguments.picture.write_bytes(draw(systems, metrics[0], ratios_only))


def average(files: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the systems of the first file, with the means of their numbers over all files."""
    by_name = [{each["system"]: each for each in file["systems"]} for file in files]
    return [_mean([systems[name] for systems in by_name]) for name in by_name[0]]


def _mean(values: Sequence[Any]) -> Any:
    if isinstance(values[0], dict):
        return {name: _mean([each.get(name) for each in values]) for name in values[0]}
    is_number = all(isinstance(each, int | float) and not isinstance(each, bool) for each in values)
    return fmean(values) if is_number else values[0]


def make_table(
    systems: Sequence[dict[str, Any]], metrics: Sequence[str], batch: int, is_chinese: bool, ratios_only: bool
) -> list[str]:
    """Return the lines of a Markdown table, with one row for each system."""
    columns = [*metrics, *(name for name in HEADINGS if name not in METRICS)]
    if ratios_only:
        columns = [name for name in columns if name not in TIMES]
    heads, rows = [""], [[_label(each, is_chinese)] for each in systems]
    for column in columns:
        compared = list(systems[0][column]) if column in RATIOS else [None]
        for other in compared:
            name = "" if other is None else _label({"system": other}, is_chinese)
            heads.append(HEADINGS[column][is_chinese].format(batch=batch, name=name))
            for row, each in zip(rows, systems, strict=True):
                row.append(_format(column, each) if other is None else f"{each[column][other]:.2f}")
    lines = [heads, ["---"] * len(heads), *rows]
    return [f"| {' | '.join(line)} |".replace("|  |", "| |") for line in lines]


def _label(system: dict[str, Any], is_chinese: bool) -> str:
    name: str = system["system"]
    return LABELS[name][is_chinese] if name in LABELS else name


def _format(column: str, system: dict[str, Any]) -> str:
    value = system.get(column)
    if value is None:
        return "–"
    if column == "ms_p50":
        return f"{value:.1f} ({system['ms_p95']:.1f})"
    if column == "target_tokens":
        return f"{value / 1e6:.1f}"
    digits = {"log_probability_per_token": 3, "repeated_percent": 2, "length_ratio": 3, **dict.fromkeys(METRICS, 1)}
    return f"{value:,.{digits.get(column, 0)}f}"


def draw(systems: Sequence[dict[str, Any]], metric: str, ratios_only: bool) -> bytes:
    """Return an SVG: one point for each system, the lines join the ways of decoding of one model."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    first = next(iter(systems[0]["times_faster_alone"]))
    unit = f"relative to {_label({'system': first}, is_chinese=False)}" if ratios_only else "milliseconds (median)"
    points = [
        (1 / each["times_faster_alone"][first] if ratios_only else each["ms_p50"], each[metric]) for each in systems
    ]
    models = list(dict.fromkeys(each["model"] for each in systems))
    colours = [COLOURS[models.index(each["model"]) % len(COLOURS)] for each in systems]
    with plot_style(["DejaVu Sans"]):
        figure = Figure(figsize=SIZE, layout="constrained", facecolor="white")
        panel = figure.add_subplot()
        panel.set_xscale("log")
        panel.set(xlabel=f"time for one sentence at batch 1, {unit}", ylabel=HEADINGS[metric][0])
        for number, model in enumerate(models):
            own = [point for point, each in zip(points, systems, strict=True) if each["model"] == model]
            panel.plot(*zip(*own, strict=True), "o-", color=COLOURS[number % len(COLOURS)], markersize=5, linewidth=0.8)
        times = [time for time, _ in points]
        panel.set_xlim(min(times) / 1.5, max(times) * 1.9)
        panel.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        panel.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        panel.xaxis.set_minor_formatter(NullFormatter())
        panel.margins(y=0.12)
        _label_points(figure, panel, [_label(each, is_chinese=False) for each in systems], points, colours)
        return save_figure(figure, "svg")


def _label_points(
    figure: Any, panel: Any, names: Sequence[str], points: Sequence[tuple[float, float]], colours: Sequence[str]
) -> None:
    """Write the name beside each point, at the first place that is free."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    renderer = FigureCanvasAgg(figure).get_renderer()
    figure.draw_without_rendering()  # the layout determines where the points are
    drawn = [line.get_xydata() for line in panel.lines]
    places = [place for line in drawn for place in _sample(panel.transData.transform(line))]
    taken: list[Any] = []
    for name, point, colour in zip(names, points, colours, strict=True):
        for offset, align in _PLACES:
            style = {"ha": align, "va": "center", "fontsize": 8, "color": colour}
            text = panel.annotate(name, point, xytext=offset, textcoords="offset points", **style)
            box = text.get_window_extent(renderer)
            is_inside = panel.bbox.x0 <= box.x0 and box.x1 <= panel.bbox.x1
            hits = any(map(box.overlaps, taken)) or any(box.contains(*place) for place in places)
            if (is_inside and not hits) or offset == _PLACES[-1][0]:
                taken.append(box)
                break
            text.remove()


def _sample(line: Any) -> list[tuple[float, float]]:
    """Return points along a line, close enough that a name on the line covers one of them."""
    if len(line) == 1:
        return [tuple(line[0])]
    return [
        (x + step / 40 * (to_x - x), y + step / 40 * (to_y - y))
        for (x, y), (to_x, to_y) in pairwise(line)
        for step in range(41)
    ]


# Offsets of a name from its point, in points, and its alignment.
_PLACES = (
    *(((7, 0), "left"), ((-7, 0), "right"), ((0, 10), "center"), ((0, -10), "center")),
    *(((7, 9), "left"), ((7, -9), "left"), ((-7, 9), "right"), ((-7, -9), "right")),
    *(((0, 20), "center"), ((0, -20), "center")),
)


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE")
    parser.add_argument("--metrics", default="bleu,chrf", help="the first one is in the picture")
    parser.add_argument("--picture", type=Path)
    parser.add_argument("--ratios-only", action="store_true")
    parser.add_argument("--language", choices=("en", "zh"), default="en")
    return parser.parse_args()


if __name__ == "__main__":
    main()
