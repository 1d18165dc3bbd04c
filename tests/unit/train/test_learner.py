"""One update at a time: batches that add up, two passes that must agree, precisions, and what a device allows."""

import math
from typing import Any

import pytest
import torch
from error_codes import ErrorCheck, has_code
from learning import BATCH, BOTH, OTHER, SHORT, batch, config, learner

from attendo.errors import UsageError
from attendo.train.config import NetworkPart
from attendo.train.distributed import Distributed
from attendo.train.loss import cross_entropy_sum, training_loss
from attendo.train.update import Updater, pick_compile, pick_precision, should_capture

CPU = torch.device("cpu")


def weights(of: Updater) -> torch.Tensor:
    return torch.cat([weight.detach().flatten() for weight in of.network.parameters()])


@pytest.mark.short(1)
@pytest.mark.parametrize("changes", [{}, {"r_drop": 2.0}, {"optimizer": "adam", "weight_decay": 0.1}])
def test_small_batches_of_unequal_length_learn_as_one_large_batch(changes: dict[str, object]) -> None:
    """Two rows of 4 and 3 target tokens in one, a row of 7 in the other: a mean of means would be another loss."""
    settings = config(epsilon=1e-4, **changes)
    one, many, single = learner(settings), learner(settings), learner(settings)
    rows = [batch(each) for each in SHORT]
    for _ in range(3):
        whole, parts, apart = one.update([BOTH]), many.update([BATCH, OTHER]), single.update([*rows, OTHER])
        assert whole.tokens == parts.tokens == apart.tokens == 14
        for other in (parts, apart):
            assert float(other.loss) == pytest.approx(float(whole.loss), rel=1e-5)
            assert float(other.norm) == pytest.approx(float(whole.norm), rel=1e-4)
    for other in (many, single):
        torch.testing.assert_close(weights(other), weights(one), atol=3e-6, rtol=0)


def test_the_first_loss_is_that_of_the_untrained_network() -> None:
    trained = learner(config(label_smoothing=0.2))
    logits = learner().network(BATCH.source_ids, BATCH.target_ids, BATCH.source_mask)
    expected = cross_entropy_sum(logits, BATCH.labels, 0.2).item()
    assert float(trained.update([BATCH]).loss) == pytest.approx(expected, rel=1e-6)


def test_r_drop_of_equal_passes_is_the_plain_loss() -> None:
    """Without dropout both passes say the same: their divergence is zero, and so is its gradient."""
    plain, dropped = learner(config(epsilon=1e-4)), learner(config(epsilon=1e-4, r_drop=5.0))
    for _ in range(3):
        assert float(dropped.update([BOTH]).loss) == pytest.approx(float(plain.update([BOTH]).loss), rel=1e-6)
    torch.testing.assert_close(weights(dropped), weights(plain), atol=1e-6, rtol=0)


def test_r_drop_adds_the_divergence_of_two_passes_with_dropout() -> None:
    losses = []
    for rate in (1e-12, 1.0, 3.0):
        torch.manual_seed(0)
        losses.append(float(learner(config(r_drop=rate), dropout=0.5).update([BOTH]).loss))
    divergence = losses[1] - losses[0]
    assert divergence > 0
    assert losses[2] - losses[0] == pytest.approx(3 * divergence, rel=1e-3)


def test_dropout_is_on_while_learning_whatever_the_network_did_before() -> None:
    trained = learner(config(peak_lr=1e-30), dropout=0.5)
    trained.network.eval()
    assert len({float(trained.update([BOTH]).loss) for _ in range(3)}) == 3
    assert trained.network.training


def test_the_loss_falls() -> None:
    trained = learner(config(label_smoothing=0.0))
    losses = [float(trained.update([BATCH]).loss) for _ in range(60)]
    assert losses[-1] < 0.2 * losses[0]


def test_fp16_doubles_its_loss_scale_after_many_good_steps_and_halves_it_after_a_bad_one() -> None:
    trained = learner(config(precision="fp16"))
    first = float(trained.loss_scale)
    trained.good_steps.fill_(1998)
    trained.update([BATCH])
    assert (float(trained.loss_scale), float(trained.good_steps)) == (first, 1999)
    trained.update([BATCH])
    assert (float(trained.loss_scale), float(trained.good_steps)) == (2 * first, 0)
    trained.loss_scale.fill_(1e38)
    assert float(trained.update([BATCH]).skipped) == 1
    assert float(trained.loss_scale) == pytest.approx(0.5e38)


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_other_precisions_learn_nearly_the_same(precision: str) -> None:
    exact, rough = learner(config(precision="fp32")), learner(config(precision=precision))
    for _ in range(5):
        one, other = exact.update([BOTH]), rough.update([BOTH])
        assert float(other.loss) == pytest.approx(float(one.loss), rel=0.02)
        assert float(other.norm) == pytest.approx(float(one.norm), rel=0.2)
        assert float(other.skipped) == 0
    assert all(weight.dtype == torch.float32 for weight in rough.network.parameters())
    assert float(exact.loss_scale) == 1.0


