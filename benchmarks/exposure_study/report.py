"""Tables in Markdown and a picture of an exposure study, from its JSON file."""

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TITLES = {
    "base": "base (the recipe)",
    "control": "control",
    "input_noise": "input noise",
    "schedule": "sampling by schedule",
    "confidence": "sampling by confidence",
    "r_drop": "R-Drop",
    "mrt_shuffled": "MRT, risks shuffled",
    "mrt": "MRT",
}
ABSOLUTE = ("base", "control", "mrt_shuffled")  # the others are shown as differences from their control
TASKS = {"multi30k": "Multi30k", "tatoeba": "Tatoeba"}
TEXTS = {
    "multi30k_2016": "Multi30k 2016",
    "multi30k_2017": "Multi30k 2017",
    "tatoeba": "Tatoeba",
    "msctd": "film lines",
}
RULES = ("loop", "low_contrast", "not_similar", "detached", "hallucinated")
MAIN_SEARCH = "beam"

Content = Mapping[str, Any]
Column = tuple[str, str, str, str, int]  # heading, text, part, measure, decimals


def write_report(file: Path, picture: Path | None) -> None:
    """Print the tables, and draw the picture."""
    content = json.loads(file.read_bytes())
    print("\n".join(format_report(content)))
    if picture is not None:
        picture.write_bytes(draw_study(content, picture.suffix[1:]))


def format_report(content: Content) -> Iterator[str]:
    """Yield the lines of all tables: five questions for each data set, then the detectors."""
    for task, texts in content["tasks"].items():
        names = [*texts["in_domain"], *texts["shifted"]]
        yield f"## Models of {TASKS[task]}"
        yield from _format_table("Are the outputs better?", content, task, list(_quality_columns(names)))
        yield from _format_table("Are fewer outputs hallucinated?", content, task, list(_fault_columns(names)))
        yield from _format_table("Does a wrong prefix do less damage?", content, task, list(_prefix_columns(names)))
        yield from _format_exposure(content, task, names)
        yield from _format_searches(content, task, names)
        yield from _format_trainings(content, task)
    yield from _format_detectors(content["detectors"])
    yield from _count_stars(content["comparisons"])


def _quality_columns(texts: Sequence[str]) -> Iterator[Column]:
    for text in texts:
        yield f"BLEU, {TEXTS[text]}", text, MAIN_SEARCH, "bleu", 2
        yield f"chrF, {TEXTS[text]}", text, MAIN_SEARCH, "chrf", 2


def _fault_columns(texts: Sequence[str]) -> Iterator[Column]:
    for text in texts:
        yield f"hallucinated, %, {TEXTS[text]}", text, MAIN_SEARCH, "hallucinated", 2
    for text in texts[1:] if len(texts) > 1 else ():
        yield f"loops, %, {TEXTS[text]}", text, MAIN_SEARCH, "loop", 2
    for text in texts:
        yield f"length, {TEXTS[text]}", text, MAIN_SEARCH, "length", 3


def _prefix_columns(texts: Sequence[str]) -> Iterator[Column]:
    for text in (texts[0], texts[-1]):
        yield f"loss, {TEXTS[text]}", text, "prefix", "nll", 3
        yield f"random Δ(1), {TEXTS[text]}", text, "prefix", "random_1", 3
        yield f"random Δ(2–4), {TEXTS[text]}", text, "prefix", "random_2_to_4", 3
        yield f"wrong Δ(2–4), {TEXTS[text]}", text, "prefix", "wrong_2_to_4", 3


def _format_table(title: str, content: Content, task: str, columns: Sequence[Column]) -> Iterator[str]:
    """Yield a table with one row per treatment: values of the controls, differences of the others."""
    yield from ("", f"### {title}", "")
    yield from _format_rows(["model", *(heading for heading, *_ in columns)], _fill_table(content, task, columns))


def _fill_table(content: Content, task: str, columns: Sequence[Column]) -> Iterator[list[str]]:
    for treatment in _list_treatments(content, task):
        cells = []
        for _, text, part, measure, digits in columns:
            if treatment in ABSOLUTE:
                cells.append(_format_mean(_find_values(content, task, treatment, text, part, measure), digits))
            else:
                cells.append(_format_difference(find_comparison(content, task, treatment, text, part, measure), digits))
        yield [TITLES[treatment], *cells]


