"""The logits of a target do not depend on how it is split, padded or batched."""

from collections.abc import Callable
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st
from network_strategies import VOCABULARY, cuts, ids, network_settings, padded_ids
from torch import Tensor

from attendo.model.transformer import Transformer

MakeNetwork = Callable[..., Transformer]


@given(
    choices=network_settings(), source=padded_ids(2, 5), target=padded_ids(2, 6), masked=st.booleans(), data=st.data()
)
@torch.no_grad()
def test_any_split_of_the_target_over_steps_equals_one_forward(
    small_network: MakeNetwork,
    choices: dict[str, Any],
    source: tuple[Tensor, Tensor],
    target: tuple[Tensor, Tensor],
    masked: bool,
    data: st.DataObject,
) -> None:
    network, (target_ids, target_mask) = small_network(**choices), target
    source_ids, source_mask = _source(network, source)
    expected = network(source_ids, target_ids, source_mask, target_mask if masked else None)

    state, position, parts = network.start(_memory(network, source)), 0, []
    for size in data.draw(cuts(target_ids.size(1))):
        columns = slice(position, position + size)
        logits, state = network.step(target_ids[:, columns], state, target_mask[:, columns] if masked else None)
        parts.append(logits)
        position += size
        assert state.length == position

    _assert_near(torch.cat(parts, dim=1), expected)


@given(choices=network_settings(), source=padded_ids(2, 5), target=ids(2, 5), more=st.integers(1, 4), data=st.data())
@torch.no_grad()
def test_padding_does_not_change_the_logits(
    small_network: MakeNetwork,
    choices: dict[str, Any],
    source: tuple[Tensor, Tensor],
    target: Tensor,
    more: int,
    data: st.DataObject,
) -> None:
    network = small_network(**choices)
    before = network(_source(network, source)[0], target, _source(network, source)[1])

    padding = data.draw(ids(2, more, shortest=more))
    longer_source = (
        torch.cat((source[0], padding), 1),
        torch.cat((source[1], torch.zeros(2, more, dtype=torch.bool)), 1),
    )
    scrambled = torch.where(longer_source[1], longer_source[0], (longer_source[0] + 1) % VOCABULARY)
    longer_ids, longer_mask = _source(network, (scrambled, longer_source[1]))
    longer_target = torch.cat((target, padding), 1)
    target_mask = (torch.arange(longer_target.size(1)) < target.size(1)).expand(2, -1)
    for mask in (None, target_mask):
        after = network(longer_ids, longer_target, longer_mask, mask)[:, : target.size(1)]
        _assert_near(after, before)


@given(choices=network_settings(decoder_only=True), target=ids(2, 5), padding=ids(2, 3))
@torch.no_grad()
def test_left_padding_is_inert_without_absolute_positions(
    small_network: MakeNetwork, choices: dict[str, Any], target: Tensor, padding: Tensor
) -> None:
    if choices["positions"] not in ("rotary", "relative"):
        choices |= {"positions": "rotary", "position_layout": "interleaved", "position_offset": 0}
    network = small_network(**{**choices, "num_encoder_layers": 0, "prefix_lm": False})
    mask = torch.cat((torch.zeros_like(padding), torch.ones_like(target)), 1).bool()
    after = network(None, torch.cat((padding, target), 1), None, mask)[:, padding.size(1) :]
    _assert_near(after, network(None, target))


@given(choices=network_settings(), source=padded_ids(3, 5), target=padded_ids(3, 5))
@torch.no_grad()
def test_a_batch_equals_its_rows_alone(
    small_network: MakeNetwork, choices: dict[str, Any], source: tuple[Tensor, Tensor], target: tuple[Tensor, Tensor]
) -> None:
    network = small_network(**choices)
    source_ids, source_mask = _source(network, source)
    together = network(source_ids, target[0], source_mask, target[1])
    for row in range(3):
        words, length = source[1][row], int(target[1][row].sum())
        alone_ids = None if source_ids is None else source_ids[row, words][None]
        alone = network(alone_ids, target[0][row, :length][None])
        _assert_near(together[row, :length][None], alone)


@given(choices=network_settings(), source=ids(2, 4), target=ids(2, 6, shortest=2), tapped=st.booleans(), data=st.data())
@torch.no_grad()
def test_later_tokens_do_not_change_earlier_logits(
    small_network: MakeNetwork,
    choices: dict[str, Any],
    source: Tensor,
    target: Tensor,
    tapped: bool,
    data: st.DataObject,
) -> None:
    network = small_network(**choices)
    source_ids = None if network.config.continues_text else source
    changed_from = data.draw(st.integers(1, target.size(1) - 1))
    other = target.clone()
    other[:, changed_from:] = (other[:, changed_from:] + 1 + data.draw(st.integers(0, VOCABULARY - 2))) % VOCABULARY
    for mask in (None, torch.ones_like(target, dtype=torch.bool)):
        first, second = (network(source_ids, t, None, mask, _ignore if tapped else None) for t in (target, other))
        assert torch.equal(first[:, :changed_from], second[:, :changed_from])
        assert not torch.equal(first[:, changed_from], second[:, changed_from])


@given(
    choices=network_settings(),
    source=padded_ids(3, 4),
    target=padded_ids(3, 4),
    rows=st.lists(st.integers(0, 2), min_size=1, max_size=5),
    more=st.integers(1, 2),
    masked=st.booleans(),
)
@torch.no_grad()
def test_a_selected_state_keeps_its_rows(
    small_network: MakeNetwork,
    choices: dict[str, Any],
    source: tuple[Tensor, Tensor],
    target: tuple[Tensor, Tensor],
    rows: list[int],
    more: int,
    masked: bool,
) -> None:
    network, chosen, (target_ids, target_mask) = small_network(**choices), torch.tensor(rows), target
    _, state = network.step(target_ids, network.start(_memory(network, source)), target_mask if masked else None)
    next_ids = (target_ids[:, :1] + torch.arange(more)) % VOCABULARY
    ours, _ = network.step(next_ids[chosen], state.select(chosen, chosen))

    picked = _memory(network, (source[0][chosen], source[1][chosen]))
    _, state = network.step(target_ids[chosen], network.start(picked), target_mask[chosen] if masked else None)
    theirs, _ = network.step(next_ids[chosen], state)
    _assert_near(ours, theirs)


def _source(network: Transformer, source: tuple[Tensor, Tensor]) -> tuple[Tensor | None, Tensor | None]:
    return (None, None) if network.config.continues_text else source


def _memory(network: Transformer, source: tuple[Tensor, Tensor]) -> Any:
    return None if network.config.continues_text else network.encode(*source)


def _assert_near(ours: Tensor, theirs: Tensor) -> None:
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)


def _ignore(site: str, weights: Tensor) -> None:
    assert site
