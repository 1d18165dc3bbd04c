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
from attendo.train.config import TrainConfig
from attendo.train.distributed import Distributed
from attendo.train.sharding import FSDPWeights
from attendo.train.update import Updater


@pytest.fixture
def fsdp(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Updaters use FSDP."""

    def place_weights(network: Transformer, config: TrainConfig, world: Distributed) -> FSDPWeights:
        return FSDPWeights(network, world)

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
        ({"tie": "inputs", "positions": "relative", "linear_bias": False}, {"ema": 0.9}, [BATCH, OTHER]),
    ],
    ids=["rotary", "learned positions", "post-norm", "decoder-only", "confidence", "schedule", "relative"],
)
def test_every_kind_of_network_trains_with_fsdp(
    request: pytest.FixtureRequest, sizes: dict[str, Any], changes: dict[str, Any], batches: list[Batch]
) -> None:
    replicated = train_snapshot(make_updater(config(**changes), dropout=0.1, **sizes), batches)
    request.getfixturevalue("fsdp")
    sharded = train_snapshot(make_updater(config(**changes), dropout=0.1, **sizes), batches)
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