def test_auto_is_fp32_on_a_cpu() -> None:
    assert pick_precision("auto", CPU) == "fp32"
    assert pick_precision("bf16", CPU) == "bf16"
    assert learner(config()).precision == "fp32"


def test_capture_needs_one_process_on_a_gpu() -> None:
    with pytest.raises(UsageError, check=has_code("capture_not_supported")):
        should_capture(config(capture="on"), CPU, Distributed())
    assert not should_capture(config(capture="auto"), CPU, Distributed())
    assert should_capture(config(capture="auto"), torch.device("cuda"), Distributed())
    assert not should_capture(config(capture="auto"), torch.device("cuda"), Distributed(0, 2))
    assert not should_capture(config(capture="off"), torch.device("cuda"), Distributed())


def test_compiling_is_left_to_gpus_unless_asked_for() -> None:
    network = learner().network
    assert pick_compile(config(compile="auto"), network) == "off"
    assert pick_compile(config(compile="on"), network) == "on"
    assert pick_compile(config(compile="blocks"), network) == "blocks"


def test_a_loss_that_is_no_number_leaves_everything_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    trained = learner(config())
    trained.update([BATCH])
    before = weights(trained)
    monkeypatch.setattr("attendo.train.update.training_loss", lambda *arguments: training_loss(*arguments) * math.inf)
    update = trained.update([BATCH])
    assert float(update.skipped) == 1
    assert torch.equal(weights(trained), before)
    assert trained.step == 2


@pytest.mark.parametrize("changes", [{}, {"optimizer": "adam"}, {"ema": 0.9}])
def test_every_update_shows_on_the_weights_for_whoever_keeps_copies_of_them(changes: dict[str, object]) -> None:
    trained = learner(config(**changes))
    before = [weight._version for weight in trained.network.parameters()]
    trained.update([BATCH])
    after = [weight._version for weight in trained.network.parameters()]
    assert all(new > old for new, old in zip(after, before, strict=True))


@pytest.mark.parametrize(
    ("parts", "fixed"),
    [
        (("encoder",), {"encoder", "encoder_norm"}),
        (("embeddings", "decoder"), {"source", "target", "decoder", "decoder_norm"}),
        (("output",), {"output"}),
    ],
)
def test_frozen_parts_keep_their_bits_and_the_others_change(parts: tuple[NetworkPart, ...], fixed: set[str]) -> None:
    frozen = learner(config(freeze=parts, weight_decay=0.1, ema=0.9), tie="none")
    before = {name: weight.clone() for name, weight in frozen.network.named_parameters()}
    for _ in range(3):
        frozen.update([BATCH, OTHER])
    assert frozen.ema is not None
    for name, weight in frozen.network.named_parameters():
        same = torch.equal(weight, before[name]) and torch.equal(frozen.ema.weights[name], before[name])
        assert same == (name.split(".")[0] in fixed), name


def test_the_gradients_of_other_parts_are_those_without_freezing() -> None:
    plain, frozen = learner(config(clip_norm=0.0)), learner(config(clip_norm=0.0, freeze=("encoder",)))
    for each in (plain, frozen):
        each.update([BATCH])
    ours = dict(frozen.network.named_parameters())
    for name, weight in plain.network.named_parameters():
        if not name.startswith("encoder"):
            assert torch.equal(weight, ours[name]), name


@pytest.mark.parametrize(
    ("parts", "sizes", "error"),
    [
        (
            ("encoder",),
            {"num_encoder_layers": 0, "source_vocab_size": None},
            has_code("frozen_part_without_weights", part="encoder"),
        ),
        (("embeddings", "encoder", "decoder", "output"), {}, has_code("all_weights_frozen")),
    ],
)
def test_freezing_nothing_or_everything_is_refused(
    parts: tuple[NetworkPart, ...], sizes: dict[str, Any], error: ErrorCheck
) -> None:
    with pytest.raises(UsageError, check=error):
        learner(config(freeze=parts), **sizes)
