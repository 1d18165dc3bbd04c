"""The `attendo heads` command: statistics of every attention head as a ranked table and a picture."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from attendo.cli.language import current_language
from attendo.cli.options import Device, ModelFolder
from attendo.cli.output import check_picture_format, print_stderr, write_picture
from attendo.errors import UsageError
from attendo.explore.i18n import read_strings, report_string
from attendo.messages import Language

if TYPE_CHECKING:
    from attendo.explore.head_stats import HeadOrder, HeadReport, Sentence

BUILTIN = "builtin"
BUILTIN_PAIRS = 1000
_WIDTHS = {"distance": 6}  # columns for two digits before the decimal point; other values have one


def heads(
    model: ModelFolder,
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE", help="Source text, one sentence per line; builtin: the built-in task with its gold links."
        ),
    ],
    target: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Target text; default: the model's own greedy output."),
    ] = None,
    gold: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Gold links, such as 0-0 1-2 3?4 (? is possible, not sure)."),
    ] = None,
    links: Annotated[
        Literal["words", "tokens"], typer.Option(help="Units of the gold links: words between spaces, or tokens.")
    ] = "words",
    sort: Annotated[
        Literal["entropy", "distance", "diagonality", "special", "alignment"],
        typer.Option(help="Statistic that ranks the table and colours the picture."),
    ] = "alignment",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object with all results.")] = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Also write a picture: .svg, .png or .pdf.")
    ] = None,
    store: Annotated[
        bool, typer.Option("--store", help="Store the best alignment head in MODEL, for generate --alignments.")
    ] = False,
    device: Device = "auto",
) -> None:
    """Measure every attention head: entropy, distance, diagonality, alignment.

    Numbers are means over all tokens of the file. Heads and layers are counted from 0.
    """

    lang = current_language()
    file_format = "" if output is None else check_picture_format(output, "attendo heads --output")
    sentences = _load_sentences(file, target, gold, links)
    from attendo.explore.head_stats import measure_heads
    from attendo.interop.load import load_torch_model, require_model_folder

    if store:
        require_model_folder(model)  # a foreign model has no place for the head
    report = measure_heads(load_torch_model(model, device), sentences)
    warning = "" if output is None else _draw(report, sort, output, file_format, lang)
    if as_json:
        print(json.dumps(report.as_json(sort), ensure_ascii=False))
    else:
        _show(report, sort, lang)
    if warning:
        print_stderr(report_string("warning", lang, warning))
    if output is not None:
        field = report.sort_field(sort)
        name = field.replace("_", " ") if lang == "en" else report_string(f"scale_{field}", lang)
        print_stderr(report_string("picture", lang, name, output))
    _store_head(model, report, store, lang)


def _draw(report: "HeadReport", order: "HeadOrder", output: Path, file_format: str, language: Language) -> str:
    """Write the picture and return a warning, which may be empty."""
    from attendo.explore.head_report import draw_heads

    picture, warning = draw_heads(report, order, file_format, language)
    write_picture(output, picture)
    return warning


def _load_sentences(
    file: str, target: Path | None, gold: Path | None, links: Literal["words", "tokens"]
) -> "list[Sentence]":
    from attendo.explore.head_report import read_sentences

    if file != BUILTIN or Path(file).exists():
        return read_sentences(Path(file), target, gold, links)
    if target is not None or gold is not None:
        raise UsageError("builtin_with_target_or_gold", task=BUILTIN)
    from attendo.demo_task import BuiltinTask
    from attendo.runs.demo import gold_sentences

    return gold_sentences(BuiltinTask().heldout(BUILTIN_PAIRS))


def _show(report: "HeadReport", order: "HeadOrder", language: Language) -> None:
    for line in _format_table(report, order, language):
        print(line)
    best, name = report.best, report_string(report.alignment_metric, language)
    against = (
        report_string("gold", language, report.gold_links)
        if report.gold_links
        else report_string("all_heads", language)
    )
    print()
    print(report_string("counted", language, report.sentences, report.source_tokens, report.target_tokens))
    print(report_string("best", language, best.site, best.head, name, getattr(best, report.alignment_metric), against))
    if report.last_layer_error_rate is not None:
        print(report_string("last_layer", language, report.last_layer_error_rate))


def _format_table(report: "HeadReport", order: "HeadOrder", language: Language) -> list[str]:
    """Format the table in 80 columns, with a mark at the best alignment head."""
    from rich.cells import cell_len

    shown = {
        field: heading[language]
        for field, heading in read_strings()["columns"].items()
        if report.gold_links or field != "error_rate"
    }
    widths = {field: max(_WIDTHS.get(field, 5), cell_len(name)) for field, name in shown.items()}
    ranked = report.rank(order)
    widest = max(len(each.site) for each in ranked)
    site, head = _pad(report_string("place", language), -widest), _pad(report_string("head", language), 4)
    rows = [f"{site} {head}  {' '.join(_pad(name, widths[field]) for field, name in shown.items())}"]
    for each in ranked:
        values = ((getattr(each, field), width) for field, width in widths.items())
        cells = [" " * width if value is None else f"{value:{width}.3f}" for value, width in values]
        mark = "*" if each is report.best else " "
        rows.append(f"{each.site:{widest}} {each.head:4}{mark} {' '.join(cells)}".rstrip())
    return rows


def _pad(text: str, width: int) -> str:
    """Align a text right, or left if the width is negative. A Chinese character is two cells wide."""
    from rich.cells import cell_len

    room = " " * (abs(width) - cell_len(text))
    return text + room if width < 0 else room + text


def _store_head(model: Path, report: "HeadReport", store: bool, language: Language) -> None:
    if not store:
        print_stderr(report_string("not_kept", language))
        return
    from attendo.explore.alignment_head import store_alignment_head

    entry = store_alignment_head(model, report)
    best, mean = report.best.error_rate, report.last_layer_error_rate
    if best is None or mean is None:
        print_stderr(report_string("by_agreement", language))
    elif best >= mean:
        print_stderr(report_string("no_better", language, best, mean))
    print_stderr(report_string("kept", language, model, entry["layer"], entry["head"]))
