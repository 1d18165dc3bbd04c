"""One update: gradient accumulation, R-Drop, precisions and device features."""

import math
from typing import Any

import pytest
import torch
from error_codes import ErrorCheck, has_code
from learning import BATCH, BOTH, OTHER, SHORT, config, make_batch, make_updater

from attendo.errors import UsageError
from attendo.model.config import ModelConfig
from attendo.train.config import NetworkPart
from attendo.train.distributed import Distributed
from attendo.train.loss import cross_entropy_sum, training_loss
from attendo.train.update import Updater, pick_compile, pick_precision, should_capture

CPU = torch.device("cpu")


def flat_weights(updater: Updater) -> torch.Tensor:
    return torch.cat([weight.detach().flatten() for weight in updater.network.parameters()])


@pytest.mark.short(1)
@pytest.mark.parametrize("changes", [{}, {"r_drop": 2.0}, {"optimizer": "adam", "weight_decay": 0.1}])
def test_accumulated_batches_equal_one_large_batch(changes: dict[str, object]) -> None:
    """The batches have 4 + 3 and 7 target tokens, so a mean of means would be another loss."""
    settings = config(epsilon=1e-4, **changes)
    one, many, single = make_updater(settings), make_updater(settings), make_updater(settings)
    rows = [make_batch(each) for each in SHORT]
    for _ in range(3):
        full, parts, apart = one.update([BOTH]), many.update([BATCH, OTHER]), single.update([*rows, OTHER])
        assert full.tokens == parts.tokens == apart.tokens == 14
        for other in (parts, apart):
            assert float(other.loss) == pytest.approx(float(full.loss), rel=1e-5)
            assert float(other.norm) == pytest.approx(float(full.norm), rel=1e-4)
    for other in (many, single):
        torch.testing.assert_close(flat_weights(other), flat_weights(one), atol=3e-6, rtol=0)


def test_the_first_loss_is_that_of_the_untrained_network() -> None:
    trained = make_updater(config(label_smoothing=0.2))
    logits = make_updater().network(BATCH.source_ids, BATCH.target_ids, BATCH.source_mask)
    expected = cross_entropy_sum(logits, BATCH.labels, 0.2).item()
    assert float(trained.update([BATCH]).loss) == pytest.approx(expected, rel=1e-6)


def test_r_drop_of_equal_passes_equals_the_plain_loss() -> None:
    """Without dropout both passes are equal: the divergence and its gradient are 0."""
    plain, dropped = make_updater(config(epsilon=1e-4)), make_updater(config(epsilon=1e-4, r_drop=5.0))
    for _ in range(3):
        assert float(dropped.update([BOTH]).loss) == pytest.approx(float(plain.update([BOTH]).loss), rel=1e-6)
    torch.testing.assert_close(flat_weights(dropped), flat_weights(plain), atol=1e-6, rtol=0)


def test_r_drop_adds_the_divergence_of_two_passes_with_dropout() -> None:
    losses = []
    for rate in (1e-12, 1.0, 3.0):
        torch.manual_seed(0)
        losses.append(float(make_updater(config(r_drop=rate), dropout=0.5).update([BOTH]).loss))
    divergence = losses[1] - losses[0]
    assert divergence > 0
    assert losses[2] - losses[0] == pytest.approx(3 * divergence, rel=1e-3)


def test_update_enables_dropout() -> None:
    trained = make_updater(config(peak_lr=1e-30), dropout=0.5)
    trained.network.eval()
    assert len({float(trained.update([BOTH]).loss) for _ in range(3)}) == 3
    assert trained.network.training


def test_the_loss_falls() -> None:
    trained = make_updater(config(label_smoothing=0.0))
    losses = [float(trained.update([BATCH]).loss) for _ in range(60)]
    assert losses[-1] < 0.2 * losses[0]


