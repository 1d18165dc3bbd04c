"""The `attendo describe` command: tensor shapes and parameter counts of a model folder or a preset."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from attendo.cli.language import say, translate

if TYPE_CHECKING:
    from rich.table import Table

    from attendo.explore.describe import Description, NetworkOperation, Shape
    from attendo.model.config import ModelConfig


_SOURCE_LENGTH = 7


def describe(
    model: Annotated[
        str,
        typer.Argument(metavar="MODEL", help="Model folder or checkpoint, or a preset: tiny, small, base, big, paper."),
    ],
    vocab_size: Annotated[int | None, typer.Option(min=1, help="Vocabulary size of a preset; default: 30,000.")] = None,
    source_length: Annotated[
        int | None, typer.Option(min=1, help="Source tokens to show shapes for; default: 7.")
    ] = None,
    target_length: Annotated[int, typer.Option(min=1, help="Target tokens to show shapes for.")] = 5,
    change: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a preset's setting.")
    ] = None,
) -> None:
    """Show every operation of a network with its shapes and parameters."""
    config, about = _load_config(model, vocab_size, change or [])
    if config.continues_text and source_length is not None:
        from attendo.errors import UsageError

        raise UsageError("source_length_without_encoder")

    from rich.console import Console

    from attendo.explore.describe import describe as describe_network

    source_length = source_length or _SOURCE_LENGTH
    description = describe_network(config, source_length, target_length)
    positions = say("target tokens" if config.kind in ("autoregressive", "masked") else "decoder positions")
    tokens = say(
        "{source_length} source tokens and {target_length} {positions}",
        source_length=source_length,
        target_length=description.target_length,
        positions=positions,
    )
    if config.continues_text:
        tokens = say("{target_length} tokens", target_length=target_length)
    shape = say(
        "d_model {d_model}, {num_heads} heads, {norm}-norm, tie {tie}",
        d_model=config.d_model,
        num_heads=config.num_heads,
        norm=config.norm,
        tie=config.tie,
    )
    print(
        say("{model}: {parameters:,} parameters", model=model, parameters=description.parameters),
        say("shapes for {tokens}; {shape}", tokens=tokens, shape=shape),
        sep="\n",
    )
    if measured := about.get("trained_on"):
        print(_describe_training_data(measured))
    Console().print(_build_table(description))


def _describe_training_data(stats: dict[str, Any]) -> str:
    lengths = stats.get("tokens") or {}
    percentiles = say(", ").join(
        say("{percent}% up to {length}", percent=percent, length=length) for percent, length in lengths.items()
    )
    tokens = say("; tokens: {percentiles}", percentiles=percentiles) if percentiles else ""
    return say(
        "trained on sources of which {share:.1%} have several sentences{tokens}",
        share=stats["several_sentences"],
        tokens=tokens,
    )


def _load_config(model: str, vocab_size: int | None, changes: list[str]) -> "tuple[ModelConfig, dict[str, Any]]":
    """Return the network config and the folder's description of the model."""
    from attendo.errors import UsageError
    from attendo.model.config import PRESETS, ModelConfig

    if model in PRESETS and not Path(model).is_dir():
        from attendo.runs.config import apply_changes

        return ModelConfig.preset(model, **apply_changes({"vocab_size": vocab_size or 30_000}, changes)), {}
    if changes or vocab_size:
        raise UsageError("preset_options_with_model")
    from attendo.interop.load import load_stored_model
    from attendo.runs.load import is_checkpoint, load_checkpoint

    if not Path(model).exists() and "/" not in model:
        raise UsageError("model_or_preset_not_found", model=model, presets=", ".join(PRESETS))
    stored = (
        load_checkpoint(Path(model), "cpu").stored_model if is_checkpoint(Path(model)) else load_stored_model(model)
    )
    return stored.network.config, stored.about


def _build_table(description: "Description") -> "Table":
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, show_footer=True)
    table.add_column(say("operation"), footer=say("all parameters"))
    table.add_column(say("in"))
    table.add_column(say("out"))
    table.add_column(say("parameters"), justify="right", footer=f"{description.parameters:,}")
    for part in description.parts:
        times = say(", {times} times", times=part.times) if part.times > 1 else ""
        total = f"{part.times} × {part.parameters:,}" if part.times > 1 else f"{part.parameters:,}"
        table.add_row(f"{translate(part.name)}{times}", "", "", total, style="bold")
        for row in part.rows:
            table.add_row(*_format_cells(row))
        table.add_section()
    return table


def _format_cells(row: "NetworkOperation") -> tuple[str, str, str, str]:
    own = f"{row.parameters:,}" if row.parameters else ("" if row.shared_with else "–")
    shared = say("shared with {shared_with}", shared_with=translate(row.shared_with)) if row.shared_with else ""
    return (
        f"  {translate(row.operation)}",
        _format_shape(row.input),
        _format_shape(row.output),
        " + ".join(filter(None, (own, shared))),
    )


def _format_shape(shape: "Shape") -> str:
    return "(" + ", ".join(map(str, shape)) + ("," if len(shape) == 1 else "") + ")" if shape else ""
