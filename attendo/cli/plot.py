"""The `attendo plot` and `attendo plot-attention` commands: pictures of learning curves and attention maps."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from attendo.cli.language import current_language, say
from attendo.cli.options import Device, ModelFolder
from attendo.cli.output import check_picture_format, print_stderr, write_picture
from attendo.errors import UsageError
from attendo.explore.i18n import localise


def plot(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN", help="Run folders, or their metrics.jsonl.")],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="A .png, .svg or .pdf file; default: curves.png."),
    ] = None,
    metric: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Only this metric: loss, valid_loss, lr, bleu ...; repeatable."),
    ] = None,
    x: Annotated[Literal["step", "seconds", "tokens"], typer.Option(help="Unit of the horizontal axis.")] = "step",
) -> None:
    """Draw learning curves: training and validation loss, learning rate, scores.

    Prints the path of the picture: curves.png in the run folder, or in the current folder for several runs.
    """
    from attendo.explore.curves import metrics_path, read_histories

    path = output or (metrics_path(runs[0]).parent if len(runs) == 1 else Path()) / "curves.png"
    file_format = check_picture_format(path, "attendo plot")
    from attendo.explore.curves_figure import draw_curves

    histories = read_histories(runs)
    write_picture(path, draw_curves(histories, metric or [], x, file_format))
    name = say("{num_histories} runs", num_histories=len(histories)) if len(histories) > 1 else histories[0].name
    print_stderr(say("learning curves of {name} written to {path}", name=name, path=path))
    print(path)


def plot_attention(
    model: ModelFolder,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="Source text, or the text to continue.")],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="A .svg, .png or .pdf file.")] = Path(
        "attention.svg"
    ),
    target: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Target text; default: the model's own greedy output.")
    ] = None,
    site: Annotated[
        Literal["cross", "encoder", "decoder"] | None,
        typer.Option(
            help="Cross-attention (the default), or self-attention of the encoder or decoder.", show_default=False
        ),
    ] = None,
    layer: Annotated[int | None, typer.Option(metavar="N", min=0, help="Layer, from 0; default: the last.")] = None,
    head: Annotated[
        str | None,
        typer.Option(metavar="N,N|mean", help="One or several heads, from 0, or their mean; default: mean."),
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="All heads, of all layers or of --layer.")] = False,
    device: Device = "auto",
) -> None:
    """Draw attention weights with tokens on both axes; rows are the predicted tokens.

    For cross-attention, the stored alignment head is the default, if there is one and --layer and --head are not given.
    A decoder-only model has no cross-attention, so its decoder self-attention is drawn.
    Prints the path of the picture.
    """

    lang = current_language()
    file_format = check_picture_format(output, "attendo plot-attention")
    if every and head is not None:
        raise UsageError("all_heads_with_head", heads=head)
    if not text.strip():
        raise UsageError("attention_text_empty")
    from attendo.explore.figure_style import choose_language_and_fonts
    from attendo.explore.head_stats import check_text_length
    from attendo.explore.heatmap_figure import draw_maps
    from attendo.explore.heatmaps import MapSelection, picture_strings
    from attendo.runs.load import load

    text_model = load(model, device)
    check_text_length(text_model, text)
    chosen = MapSelection.from_options(text_model, site, layer, head, every)
    own, _, english = choose_language_and_fonts(picture_strings(lang), lang, file_format)
    maps, axis = chosen.compute_maps(text_model, text, target, own)
    picture, lacking = draw_maps(maps, axis, chosen.columns, file_format, lang)
    write_picture(output, picture)
    for warning in filter(None, (english, lacking)):
        print_stderr(localise("maps", "warning", lang, warning))
    print_stderr(localise("maps", "written", lang, chosen.describe(lang), output))
    print(output)
