"""A recorded system gives the same answers and logits as the network whose weights it has dropped."""

import torch
from t5_networks import t5_network

from attendo.interop.certificate import Bounds
from attendo.interop.certify import certify, random_sources
from attendo.interop.compared_systems import TorchSystem
from attendo.interop.recorded_system import record_system

PAIRS = [([5, 6, 7], [8, 9])]


def test_the_recorded_system_equals_the_network() -> None:
    sources, prefix = random_sources(64, 5), [10]
    kept = TorchSystem(t5_network("t5"), "hf", prefix)
    recorded = record_system(t5_network("t5"), "hf", sources, PAIRS, prefix)
    found = certify(recorded, kept, sources, Bounds(), pairs=PAIRS)
    assert found.passed
    assert found.ours == kept.name
    assert (found.largest_difference or 0) < 1e-5  # products of other shapes
    assert [each.same_answers for each in found.searches] == [5, 5]
    assert all(each.score_difference == 0.0 and each.ours_per_second > 0 for each in found.searches)


def test_only_the_output_layer_stays_in_memory() -> None:
    network = t5_network("umt5")
    shapes = {name: weight.shape for name, weight in network.named_parameters()}
    record_system(network, "hf", [[5, 6]], [])
    sizes = {name: weight.untyped_storage().nbytes() for name, weight in network.named_parameters()}
    assert {name for name, size in sizes.items() if size > 4} == {"output.weight"}
    assert {name: weight.shape for name, weight in network.named_parameters()} == shapes
    assert not network.output._forward_pre_hooks


def test_a_difference_from_the_recorded_system_is_found() -> None:
    sources, other = random_sources(64, 3), t5_network("t5")
    recorded = record_system(t5_network("t5"), "hf", sources, [])
    with torch.no_grad():
        other.decoder_norm.weight[3] += 0.1  # type: ignore[operator, index]
    assert not certify(recorded, TorchSystem(other, "hf"), sources, Bounds()).passed
