"""Memory of each of several processes, estimated without allocating a network."""

import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny import Command

from attendo.doctor.memory import TrainingBatchShape, estimate_memory
from attendo.doctor.process_memory import ProcessMemory
from attendo.model.config import ModelConfig
from attendo.model.factory import make_network
from attendo.train.config import TrainConfig
from attendo.train.update import Updater

SHAPE = TrainingBatchShape(32, 24, 24)
CONFIG = ModelConfig.preset("tiny", vocab_size=500)


def estimate(processes: int = 1, **train: Any) -> ProcessMemory:
    return ProcessMemory(CONFIG, TrainConfig(precision="fp32", **train), SHAPE, processes)


@pytest.mark.parametrize("settings", [{}, {"activation_checkpointing": True}], ids=["plain", "checkpointed"])
def test_fake_tensors_give_the_estimate_of_real_ones(settings: dict[str, Any]) -> None:
    network = make_network(CONFIG, torch.Generator().manual_seed(0))
    real = estimate_memory(Updater(network, TrainConfig(precision="fp32", **settings)), SHAPE)
    fake = estimate(**settings)
    assert (fake.weights, fake.activations, fake.peak_gradients) == (
        real.weights,
        real.activations,
        real.peak_gradients,
    )


def test_checkpointing_keeps_the_inputs_of_blocks() -> None:
    plain, checkpointed = estimate(), estimate(activation_checkpointing=True)
    inputs = 4 * SHAPE.rows * SHAPE.source * CONFIG.d_model * (CONFIG.num_encoder_layers + CONFIG.num_decoder_layers)
    logits = 4 * SHAPE.rows * SHAPE.target * 500
    assert inputs < checkpointed.activations < plain.activations
    assert checkpointed.activations - logits < 0.75 * (plain.activations - logits)
    assert checkpointed.weights == plain.weights


def test_processes_share_rows_and_sharded_weights() -> None:
    weights = 4 * sum(each.numel() for each in make_network(CONFIG).parameters())
    alone, replicated, sharded = estimate(), estimate(8), estimate(8, sharding="full")
    assert alone.weights == 4 * weights
    assert replicated.weights == 5 * weights, "DDP has a copy of the gradients"
    assert replicated.activations == sharded.activations
    assert replicated.activations == pytest.approx(alone.activations / 8, rel=0.05)
    offloaded = estimate(8, sharding="full", cpu_offload=True)
    assert offloaded.host == 4 * weights // 8
    assert sharded.weights == offloaded.weights + offloaded.host
    assert estimate(1, sharding="full", cpu_offload=True).host == 4 * weights


def test_a_large_network_needs_no_memory() -> None:
    large = CONFIG.replace(d_model=8192, d_ff=32768, num_heads=64)
    tracemalloc.start()
    found = ProcessMemory(large, TrainConfig(precision="bf16"), TrainingBatchShape(2, 8, 8), 1)
    assert found.parameters > 2e9
    assert tracemalloc.get_traced_memory()[1] < 1e8
    tracemalloc.stop()


def test_the_command_reports_each_process(attendo: Command, tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text('preset = "tiny"\n[data]\ntask = "builtin"\npairs = 500\n[train]\nsteps = 2\n')
    done = attendo("doctor", tmp_path / "run.toml", "--processes", "16", "--json", "--set", "train.sharding=full")
    assert done.code == 0, done.errors
    (finding,) = map(json.loads, done.output.splitlines())
    assert finding["check"] == "memory"
    assert "16 processes" in finding["found"]