def test_fp16_loss_scale_doubles_and_halves() -> None:
    trained = make_updater(config(precision="fp16"))
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
def test_other_precisions_give_similar_updates(precision: str) -> None:
    exact, rough = make_updater(config(precision="fp32")), make_updater(config(precision=precision))
    for _ in range(5):
        one, other = exact.update([BOTH]), rough.update([BOTH])
        assert float(other.loss) == pytest.approx(float(one.loss), rel=0.02)
        assert float(other.norm) == pytest.approx(float(one.norm), rel=0.2)
        assert float(other.skipped) == 0
    assert all(weight.dtype == torch.float32 for weight in rough.network.parameters())
    assert float(exact.loss_scale) == 1.0


def test_auto_is_fp32_on_a_cpu() -> None:
    network = ModelConfig(vocab_size=9)
    assert pick_precision("auto", CPU, network) == "fp32"
    assert pick_precision("bf16", CPU, network) == "bf16"
    assert make_updater(config()).precision == "fp32"


def test_relative_positions_never_have_fp16(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: False)
    gpu, relative = torch.device("cuda"), ModelConfig(vocab_size=9, positions="relative")
    assert pick_precision("auto", gpu, ModelConfig(vocab_size=9)) == "fp16"
    assert pick_precision("auto", gpu, relative) == "fp32"
    with pytest.raises(UsageError, check=has_code("fp16_with_relative_positions")):
        pick_precision("fp16", gpu, relative)


def test_capture_needs_one_process_on_a_gpu() -> None:
    with pytest.raises(UsageError, check=has_code("capture_not_supported")):
        should_capture(config(capture="on"), CPU, Distributed())
    assert not should_capture(config(capture="auto"), CPU, Distributed())
    assert should_capture(config(capture="auto"), torch.device("cuda"), Distributed())
    assert not should_capture(config(capture="auto"), torch.device("cuda"), Distributed(0, 2))
    assert not should_capture(config(capture="off"), torch.device("cuda"), Distributed())


def test_compile_auto_is_off_on_a_cpu() -> None:
    network = make_updater().network
    assert pick_compile(config(compile="auto"), network) == "off"
    assert pick_compile(config(compile="on"), network) == "on"
    assert pick_compile(config(compile="blocks"), network) == "blocks"


def test_a_non_finite_loss_skips_the_update(monkeypatch: pytest.MonkeyPatch) -> None:
    trained = make_updater(config())
    trained.update([BATCH])
    before = flat_weights(trained)
    monkeypatch.setattr("attendo.train.update.training_loss", lambda *arguments: training_loss(*arguments) * math.inf)
    update = trained.update([BATCH])
    assert float(update.skipped) == 1
    assert torch.equal(flat_weights(trained), before)
    assert trained.step == 2


@pytest.mark.parametrize("changes", [{}, {"optimizer": "adam"}, {"ema": 0.9}])
def test_every_update_increments_the_weight_versions(changes: dict[str, object]) -> None:
    trained = make_updater(config(**changes))
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
def test_frozen_parts_do_not_change(parts: tuple[NetworkPart, ...], fixed: set[str]) -> None:
    frozen = make_updater(config(freeze=parts, weight_decay=0.1, ema=0.9), tie="none")
    before = {name: weight.clone() for name, weight in frozen.network.named_parameters()}
    for _ in range(3):
        frozen.update([BATCH, OTHER])
    assert frozen.ema is not None
    for name, weight in frozen.network.named_parameters():
        same = torch.equal(weight, before[name]) and torch.equal(frozen.ema.weights[name], before[name])
        assert same == (name.split(".")[0] in fixed), name


def test_freezing_does_not_change_other_gradients() -> None:
    plain, frozen = make_updater(config(clip_norm=0.0)), make_updater(config(clip_norm=0.0, freeze=("encoder",)))
    for each in (plain, frozen):
        each.update([BATCH])
    frozen_weights = dict(frozen.network.named_parameters())
    for name, weight in plain.network.named_parameters():
        if not name.startswith("encoder"):
            assert torch.equal(weight, frozen_weights[name]), name


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
def test_freezing_nothing_or_everything_is_rejected(
    parts: tuple[NetworkPart, ...], sizes: dict[str, Any], error: ErrorCheck
) -> None:
    with pytest.raises(UsageError, check=error):
        make_updater(config(freeze=parts), **sizes)
