"""Passes of a prefix LM can be captured in a CUDA graph: they never read the device."""

from unittest.mock import patch

import pytest
import torch
from sync_detector import SyncDetector

from attendo.data.batch import Example, collate
from attendo.model.config import ModelConfig
from attendo.model.factory import make_network
from attendo.train.config import TrainConfig
from attendo.train.update import Updater

CONFIG = ModelConfig(
    prefix_lm=True, vocab_size=9, d_model=32, num_heads=4, d_ff=64, num_decoder_layers=2, dropout=0.0, tie="all"
)


@pytest.mark.parametrize("r_drop", [0.0, 1.0])
def test_a_training_pass_never_reads_the_device(r_drop: float) -> None:
    updater = Updater(make_network(CONFIG, torch.Generator().manual_seed(0)), TrainConfig(r_drop=r_drop))
    batch = collate([Example([5, 6, 7], [7, 6, 5]), Example([8], [8])])
    with patch("attendo.model.transformer._check_ids"), SyncDetector() as detector:  # it is skipped on a GPU
        updater._forward_backward(batch)
    assert detector.operations > 100
    assert detector.caught == set()


@torch.no_grad()
def test_a_decoding_step_never_reads_the_device() -> None:
    network = make_network(CONFIG, torch.Generator().manual_seed(0)).eval()
    state = network.allocate_state(2, 6, 3, 8)
    started = network.start(network.encode(torch.full((2, 6), 5), torch.ones(2, 6, dtype=torch.bool)))
    sentences, rows, ids = torch.arange(2), torch.arange(6), torch.full((6, 1), 5)
    with patch("attendo.model.transformer._check_ids"), SyncDetector() as detector:
        state.insert(sentences, rows, started)
        for _ in range(2):
            _, after = network.step(ids, state)
            state.write(after.reorder(rows), ids[:, 0] > 0)
    assert detector.operations > 50
    assert detector.caught == set()
    assert state.length.tolist() == [2] * 6
