"""The `attendo trace` command: every formula of one forward pass, with the model's numbers."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from attendo.cli.decoding_options import add_decoding_options, take_decoding_options
from attendo.cli.language import current_language
from attendo.cli.options import Device, ModelFolder, Threads
from attendo.cli.output import print_stderr
from attendo.errors import UsageError
from attendo.explore.i18n import trace_string

if TYPE_CHECKING:
    from attendo.explore.trace_terminal import TraceView
    from attendo.text_model import ParallelTrace, TextModel, Trace

MAX_NUMBERS = 20_000_000  # maximum numbers written, about 200 MB of JSON


@add_decoding_options("passes", "length_candidates", "graph_search", "path_length_penalty", "merge_repeats")
def trace(
    model: ModelFolder,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="Source sentence, or a text to continue.")],
    target: Annotated[str | None, typer.Option(help="Target text; default: the model's own greedy output.")] = None,
    beside: Annotated[
        Path | None,
        typer.Option(
            metavar="MODEL",
            help="Kinds masked, ctc and graph: also show the steps of this autoregressive model for the same text.",
        ),
    ] = None,
    layer: Annotated[int | None, typer.Option(help="Show all numbers of this layer, counted from 0.")] = None,
    head: Annotated[int | None, typer.Option(help="Show scores and weights of this head, counted from 0.")] = None,
    step: Annotated[int | None, typer.Option(help="Show the prediction of this target token, from 0.")] = None,
    no_mask: Annotated[bool, typer.Option("--no-mask", help="Disable the decoder's causal mask.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print all tensors and formulas as JSON.")] = False,
    html: Annotated[Path | None, typer.Option(help="Write one self-contained HTML page.")] = None,
    device: Device = "auto",
    threads: Threads = None,
    **given: Any,
) -> None:
    """Show one forward pass from tokens to text: each formula, its shapes, its numbers.

    Prints a summary unless --layer, --head or --step selects a part. A model of kind masked, ctc or graph predicts all
    tokens at once: its passes, its alignment or its graph is shown.
    """
    view_options = {"--layer": layer, "--head": head, "--step": step, "--no-mask": no_mask or None}
    lang = current_language()
    if not text.strip():
        raise UsageError("trace_text_empty")
    full_output = "--json" if as_json else "--html" if html is not None else None
    if full_output and (head is not None or step is not None):
        raise UsageError("view_options_with_full_output", option=full_output)
    from attendo.explore.head_stats import check_text_length
    from attendo.explore.trace_terminal import TraceView
    from attendo.runs.load import load

    text_model = load(model, device)
    check_text_length(text_model, text)
    options = take_decoding_options(given)
    if text_model.kind != "autoregressive":
        _reject_view_options(text_model.kind, view_options)
        other = None if beside is None else _trace_beside(beside, text, device, whole=html is not None)
        predicted = text_model.trace_parallel(text, target, **options)
        if html is not None:
            _write_page(html, predicted, lang, model, text, other)
        if as_json or html is None:
            _output_parallel(predicted, other, lang, as_json)
        return
    _reject_parallel_options(text_model, beside, options)
    found = text_model.trace(text, target, masked=not no_mask, layer=layer)
    (view := TraceView(lang, layer, head, step)).check(found)
    if full_output:
        _check_size(found, full_output, layer)
    if html is not None:
        _write_page(html, found, lang, model, text)
    if as_json:
        _print_json(found)
    elif html is None:
        _show(found, view)


def _write_page(
    path: Path,
    found: "Trace | ParallelTrace",
    lang: Literal["en", "zh"],
    model: Path,
    text: str,
    beside: "tuple[str, Trace] | None" = None,
) -> None:
    """Write the page of the whole network. It names the run folder of a model, or its own folder."""
    from attendo.explore.saved_page import render_saved_page

    folder = model.resolve()
    name = folder.parent.name if folder.name == "model" else folder.name
    path.write_text(render_saved_page(found, lang, name, text, beside=beside), "utf-8")
    print_stderr(trace_string("written", lang, path))


def _reject_view_options(kind: str, view_options: dict[str, Any]) -> None:
    for option, value in view_options.items():
        if value is not None:
            raise UsageError("view_option_needs_autoregressive", option=option, kind=kind)


def _reject_parallel_options(model: "TextModel", beside: Path | None, options: dict[str, Any]) -> None:
    if beside is not None:
        raise UsageError("beside_needs_parallel_model", model=beside)
    model.settings(**options)  # rejects options of other kinds


def _trace_beside(folder: Path, text: str, device: str, whole: bool) -> tuple[str, "Trace"]:
    """Return the name and the trace of an autoregressive model. Only a page shows all of its layers."""
    from attendo.runs.load import load

    other = load(folder, device)
    if other.kind != "autoregressive" or other.continues_text:
        kind = "decoder-only" if other.continues_text else other.kind
        raise UsageError("beside_not_autoregressive", model=folder, kind=kind)
    return str(folder), other.trace(text, layer=None if whole else 0)


def _output_parallel(
    found: "ParallelTrace", beside: tuple[str, "Trace"] | None, lang: Literal["en", "zh"], as_json: bool
) -> None:
    if as_json:
        content = found.as_json()
        if beside is not None:
            content["beside"] = {"model": beside[0], **_list_steps(beside[1])}
        print(json.dumps(content, ensure_ascii=False, allow_nan=False))
        return
    from rich.console import Console

    from attendo.explore.parallel_terminal import render_parallel_trace

    console = Console(highlight=False)
    for paragraph in render_parallel_trace(found, console.width, lang, beside):
        console.print(paragraph)


def _list_steps(found: "Trace") -> dict[str, Any]:
    names = ("text", "log_probability", "predicted", "steps")
    content = found.as_json()
    return {name: content[name] for name in names}


def _check_size(found: "Trace", option: str, layer: int | None) -> None:
    numbers = sum(each.numel() for each in found.values())
    if numbers > MAX_NUMBERS:
        way_out = "shorten the text" if layer is not None else "choose one with --layer, or shorten the text"
        raise UsageError("trace_output_too_large", option=option, count=numbers, limit=MAX_NUMBERS, remedy=way_out)


def _show(found: "Trace", view: "TraceView") -> None:
    from rich.console import Console

    from attendo.explore.trace_terminal import render_trace

    console = Console(highlight=False)
    for paragraph in render_trace(found, view, console.width):
        console.print(paragraph)


def _print_json(found: "Trace") -> None:
    from attendo.explore.formulas.catalogue import bind_formula, catalogue_json

    content: dict[str, Any] = found.as_json()
    for each in content["tensors"]:
        each["bound"] = bind_formula(found.entries[each["name"]])
    print(json.dumps({**content, "formulas": catalogue_json()}, ensure_ascii=False, allow_nan=False))
