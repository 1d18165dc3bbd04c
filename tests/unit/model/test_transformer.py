"""The interface of Transformer: inputs, errors and the decoder state."""

import math
import re
from collections.abc import Callable

import pytest
import torch
from error_codes import ErrorCheck, has_code

from attendo.errors import UsageError
from attendo.model.transformer import Transformer, check_mask

MakeNetwork = Callable[..., Transformer]
SOURCE = torch.tensor([[3, 1, 4, 1], [5, 9, 2, 6]])
TARGET = torch.tensor([[1, 2, 7], [1, 8, 2]])


@torch.no_grad()
def test_forward_is_encode_start_and_one_step(small_network: MakeNetwork) -> None:
    network = small_network()
    logits, state = network.step(TARGET, network.start(network.encode(SOURCE)))
    assert torch.equal(network(SOURCE, TARGET), logits)
    assert state.length == 3


def test_an_encoder_decoder_network_needs_a_source(small_network: MakeNetwork) -> None:
    with pytest.raises(UsageError, check=has_code("encoder_source_missing")):
        small_network()(None, TARGET)


def test_a_decoder_only_network_rejects_a_source(small_network: MakeNetwork) -> None:
    network = small_network(num_encoder_layers=0)
    with pytest.raises(UsageError, check=has_code("decoder_only_source_given")):
        network(SOURCE, TARGET)
    assert network(None, TARGET).shape == (2, 3, 17)


def test_a_decoder_only_network_has_no_source_parameters(small_network: MakeNetwork) -> None:
    network = small_network(num_encoder_layers=0)
    assert not [
        name for name, _ in network.named_parameters() if "cross" in name or "source" in name or "encoder" in name
    ]


@pytest.mark.parametrize(
    ("source_id", "target_id", "error"),
    [
        (11, 1, has_code("token_id_outside_vocabulary", token_id=11, size=11, last=10)),
        (1, 13, has_code("token_id_outside_vocabulary", token_id=13, size=13, last=12)),
        (-1, 1, has_code("token_id_outside_vocabulary", token_id=-1)),
        (1, -2, has_code("token_id_outside_vocabulary", token_id=-2)),
    ],
)
def test_ids_outside_their_vocabulary_are_rejected(
    small_network: MakeNetwork, source_id: int, target_id: int, error: ErrorCheck
) -> None:
    network = small_network(vocab_size=None, source_vocab_size=11, target_vocab_size=13)
    assert network(torch.tensor([[0, 10]]), torch.tensor([[0, 12]])).shape == (1, 2, 13)
    with pytest.raises(UsageError, check=error):
        network(torch.tensor([[0, source_id]]), torch.tensor([[target_id, 0]]))


@torch.no_grad()
def test_embeddings_are_scaled_before_positions_are_added(small_network: MakeNetwork) -> None:
    for scale, factor in ((True, math.sqrt(16)), (False, 1.0)):
        embed = small_network(scale_embedding=scale).target
        expected = embed.positions.add(embed.tokens.weight[TARGET] * factor, 0)
        torch.testing.assert_close(embed(TARGET, 0), expected)


@torch.no_grad()
def test_an_embedding_norm_is_applied_to_the_sum(small_network: MakeNetwork) -> None:
    embed = small_network(embedding_norm=True).target
    assert embed.norm is not None
    torch.testing.assert_close(embed(TARGET, 2), embed.norm(embed.positions.add(embed.tokens(TARGET) * 4, 2)))


def test_select_keeps_the_masks_of_its_rows(small_network: MakeNetwork) -> None:
    network = small_network()
    source_mask = torch.tensor([[True, True, True, True], [True, False, False, False]])
    target_mask = torch.tensor([[True, True, True], [True, True, False]])
    _, state = network.step(TARGET, network.start(network.encode(SOURCE, source_mask)), target_mask)
    selected = state.select(torch.tensor([1, 1, 0]), torch.tensor([1, 1, 0]))
    assert selected.memory_mask is not None
    assert selected.past_mask is not None
    assert torch.equal(selected.memory_mask, source_mask[[1, 1, 0]])
    assert torch.equal(selected.past_mask, target_mask[[1, 1, 0]])
    assert [kv.keys.size(0) for kv in (*selected.memory, *selected.past)] == [3] * 4


