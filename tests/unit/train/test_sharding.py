"""FSDP in one process equals training without it. Several processes: tests/reliability/test_sharded.py."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from learning import BATCH, OTHER, config, make_updater

from attendo.data.batch import Batch, RaggedArray, collate_windows
from attendo.model.transformer import Transformer
from attendo.train.checkpoint import Snapshot, TrainState, eval_weights, take_snapshot
from attendo.train.config import PLACEMENT_SETTINGS, TrainConfig
from attendo.train.distributed import Distributed
from attendo.train.sharding import FSDPWeights
from attendo.train.update import Updater


@pytest.fixture
def fsdp(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Updaters use FSDP."""

    def place_weights(network: Transformer, config: TrainConfig, world: Distributed) -> FSDPWeights:
        return FSDPWeights(network, world, config.cpu_offload)

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    monkeypatch.setattr("attendo.train.update.place_weights", place_weights)
    yield
    dist.destroy_process_group()


WINDOWS = [collate_windows(RaggedArray.from_lists([[5, 6, 7, 8], [9, 10, 11, 12]]), first_is_given=False)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sizes", "changes", "batches"),
    [
        ({"tie": "all", "positions": "rotary"}, {"ema": 0.9, "r_drop": 1.0}, [BATCH, OTHER]),
        ({"tie": "output", "positions": "learned"}, {"clip_norm": 0.1}, [BATCH]),
        ({"tie": "none", "norm": "post", "num_decoder_layers": 2}, {"optimizer": "adam"}, [OTHER]),
        ({"num_encoder_layers": 0}, {"precision": "bf16"}, WINDOWS),
        ({"tie": "all"}, {"scheduled_sampling": "confidence", "sampling_start": 0.0}, [BATCH, OTHER]),
        ({"tie": "all"}, {"scheduled_sampling": "schedule", "sampling_start": 0.0, "ema": 0.9}, [BATCH]),
        ({"tie": "all", "dropout": 0.1}, {"activation_checkpointing": True, "ema": 0.9}, [BATCH, OTHER]),
        ({"norm": "post"}, {"cpu_offload": True, "sharding": "full", "ema": 0.9}, [BATCH, OTHER]),
        ({"tie": "all"}, {"cpu_offload": True, "sharding": "full", "activation_checkpointing": True}, [BATCH]),
        ({"tie": "inputs", "positions": "relative", "linear_bias": False}, {"ema": 0.9}, [BATCH, OTHER]),
    ],
    ids=[
        "rotary",
        "learned positions",
        "post-norm",
        "decoder-only",
        "confidence",
        "schedule",
        "checkpointed",
        "offload",
        "both",
        "relative",
    ],
)
def test_every_kind_of_network_trains_with_fsdp(
    request: pytest.FixtureRequest, sizes: dict[str, Any], changes: dict[str, Any], batches: list[Batch]
) -> None:
    sizes = {"dropout": 0.1, **sizes}
    plain = {name: value for name, value in changes.items() if name not in PLACEMENT_SETTINGS}
    replicated = train_snapshot(make_updater(config(**plain), **sizes), batches)
    request.getfixturevalue("fsdp")
    sharded = train_snapshot(make_updater(config(**changes), **sizes), batches)
    for part in ("model", "optimizer"):
        expected, found = getattr(replicated, part), getattr(sharded, part)
        assert expected.keys() == found.keys()
        assert all(torch.equal(found[name], expected[name]) for name in expected)


@pytest.mark.usefixtures("fsdp")
def test_full_weights_are_allocated_only_for_evaluation() -> None:
    updater = make_updater(config(ema=0.5))
    average = eval_weights(train_snapshot(updater, [BATCH]))
    sizes = {name: weight.nbytes for name, weight in updater.network.named_parameters()}
    assert storage_bytes(updater) == dict.fromkeys(sizes, 0)
    with updater.eval_weights():
        assert storage_bytes(updater) == sizes
        assert all(torch.equal(weight, average[name]) for name, weight in updater.network.named_parameters())
    assert storage_bytes(updater) == dict.fromkeys(sizes, 0)
    updater.finalize()
    assert storage_bytes(updater) == sizes
    assert all(torch.equal(weight, average[name]) for name, weight in updater.network.named_parameters())


def storage_bytes(updater: Updater) -> dict[str, int]:
    return {name: weight.untyped_storage().nbytes() for name, weight in updater.network.named_parameters()}


def train_snapshot(updater: Updater, batches: list[Batch]) -> Snapshot:
    torch.manual_seed(5)
    for _ in range(3):
        updater.update(batches)
    return take_snapshot(updater, TrainState(), {})


def test_offload_with_one_process_makes_its_own_group() -> None:
    """Without torchrun. Weights, gradients and moments are on the CPU, which this test cannot tell from a GPU."""
    try:
        offloaded = make_updater(config(sharding="full", cpu_offload=True))
        assert offloaded.placement.is_sharded
        expected, found = train_snapshot(make_updater(), [BATCH]), train_snapshot(offloaded, [BATCH])
        assert all(torch.equal(found.model[name], weight) for name, weight in expected.model.items())
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()
