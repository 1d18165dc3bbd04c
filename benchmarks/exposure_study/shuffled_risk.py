"""The control of minimum risk training: the same training with shuffled risks."""

import sys
from collections.abc import Sequence
from pathlib import Path

import torch
import typer

from attendo.cli.progress import report_end, train_with_progress
from attendo.cli.signals import catch_signals
from attendo.cli.train import make_config
from attendo.runs.run import Run
from attendo.runs.run_folder import is_run_begun
from attendo.text import Tokenizer
from attendo.text_model import pick_device
from attendo.train.config import TrainConfig
from attendo.train.minimum_risk import RiskFunction, make_text_risk


def make_shuffled_risk(config: TrainConfig, tokenizer: Tokenizer) -> RiskFunction | None:
    """Return a risk function whose values are shuffled among the candidates, the reference included.

    The permutation is drawn from torch's random numbers, whose state is in the checkpoint. It is another one if the
    same candidates come again, so the weights cannot learn it.
    """
    compute = make_text_risk(config, tokenizer)
    if compute is None:
        return None
    assert config.mrt_reference, "the reference must be a candidate, because its risk is shuffled too"

    def shuffle(candidates: Sequence[tuple[int, ...]], reference: tuple[int, ...]) -> list[float]:
        risks = compute(candidates, reference)
        return [risks[number] for number in torch.randperm(len(risks)).tolist()]

    return shuffle


def train_shuffled(file: Path, folder: Path, device: str) -> None:
    """Train as `attendo train` does, with shuffled risks. Their `reward` in metrics.jsonl has no meaning."""
    catch_signals()
    own = pick_device(device)
    run = Run.resume(folder, own) if is_run_begun(folder) else Run.begin(make_config(file, {}, ()), folder, own)
    run.make_risk = make_shuffled_risk
    try:
        report_end(train_with_progress(run))
    except typer.Exit as end:
        sys.exit(end.exit_code)
