"""`attendo heads`: numbers about every head, ranked, as a table and as a picture."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from attendo.errors import UsageError

if TYPE_CHECKING:
    from attendo.explore.heads import HeadReport, Order
    from attendo.explore.heads_looks import Sentence

BUILTIN = "builtin"
BUILTIN_PAIRS = 1000

# Headings are as wide as a number with three digits behind the point.
_COLUMNS = {
    "entropy": "entropy",
    " rel.": "relative_entropy",
    "distance": "distance",
    "diagonal": "diagonality",
    "special": "special",
    "  max": "largest",
}


def heads(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="Model folder, such as runs/demo/model.")],
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE", help="Source text, one sentence a line; builtin: the built-in task with its gold links."
        ),
    ],
    target: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Its translations; the model's own greedy answers unless given."),
    ] = None,
    gold: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Gold links, such as 0-0 1-2 3?4 (? is possible, not sure).")
    ] = None,
    links: Annotated[
        Literal["words", "tokens"], typer.Option(help="What the gold links count: words between spaces, or tokens.")
    ] = "words",
    sort: Annotated[
        Literal["entropy", "distance", "diagonality", "special", "alignment"],
        typer.Option(help="What the table is ranked and the picture coloured by."),
    ] = "alignment",
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object with everything.")] = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Also a picture: .svg, .png or .pdf.")
    ] = None,
    store: Annotated[
        bool, typer.Option("--store", help="Keep the best alignment head in MODEL, for generate --alignments.")
    ] = False,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
) -> None:
    """Measure what every head looks at: how spread, how far, how near the diagonal, how well aligned.

    Numbers are means over all tokens of the file. Heads and layers are counted from 0.
    """
    form = _form(output)
    sentences = _sentences(file, target, gold, links)
    from attendo.explore.heads import measure_heads
    from attendo.interop.opening import load, model_folder

    report = measure_heads(load(model_folder(model), device), sentences)
    if output is not None:
        from attendo.explore.heads_figure import draw_heads

        picture = draw_heads(report, sort, form)
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_bytes(picture)
    if as_json:
        print(json.dumps(report.as_json(sort), ensure_ascii=False))
    else:
        _show(report, sort)
    if output is not None:
        print(f"picture of {report.number(sort).replace('_', ' ')} written to {output}", file=sys.stderr)
    _keep(model, report, store)


def _form(output: Path | None) -> str:
    """Before any work: whether the picture can be drawn."""
    if output is None:
        return ""
    from attendo.explore.heatmap_style import FORMATS, require_matplotlib

    form = output.suffix.removeprefix(".").lower()
    if form not in FORMATS:
        raise UsageError(f"{output}: a picture is a .svg, .png or .pdf file, by the end of its name")
    require_matplotlib("attendo heads --output")
    return form


def _sentences(
    file: str, target: Path | None, gold: Path | None, links: Literal["words", "tokens"]
) -> "list[Sentence]":
    from attendo.explore.heads_reading import read_sentences

    if file != BUILTIN or Path(file).exists():
        return read_sentences(Path(file), target, gold, links)
    if target is not None or gold is not None:
        raise UsageError(f"{BUILTIN} has targets and gold links of its own: leave out --target and --gold")
    from attendo.explore.heads_gold import Gold
    from attendo.explore.heads_looks import Sentence
    from attendo.recipes.builtin import BuiltinTask

    found = []
    for pair in BuiltinTask().heldout(BUILTIN_PAIRS):
        links_of_pair = Gold(frozenset(pair.alignment), frozenset(), pair.source_words, pair.target_words)
        found.append(Sentence(pair.source, pair.target, links_of_pair, f"{pair.source!r} of the built-in task"))
    return found


def _show(report: "HeadReport", order: "Order") -> None:
    for line in _table(report, order):
        print(line)
    best, name = report.best, report.alignment.replace("_", " ")
    against = f"{report.gold_links:,} gold links" if report.gold_links else "the mean of all heads"
    tokens = f"{report.source_tokens:,} source and {report.target_tokens:,} target tokens"
    print(f"\n{report.sentences:,} sentences, {tokens}, </s> included")
    value = getattr(best, report.alignment)
    print(f"best alignment head: {best.site}, head {best.head} ({name} {value:.3f} against {against})")
    if report.last_layer_error_rate is not None:
        print(f"mean of the last layer, used where no head is stored: error rate {report.last_layer_error_rate:.3f}")


def _table(report: "HeadReport", order: "Order") -> list[str]:
    """In 80 columns, with a mark at the best alignment head."""
    shown = {**_COLUMNS, **({"  AER": "error_rate"} if report.gold_links else {}), "agree": "agreement"}
    ranked = report.ranked(order)
    widest = max(len(each.site) for each in ranked)
    rows = [f"{'place':{widest}} head  {' '.join(shown)}"]
    for each in ranked:
        cells = [
            " " * len(name) if value is None else f"{value:{len(name)}.3f}"
            for name, value in ((name, getattr(each, field)) for name, field in shown.items())
        ]
        mark = "*" if each is report.best else " "
        rows.append(f"{each.site:{widest}} {each.head:4}{mark} {' '.join(cells)}".rstrip())
    return rows


def _keep(model: Path, report: "HeadReport", store: bool) -> None:
    if not store:
        print("not kept in the model folder: --store does, for attendo generate --alignments", file=sys.stderr)
        return
    from attendo.explore.heads_stored import store_alignment_head

    entry = store_alignment_head(model, report)
    best, mean = report.best.error_rate, report.last_layer_error_rate
    if best is None or mean is None:
        print(
            "warning: chosen by agreement, which does not tell whether it aligns better than the mean of the last "
            "layer did: give --gold to know",
            file=sys.stderr,
        )
    elif best >= mean:
        print(
            f"warning: it aligns no better than the mean of the last layer did (error rate {best:.3f}, {mean:.3f})",
            file=sys.stderr,
        )
    print(f"{model}: alignment head is layer {entry['layer']}, head {entry['head']} (scores.json)", file=sys.stderr)
