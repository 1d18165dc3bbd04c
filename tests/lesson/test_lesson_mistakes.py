"""Each mistake of the gallery has its described effect on a new network or after a few steps."""

import math

import gallery
import pytest
import torch
from experiment import Setting, batch, exact, make, read, run, spell, write
from loss import shifted
from mistakes import SWITCHES
from transformer import Transformer


def fresh(mistake: str | None = None, **changes: float) -> Transformer:
    torch.manual_seed(0)
    return make(Setting(mistake, **changes)).eval()  # type: ignore[arg-type]


@torch.no_grad()
def change_from_future(mistake: str | None) -> float:
    """The largest change of the first output if a later token changes."""
    network, (source, target) = fresh(mistake), read(["chief"])
    decoder_input, _ = shifted(target)
    changed = decoder_input.clone()
    changed[0, 4] = 12
    return float((network(source, decoder_input)[0] - network(source, changed)[0])[0, 0].abs().max())


def test_experiment_reverses_words() -> None:
    source, target = read(["chief"])
    assert (spell(source[0]), spell(target[0])) == ("chief", "feihc")
    assert source.size(1) == target.size(1) - 1 == 9


def test_same_setting_gives_the_same_losses() -> None:
    first, second = (run(Setting(steps=3)).losses for _ in range(2))
    assert first == second


@pytest.mark.slow
def test_network_without_mistakes_learns() -> None:
    losses = run(Setting(steps=60)).losses
    assert sum(losses[-5:]) / 5 < losses[0] - 0.8


def test_without_a_mask_future_tokens_leak() -> None:
    assert change_from_future(None) == 0
    assert change_from_future("no mask") > 1e-3


def test_E5_mixes_sentences_and_needs_batch_size_equal_to_heads() -> None:
    network, right = fresh("E5"), fresh()
    source, target = read(["bad", "chief", "abcdefgh", "jig"])
    decoder_input, _ = shifted(target)
    assert not torch.allclose(network(source, decoder_input)[0], right(source, decoder_input)[0], atol=1e-3)
    with pytest.raises(RuntimeError, match="must match the size"):
        network(source[:3], decoder_input[:3])


def test_E6_masks_source_positions_by_target_length() -> None:
    right, wrong = gallery.cross_masks(3)
    assert right[0].tolist() == [False] * 6 + [True] * 3
    assert wrong[0].tolist() == [False] * 3 + [True] * 6


def test_E8_gives_gradients_to_the_last_layer_only() -> None:
    right, wrong = (run(Setting(name, steps=1, layers=3)).gradients for name in (None, "E8"))
    assert all(right)
    assert wrong[:2] == [0, 0]
    assert wrong[2] > 0


def test_E10_ignores_token_order() -> None:
    for name, same in ((None, False), ("E10", True)):
        network, decoder_input = fresh(name), shifted(read(["bad"])[1])[0]
        first, second = (network(read([word])[0], decoder_input)[0] for word in ("chief", "feihc"))
        assert torch.allclose(first, second, atol=1e-4) is same


def test_E13_output_grows_with_depth() -> None:
    (_, low), (_, high) = gallery.first_losses([2, 12], "E13")
    assert high > 1.5 * low
    assert gallery.first_losses([12], None)[0][1] == pytest.approx(1, abs=1e-3)


@pytest.mark.parametrize("p", [0.1, 0.3])
def test_E15_drops_more_than_the_given_rate(p: float) -> None:
    assert gallery.zeros(p, False) == pytest.approx(p, abs=0.01)
    assert gallery.zeros(p, True) == pytest.approx(1 - (1 - p) ** 2, abs=0.01)


def test_E24_loss_has_a_floor_and_small_gradients() -> None:
    floor, ratio = gallery.softmax_twice(13)
    sure = torch.nn.functional.one_hot(torch.tensor([3]), 13).float()
    assert float(torch.nn.functional.cross_entropy(sure, torch.tensor([3]))) == pytest.approx(floor)
    assert ratio == pytest.approx(13, rel=1e-4)


def test_E31_empty_sentence_gives_nan_with_infinite_masks() -> None:
    for name, ruined in ((None, False), ("E31 infinity", True), ("E31 billion", False)):
        losses = run(Setting(name, steps=2, empty_at=1)).losses
        assert math.isnan(losses[-1]) is ruined
    rows = gallery.blind_rows()
    assert rows["-inf"].isnan().all()
    assert rows["-1e9"].tolist() == pytest.approx([1 / 3] * 3)
    assert rows["safe"].tolist() == [0, 0, 0]
    assert gallery.difference_by_width(None) == 0
    assert gallery.difference_by_width("E31 billion") > 1e-3


def test_E31_minus_a_billion_overflows_in_fp16() -> None:
    with pytest.raises(RuntimeError, match="overflow"):
        torch.zeros(2, dtype=torch.float16).masked_fill(torch.tensor([True, False]), -1e9)


def test_exact_match_counts_words() -> None:
    network = fresh()
    source, target = batch(25, torch.Generator().manual_seed(3))
    right = sum(a == b for a, b in zip(write(network, source), map(spell, target), strict=True))
    assert exact(network, 25, total=25) == right / 25


def test_every_mistake_has_a_run() -> None:
    assert {setting.mistake for setting in gallery.RUNS.values()} == {None, *SWITCHES}