def _format_exposure(content: Content, task: str, texts: Sequence[str]) -> Iterator[str]:
    """Yield the measures without a test: means of the seeds, and the half-lives of both."""
    columns = {
        "accuracy after gold prefixes, %": "accuracy_gold",
        "after own prefixes, %": "accuracy_own",
        "half-life, random": "random_half_life",
        "half-life, wrong": "wrong_half_life",
        "gap, position 5": "gap_5",
        "%ExAccErr, sampled": "excess_sampled",
    }
    for text in (texts[0], texts[-1]):
        yield from ("", f"### Measures of exposure, {TEXTS[text]}", "")
        rows = []
        for treatment in _list_treatments(content, task):
            several = [each["texts"][text]["exposure"] for each in _find_models(content, task, treatment, text)]
            rows.append([TITLES[treatment], *(_join([each.get(key) for each in several]) for key in columns.values())])
        yield from _format_rows(["model", *columns], rows)


def _format_searches(content: Content, task: str, texts: Sequence[str]) -> Iterator[str]:
    """Yield greedy search beside the beam: a gain of greedy alone is a more peaked distribution (Choshen 2020)."""
    yield from ("", "### Greedy search and beam", "")
    chosen = (texts[0], texts[-1])
    names = [
        f"{name}, {search}, {TEXTS[text]}"
        for text in chosen
        for name in ("BLEU", "hallucinated, %")
        for search in ("greedy", "beam 5")
    ]
    rows = []
    for treatment in _list_treatments(content, task):
        keys = [
            (text, part, name) for text in chosen for name in ("bleu", "hallucinated") for part in ("greedy", "beam")
        ]
        cells = [_format_mean(_find_values(content, task, treatment, *key), 2) for key in keys]
        rows.append([TITLES[treatment], *cells])
    yield from _format_rows(["model", *names], rows)


def _format_trainings(content: Content, task: str) -> Iterator[str]:
    yield from ("", "### Trainings", "")
    columns = ("steps", "seconds", "valid_loss", "valid_bleu", "valid_chrf", "reward_first", "reward_last")
    columns = (*columns, "entropy_first", "entropy_last")
    rows = []
    for treatment in _list_treatments(content, task):
        models = [each for each in content["models"].values() if (each["task"], each["treatment"]) == (task, treatment)]
        rows.append([TITLES[treatment], *(_join([each.get(name) for each in models]) for name in columns)])
    kept = [0, *(number for number in range(1, len(columns) + 1) if any(row[number] != "–" for row in rows))]
    header = ["model", *(name.replace("_", " ") for name in columns)]
    yield from _format_rows([header[number] for number in kept], [[row[number] for number in kept] for row in rows])


def _format_detectors(found: Sequence[Content]) -> Iterator[str]:
    """Yield what the rules find in right and in faulty outputs: means of the judges."""
    yield from ("", "## Detectors: % of outputs with a flag", "")
    rows = []
    found = sorted((each for each in found if each["lines"]), key=_detector_key)
    for (text, outputs), group in groupby(found, key=_detector_key):
        several = list(group)
        shares = [f"{mean(each[rule] for each in several):.1f}" for rule in RULES]
        rows.append([TEXTS.get(text, text), outputs, str(several[0]["lines"]), *shares])
    yield from _format_rows(["text", "outputs", "lines", *(rule.replace("_", " ") for rule in RULES)], rows)


def _detector_key(each: Content) -> tuple[str, str]:
    return each["text"], each["outputs"]


def _count_stars(comparisons: Sequence[Content]) -> Iterator[str]:
    chosen = [each for each in comparisons if each["treatment"] not in ABSOLUTE and each["control"] != "base"]
    tests = [test for each in chosen for names in each["parts"].values() for test in names.values()]
    stars = sum(each["significant"] for each in tests)
    yield from ("", f"{stars} of {len(tests)} tests of a treatment against its control have a star.")


def find_comparison(content: Content, task: str, treatment: str, text: str, part: str, measure: str) -> Content | None:
    """Return the comparison of a treatment with its control."""
    wanted = {"task": task, "treatment": treatment, "text": text}
    for each in content["comparisons"]:
        if each["control"] != "base" and all(each[name] == value for name, value in wanted.items()):
            found: Content = each["parts"][part][measure]
            return found
    return None


def _find_models(content: Content, task: str, treatment: str, text: str) -> list[Content]:
    models = [each for each in content["models"].values() if (each["task"], each["treatment"]) == (task, treatment)]
    return [each for each in models if text in each["texts"]]


def _find_values(content: Content, task: str, treatment: str, text: str, part: str, measure: str) -> list[float]:
    return [each["texts"][text][part][measure] for each in _find_models(content, task, treatment, text)]


def _list_treatments(content: Content, task: str) -> list[str]:
    present = {each["treatment"] for each in content["models"].values() if each["task"] == task}
    return [name for name in TITLES if name in present]