def test_a_state_without_masks_selects_without_masks(small_network: MakeNetwork) -> None:
    network = small_network()
    _, state = network.step(TARGET, network.start(network.encode(SOURCE)))
    selected = state.select(torch.tensor([1]), torch.tensor([1]))
    assert selected.memory_mask is None
    assert selected.past_mask is None
    assert selected.length == 3


def test_a_later_mask_treats_earlier_positions_as_tokens(small_network: MakeNetwork) -> None:
    network = small_network()
    _, state = network.step(TARGET, network.start(network.encode(SOURCE)))
    _, state = network.step(TARGET[:, :1], state, torch.tensor([[True], [False]]))
    _, state = network.step(TARGET[:, :1], state)
    assert state.past_mask is not None
    assert state.past_mask.int().tolist() == [[1, 1, 1, 1, 1], [1, 1, 1, 0, 1]]


@torch.no_grad()
def test_memory_keeps_its_source_mask(small_network: MakeNetwork) -> None:
    mask = torch.tensor([[True, True, True, False]] * 2)
    memory = small_network().encode(SOURCE, mask)
    assert memory.states.shape == (2, 4, 16)
    assert memory.mask is mask


@pytest.mark.parametrize("positions", ["sinusoidal", "rotary", "relative", "none"])
def test_weights_can_be_saved_and_loaded_by_name(small_network: MakeNetwork, positions: str) -> None:
    first, second = small_network(seed=1, positions=positions), small_network(seed=2, positions=positions)
    assert not torch.equal(first(SOURCE, TARGET), second(SOURCE, TARGET))
    second.load_state_dict(first.state_dict())
    assert torch.equal(first(SOURCE, TARGET), second(SOURCE, TARGET))


@pytest.mark.parametrize(
    ("mask", "found"),
    [
        (torch.ones(2, 4), "not float32 [2, 4]"),
        (torch.ones(2, 1, dtype=torch.bool), "not bool [2, 1]"),
        (torch.ones(4, dtype=torch.bool), "not bool [4]"),
    ],
)
def test_a_mask_of_another_dtype_or_shape_is_rejected(mask: torch.Tensor, found: str) -> None:
    """Users run without the shape checks that reject these masks in tests."""
    with pytest.raises(UsageError, match=re.escape(found)):
        check_mask(mask, SOURCE)
    check_mask(torch.ones_like(SOURCE, dtype=torch.bool), SOURCE)
    check_mask(None, SOURCE)


@pytest.mark.parametrize("final_dropout", [False, True])
def test_final_dropout_drops_outputs_of_both_stacks(small_network: MakeNetwork, final_dropout: bool) -> None:
    network = small_network(dropout=0.5, final_dropout=final_dropout, tie="none").train()
    seen: list[torch.Tensor] = []
    network.output.register_forward_pre_hook(lambda module, given: seen.append(given[0]))
    torch.manual_seed(0)
    memory = network.encode(SOURCE)
    network.step(TARGET, network.start(memory))
    for states in (memory.states, seen[0]):
        share = float((states == 0).float().mean())
        assert 0.3 < share < 0.7 if final_dropout else share == 0
    network.eval()
    assert not (network.encode(SOURCE).states == 0).any()


def test_source_and_target_may_share_a_table_that_the_output_does_not_have(small_network: MakeNetwork) -> None:
    network = small_network(tie="inputs")
    assert network.source is not None
    assert network.source.tokens.weight is network.target.tokens.weight
    assert network.output.weight is not network.target.tokens.weight


def test_a_network_without_linear_biases_has_only_those_of_norms(small_network: MakeNetwork) -> None:
    for changes in ({}, {"num_encoder_layers": 0, "prefix_lm": True}):
        names = dict(small_network(linear_bias=False, **changes).named_parameters())
        assert {name.split(".")[-2] for name in names if name.endswith(".bias")} <= {
            *("normalise", "encoder_norm", "decoder_norm")
        }
