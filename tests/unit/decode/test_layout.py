"""A network in the layout that suits the rows it is multiplied by: the same numbers, and never those of yesterday."""

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
def test_the_copy_has_columns_side_by_side_and_says_the_same(small_network: Make, tie: str) -> None:
    network = small_network(tie=tie)
    made = ColumnMajorWeights(network).select_network(SOME)
    assert made is not network
    matrices = [each.weight for each in made.modules() if isinstance(each, nn.Linear)]
    assert matrices
    assert all(each.T.is_contiguous() and not each.is_contiguous() for each in matrices)
    assert made.target.tokens.weight is network.target.tokens.weight
    torch.testing.assert_close(made(SOURCE, TARGET), network(SOURCE, TARGET))


def test_where_the_layout_does_not_matter_nothing_is_copied(small_network: Make) -> None:
    network = small_network()
    layout = ColumnMajorWeights(network)
    assert layout.select_network(FEW) is network
    assert layout.select_network(MANY) is network


@pytest.mark.parametrize(("threads", "copied"), [(1, True), (2, False)])
def test_of_one_thread_more_rows_are_few(
    small_network: Make, threads: int, copied: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    network = small_network()
    assert (ColumnMajorWeights(network).select_network(128) is not network) == copied


def test_a_network_in_training_and_one_of_another_precision_stay_as_they_are(small_network: Make) -> None:
    training, half = small_network().train(), small_network().bfloat16()
    assert ColumnMajorWeights(training).select_network(SOME) is training
    assert ColumnMajorWeights(half).select_network(SOME) is half


def test_the_copy_is_made_once(small_network: Make) -> None:
    layout = ColumnMajorWeights(small_network())
    assert layout.select_network(SOME) is layout.select_network(SOME)


@torch.no_grad()
def test_a_changed_weight_is_noticed(small_network: Make) -> None:
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
        now = layout.select_network(SOME)(SOURCE, TARGET)
        torch.testing.assert_close(now, network(SOURCE, TARGET))
        assert not torch.allclose(now, before)
        before = now
