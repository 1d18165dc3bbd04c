"""One process that holds all parts learns as one with whole weights. Several: tests/reliability/test_sharded.py."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from learning import BATCH, OTHER, config, learner

from attendo.data.batch import Batch, RaggedArray, collate_windows
from attendo.model.transformer import Transformer
from attendo.train.checkpoint import Snapshot, TrainState, eval_weights, take_snapshot
from attendo.train.config import TrainConfig
from attendo.train.distributed import Distributed
from attendo.train.sharding import FSDPWeights
from attendo.train.update import Updater


@pytest.fixture
def parted(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Learners hold parts."""

    def held(network: Transformer, config: TrainConfig, world: Distributed) -> FSDPWeights:
        return FSDPWeights(network, world)

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    monkeypatch.setattr("attendo.train.update.place_weights", held)
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
    ],
    ids=["rotary", "learned positions", "post-norm", "decoder-only"],
)
def test_every_kind_of_network_learns_in_parts(
    request: pytest.FixtureRequest, sizes: dict[str, Any], changes: dict[str, Any], batches: list[Batch]
) -> None:
    whole = updated(learner(config(**changes), dropout=0.1, **sizes), batches)
    request.getfixturevalue("parted")
    parts = updated(learner(config(**changes), dropout=0.1, **sizes), batches)
    for part in ("model", "optimizer"):
        expected, found = getattr(whole, part), getattr(parts, part)
        assert expected.keys() == found.keys()
        assert all(torch.equal(found[name], expected[name]) for name in expected)


@pytest.mark.usefixtures("parted")
def test_the_network_itself_takes_up_memory_only_while_it_is_looked_at() -> None:
    trained = learner(config(ema=0.5))
    average = eval_weights(updated(trained, [BATCH]))
    sizes = {name: weight.nbytes for name, weight in trained.network.named_parameters()}
    assert taken_up(trained) == dict.fromkeys(sizes, 0)
    with trained.eval_weights():
        assert taken_up(trained) == sizes
        assert all(torch.equal(weight, average[name]) for name, weight in trained.network.named_parameters())
    assert taken_up(trained) == dict.fromkeys(sizes, 0)
    trained.finalize()
    assert taken_up(trained) == sizes
    assert all(torch.equal(weight, average[name]) for name, weight in trained.network.named_parameters())


def taken_up(trained: Updater) -> dict[str, int]:
    return {name: weight.untyped_storage().nbytes() for name, weight in trained.network.named_parameters()}


def updated(trained: Updater, batches: list[Batch]) -> Snapshot:
    torch.manual_seed(5)
    for _ in range(3):
        trained.update(batches)
    return take_snapshot(trained, TrainState(), {})
