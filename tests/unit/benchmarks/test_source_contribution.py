"""Contributions of attention to an output: shares that sum to 1, and a source that is not read has none."""

import pytest
import torch
from tiny import SOURCES, tiny_model

from benchmarks.fault_study.source_contribution import follow_contributions, measure_source_contribution


@pytest.mark.parametrize("text", SOURCES)
def test_shares_of_source_and_target_sum_to_one(text: str) -> None:
    model = tiny_model()
    trace = model.trace(text)
    source, target = follow_contributions(model.network, trace)
    assert source.shape == (len(trace.target_pieces), len(trace.source_pieces))
    assert torch.allclose(source.sum(-1) + target.sum(-1), torch.ones(len(trace.target_pieces)), atol=1e-4)
    assert (target.triu(1).abs() < 1e-6).all()  # no token depends on a later one


def test_without_cross_attention_nothing_comes_from_the_source() -> None:
    model = tiny_model()
    for name, weight in model.network.named_parameters():
        if "cross_attention.output" in name:
            torch.nn.init.zeros_(weight)
    shares = measure_source_contribution(model.network, model.trace(SOURCES[0], "猫"))
    assert shares.abs().max() < 1e-6
