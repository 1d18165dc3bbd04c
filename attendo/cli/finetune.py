"""The `attendo finetune` command: trains a model further on other text and reports old and new scores."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from attendo.cli.options import Changes, Device, Overwrite, Source, Target, Threads
from attendo.errors import UsageError

if TYPE_CHECKING:
    from attendo.model.config import ModelConfig

MAX_WINDOW = 256  # tokens per example of running text with learned positions
# A trained model needs a small learning rate and few steps.
FINETUNE_DEFAULTS = ("train.peak_lr=2e-4", "train.schedule=linear")


def finetune(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="Model folder to start from.")],
    out: Annotated[Path, typer.Option(help="Run folder; the model is written to its model/ folder.")],
    source: Source = None,
    target: Target = None,
    text: Annotated[
        list[Path] | None, typer.Option(help="Running text for a decoder-only model, instead of source and target.")
    ] = None,
    change: Changes = None,
    freeze: Annotated[
        list[str] | None,
        typer.Option(metavar="PART", help="Do not train this part: embeddings, encoder, decoder or output."),
    ] = None,
    overwrite: Overwrite = False,
    device: Device = "auto",
    threads: Threads = None,
) -> None:
    """Train a model further on your own text, with its tokenizer and network.

    An encoder-decoder model needs sentence pairs, a decoder-only model running text. Every validation reports scores
    on the new validation text and on the old model's validation text.
    """
    from attendo.cli.progress import report_end, train_with_progress
    from attendo.cli.train import check_ahead, make_config
    from attendo.interop.load import load_stored_model
    from attendo.runs.config import apply_changes, toml_literal
    from attendo.runs.run import Run
    from attendo.runs.run_folder import check_free
    from attendo.runs.weights import check_start_network
    from attendo.text_model import pick_device
    from attendo.train.distributed import init_distributed

    check_ahead(device)
    check_free(out, overwrite)
    # Load before creating a run folder: a damaged, missing or unsuitable model raises here.
    network = load_stored_model(model).network.config
    fixed = _fit_to_network(model, network, (source, target), text)
    frozen = [f"train.freeze={toml_literal(freeze)}"] if freeze else []
    # Minimum risk training has its own defaults (runs/auto_config.py).
    given = apply_changes({}, change or [])
    defaults = () if given.get("train", {}).get("objective") == "mrt" else FINETUNE_DEFAULTS
    changes = [*defaults, *fixed, *frozen, f"start_from={toml_literal(str(model))}", *(change or [])]
    config = make_config(None, {"source": source, "target": target, "text": text}, changes)
    check_start_network(config, network)
    with init_distributed(pick_device(device)) as (world, own_device):
        outcome = train_with_progress(Run.begin(config, out, own_device, overwrite, world))
    report_end(outcome)


def _fit_to_network(
    model: Path, network: "ModelConfig", pairs: tuple[list[Path] | None, ...], text: list[Path] | None
) -> list[str]:
    """Check that the text suits the model, and return the settings that its network requires."""
    if network.continues_text and (not text or any(pairs)):
        raise UsageError("running_text_required", model=model)
    if not network.continues_text and (text or not all(pairs)):
        raise UsageError("sentence_pairs_required", model=model)
    learned = network.continues_text and network.positions == "learned"
    return [f"data.window={min(network.max_length, MAX_WINDOW)}"] if learned else []