def _format_mean(values: Sequence[float], digits: int) -> str:
    return f"{mean(values):.{digits}f}" if values else "–"


def _format_difference(found: Content | None, digits: int) -> str:
    """Return the difference with its sign and 95% interval, and a star if it is significant."""
    if found is None:
        return "–"
    star = "*" if found["significant"] else ""
    low, high = (f"{found[name]:.{digits}f}".replace("-", "−") for name in ("low", "high"))
    return f"{found['difference']:+.{digits}f}{star} [{low}, {high}]".replace("-", "−")


def _join(values: Sequence[Any]) -> str:
    """Return one value per seed."""
    known = [each for each in values if each is not None]
    return " / ".join(f"{each:.4g}" if isinstance(each, float) else str(each) for each in known) or "–"


def _format_rows(header: Sequence[str], rows: Iterator[list[str]] | Sequence[list[str]]) -> Iterator[str]:
    yield f"| {' | '.join(header)} |"
    yield f"|{'---|' * len(header)}"
    for row in rows:
        yield f"| {' | '.join(row)} |"


# The picture


def draw_study(content: Content, image_format: str) -> bytes:
    """Return the picture: for each data set the recovery, and the effects on BLEU and on hallucinated outputs."""
    from matplotlib.figure import Figure

    from attendo.explore.curves_figure import PANEL
    from attendo.explore.figure_style import plot_style, save_figure

    tasks = list(content["tasks"])
    with plot_style(["DejaVu Sans"]):
        figure = Figure(layout="constrained", facecolor="white", figsize=(3.2 * PANEL[0], 1.25 * PANEL[1] * len(tasks)))
        panels = figure.subplots(len(tasks), 3, squeeze=False)
        for row, task in zip(panels, tasks, strict=True):
            texts = content["tasks"][task]
            _draw_recovery(row[0], content, task, texts["in_domain"][0])
            names = [*texts["in_domain"], *texts["shifted"]]
            _draw_effects(row[1], content, task, names, "bleu", f"{TASKS[task]} models: BLEU")
            _draw_effects(row[2], content, task, names, "hallucinated", "Hallucinated outputs, %")
        return save_figure(figure, image_format)


def _draw_recovery(panel: "Axes", content: Content, task: str, text: str) -> None:
    """Draw Δ(d) after a random token, a line for each treatment: the mean of the seeds."""
    from attendo.explore.curves_figure import run_style

    panel.set(title=f"{TASKS[task]} models: recovery", xlabel="tokens after a random token", ylabel="Δ, nats")
    for order, treatment in enumerate(_list_treatments(content, task)):
        models = _find_models(content, task, treatment, text)
        curves = [each["texts"][text]["exposure"]["random_deltas"] for each in models]
        if curves:
            values = list(map(_mean_of_known, zip(*curves, strict=True)))
            panel.plot(range(1, len(values) + 1), values, label=TITLES[treatment], **run_style(order))
    panel.set_yscale("symlog", linthresh=0.1)
    panel.legend(fontsize=7)


def _mean_of_known(values: Sequence[float | None]) -> float:
    known = [each for each in values if each is not None]
    return mean(known) if known else float("nan")


def _draw_effects(panel: "Axes", content: Content, task: str, texts: Sequence[str], measure: str, title: str) -> None:
    """Draw differences from the control with their 95% intervals; a full marker has a star in the tables."""
    from attendo.explore.curves_figure import COLOURS
    from attendo.explore.figure_style import FAINT

    treatments = [name for name in _list_treatments(content, task) if name not in ABSOLUTE]
    panel.set(title=title, xlabel="difference from the control, beam 5")
    for number, text in enumerate(texts):
        for row, treatment in enumerate(treatments):
            found = find_comparison(content, task, treatment, text, MAIN_SEARCH, measure)
            if found is None:
                continue
            place, colour = row + 0.22 * (number - (len(texts) - 1) / 2), COLOURS[number]
            panel.plot([found["low"], found["high"]], [place, place], color=colour, linewidth=1.2)
            face = colour if found["significant"] else "white"
            panel.plot(found["difference"], place, "o", markersize=4, color=colour, markerfacecolor=face)
        panel.plot([], [], "o-", markersize=4, color=COLOURS[number], label=TEXTS[text])
    panel.axvline(0, color=FAINT, linewidth=0.7, zorder=1)
    panel.set_yticks(range(len(treatments)), [TITLES[name] for name in treatments])
    panel.set_ylim(len(treatments) - 0.5, -0.5)
    panel.grid(visible=False, axis="y")
    panel.legend(fontsize=7)
