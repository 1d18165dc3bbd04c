"""The column-major copy of a network gives the same numbers and follows changes of the weights."""

from collections.abc import Callable

import pytest
import torch
from torch import nn

from attendo.decode.continuous_batch import ColumnMajorWeights
from attendo.model.transformer import Transformer

Make = Callable[..., Transformer]
SOURCE = torch.tensor([[5, 6, 7], [8, 9, 3]])
TARGET = torch.tensor([[2, 4, 5, 6], [2, 7, 8, 9]])
FEW, SOME, MANY = 2, 32, 500  # rows


@pytest.mark.parametrize("tie", ["none", "all"])
@torch.no_grad()
def test_the_copy_is_column_major_and_gives_the_same_logits(small_network: Make, tie: str) -> None:
    network = small_network(tie=tie)
    copy = ColumnMajorWeights(network).select_network(SOME)
    assert copy is not network
    matrices = [each.weight for each in copy.modules() if isinstance(each, nn.Linear)]
    assert matrices
    assert all(each.T.is_contiguous() and not each.is_contiguous() for each in matrices)
    assert copy.target.tokens.weight is network.target.tokens.weight
    torch.testing.assert_close(copy(SOURCE, TARGET), network(SOURCE, TARGET))


def test_few_or_many_rows_use_the_original_network(small_network: Make) -> None:
    network = small_network()
    layout = ColumnMajorWeights(network)
    assert layout.select_network(FEW) is network
    assert layout.select_network(MANY) is network


@pytest.mark.parametrize(("threads", "copied"), [(1, True), (2, False)])
def test_with_one_thread_the_copy_is_used_for_more_rows(
    small_network: Make, threads: int, copied: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    network = small_network()
    assert (ColumnMajorWeights(network).select_network(128) is not network) == copied


def test_training_and_bfloat16_networks_are_not_copied(small_network: Make) -> None:
    training, half = small_network().train(), small_network().bfloat16()
    assert ColumnMajorWeights(training).select_network(SOME) is training
    assert ColumnMajorWeights(half).select_network(SOME) is half


def test_the_copy_is_made_once(small_network: Make) -> None:
    layout = ColumnMajorWeights(small_network())
    assert layout.select_network(SOME) is layout.select_network(SOME)


@torch.no_grad()
def test_a_changed_weight_updates_the_copy(small_network: Make) -> None:
    network = small_network()
    layout = ColumnMajorWeights(network)
    before = layout.select_network(SOME)(SOURCE, TARGET)
    changes: list[Callable[[], object]] = [
        lambda: network.get_parameter("decoder.0.feed_forward.expand.weight").mul_(1.5),
        lambda: network.get_parameter("decoder.1.feed_forward.expand.bias").add_(1.0),
        lambda: network.get_parameter("target.tokens.weight").mul_(1.1),
        lambda: network.load_state_dict({name: 0.9 * each for name, each in network.state_dict().items()}),
        lambda: setattr(network.output, "weight", nn.Parameter(2 * network.output.weight)),
    ]
    for change in changes:
        change()
        after = layout.select_network(SOME)(SOURCE, TARGET)
        torch.testing.assert_close(after, network(SOURCE, TARGET))
        assert not torch.allclose(after, before)
        before = after
