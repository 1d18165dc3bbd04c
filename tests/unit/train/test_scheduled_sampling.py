"""Scheduled sampling: the schedule, the input of the second pass, the loss, and captured and half-precision passes."""

import math
from typing import Any

import pytest
import torch
from error_codes import has_code
from learning import BATCH, BOTH, OTHER, config, make_updater
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from attendo.data.batch import RaggedArray, collate_windows
from attendo.errors import UsageError
from attendo.text import BOS, EOS, PAD
from attendo.train import scheduled_sampling
from attendo.train.config import TrainConfig
from attendo.train.loss import training_loss
from attendo.train.scheduled_sampling import ScheduledSampling, draw_target_tokens, inverse_sigmoid, sample_tokens
from attendo.train.update import Updater

CPU = torch.device("cpu")
KINDS = ("schedule", "confidence")
ALWAYS: dict[str, dict[str, Any]] = {
    "schedule": {"scheduled_sampling": "schedule", "sampling_start": 0.0, "sampling_decay": 1.0},
    "confidence": {
        "scheduled_sampling": "confidence",
        "sampling_start": 0.0,
        "sampling_thresholds": (0.06, 0.08),
    },
}


def make_sampling(prefix: int = 0, **changes: Any) -> ScheduledSampling:
    return ScheduledSampling(config(**changes), CPU, prefix)


def certain_logits(ids: Tensor, vocabulary: int = 17) -> Tensor:
    """Logits of a network that is certain of these tokens."""
    return torch.full((*ids.shape, vocabulary), -100.0).scatter(-1, ids[..., None], 100.0)


def test_the_share_of_the_reference_falls_as_an_inverse_sigmoid() -> None:
    assert [inverse_sigmoid(step, 10.0) for step in (0, 10, 30)] == pytest.approx(
        [10 / 11, 10 / (10 + math.e), 10 / (10 + math.e**3)]
    )
    assert inverse_sigmoid(round(200 * math.log(200)), 200.0) == pytest.approx(0.5, abs=0.001)
    assert inverse_sigmoid(10**9, 1.0) == pytest.approx(0.0, abs=1e-12)


def test_sampling_begins_after_a_share_of_the_steps() -> None:
    sampling = make_sampling(steps=6, scheduled_sampling="schedule", sampling_decay=2.0)
    forms = [(sampling.set_step(step), sampling.is_active, float(sampling.gold_share)) for step in range(1, 7)]
    assert [changed for changed, _, _ in forms] == [False, False, False, False, True, False]
    assert [active for _, active, _ in forms] == [False, False, False, False, True, True]
    assert [share for _, _, share in forms[4:]] == pytest.approx([2 / 3, 2 / (2 + math.exp(0.5))])


@pytest.mark.parametrize("gold", [1.0, 0.4, 0.0])
def test_the_schedule_keeps_the_reference_with_its_probability_at_each_position(gold: float) -> None:
    torch.manual_seed(0)
    sampling = make_sampling(scheduled_sampling="schedule", sampling_position_decay=0.8)
    sampling.gold_share.fill_(gold)
    labels = torch.tensor([[5, 6, 7, 8, EOS]]).expand(4000, -1)
    target = torch.cat((torch.full((4000, 1), BOS), labels[:, :-1]), dim=1)
    mixed = sampling.mix(certain_logits(torch.full_like(labels, 9)), target, labels)
    assert (mixed[:, 0] == BOS).all()
    assert ((mixed == target) | (mixed == 9)).all()
    kept = (mixed[:, 1:] == target[:, 1:]).float().mean(0)
    assert kept.tolist() == pytest.approx([gold * 0.8**t for t in (1, 2, 3, 4)], abs=0.03)


def test_confidence_chooses_between_reference_sample_and_random_token() -> None:
    """The network prefers token 9. The probability of the reference is 0.5, 0.85, 0.95 and 0.5."""
    sampling = make_sampling(scheduled_sampling="confidence")
    labels = torch.tensor([[5, 6, 7, 8, EOS], [10, 11, EOS, PAD, PAD]]).repeat(500, 1)
    target = torch.where(labels == EOS, PAD, labels).roll(1, 1)
    target[:, 0] = BOS
    wanted = torch.tensor([0.5, 0.85, 0.95, 0.5, 0.5]).expand(labels.shape)
    probability = torch.zeros(*labels.shape, 17)
    probability[..., 9] = 1 - wanted
    probability = probability.scatter(-1, labels[..., None], wanted[..., None])
    torch.manual_seed(0)
    mixed = sampling.mix(probability.log(), target, labels)
    first, second = mixed[::2], mixed[1::2]
    assert (first[:, [0, 1, 4]] == torch.tensor([BOS, 5, 8])).all()  # not confident: the reference
    assert {*first[:, 2].tolist()} == {6, 9}  # a sample of the first pass
    assert (first[:, 2] == 6).float().mean() == pytest.approx(0.85, abs=0.06)
    assert {*first[:, 3].tolist()} == {5, 6, 7, 8, 10, 11}  # a random token of the batch
    assert (second[:, 3:] == PAD).all()


def test_samples_follow_the_softmax_without_control_tokens() -> None:
    torch.manual_seed(0)
    logits = torch.tensor([3.0, 0.0, 3.0, 3.0, 1.0, 2.0]).expand(1, 20_000, -1)
    drawn = sample_tokens(logits).flatten()
    share = torch.bincount(drawn, minlength=6) / drawn.numel()
    allowed = torch.tensor([each not in (PAD, BOS, EOS) for each in range(6)])
    expected = logits[0, 0].masked_fill(~allowed, float("-inf")).softmax(-1)
    assert int(allowed.sum()) == 3
    assert share.tolist() == pytest.approx(expected.tolist(), abs=0.015)


def test_random_target_tokens_follow_the_counts_of_the_batch() -> None:
    torch.manual_seed(0)
    labels = torch.tensor([[5, 5, 6, EOS], [7, EOS, PAD, PAD]])
    drawn = draw_target_tokens(labels, torch.Size((20_000,)))
    share = torch.bincount(drawn, minlength=8) / drawn.numel()
    assert share.tolist() == pytest.approx([0, 0, 0, 0, 0, 0.5, 0.25, 0.25], abs=0.015)


def test_a_prefix_of_the_target_stays() -> None:
    sampling = make_sampling(prefix=2, scheduled_sampling="schedule")
    sampling.gold_share.zero_()
    labels = torch.tensor([[5, 6, 7, EOS], [5, 6, EOS, PAD]])
    target = torch.tensor([[BOS, 5, 6, 7], [BOS, 5, 6, PAD]])
    assert sampling.mix(certain_logits(torch.full_like(labels, 9)), target, labels).tolist() == [
        [BOS, 5, 6, 9],
        [BOS, 5, 6, PAD],
    ]


def test_random_tokens_are_no_prefixes() -> None:
    torch.manual_seed(0)
    sampling = make_sampling(prefix=1, scheduled_sampling="confidence")
    labels = torch.tensor([[5, 6, 7, EOS]]).expand(200, -1)
    target = torch.cat((torch.full((200, 1), BOS), labels[:, :-1]), dim=1)
    mixed = sampling.mix(certain_logits(labels), target, labels)
    assert mixed[:, :2].tolist() == [[BOS, 5]] * 200
    assert {*mixed[:, 2:].flatten().tolist()} == {6, 7}


@pytest.mark.parametrize("kind", KINDS)
def test_the_end_of_a_document_stays(kind: str) -> None:
    sampling = make_sampling(scheduled_sampling=kind)
    sampling.gold_share.zero_()
    labels = torch.tensor([[7, 8, EOS, 9, 6]])
    target = torch.tensor([[BOS, 7, 8, EOS, 9]])
    assert sampling.mix(certain_logits(labels), target, labels)[0, 3] == EOS


@pytest.mark.parametrize("r_drop", [0.0, 2.0])
@pytest.mark.parametrize("kind", KINDS)
def test_the_loss_is_that_of_the_mixed_input(kind: str, r_drop: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without dropout R-Drop adds nothing. With confidence the loss is the mean of both passes."""
    inputs = list[Tensor]()
    updater = make_updater(config(**ALWAYS[kind], r_drop=r_drop))
    mix = ScheduledSampling.mix

    def record(self: ScheduledSampling, *arguments: Tensor) -> Tensor:
        inputs.append(mix(self, *arguments))
        return inputs[-1]

    monkeypatch.setattr(ScheduledSampling, "mix", record)
    torch.manual_seed(0)
    found = updater.update([BOTH])
    (mixed,) = inputs
    assert not torch.equal(mixed, BOTH.target_ids)
    network = make_updater().network
    losses = [
        training_loss(network(BOTH.source_ids, read, BOTH.source_mask), BOTH.labels, 0.1)
        for read in (BOTH.target_ids, mixed)
    ]
    expected = losses[1] if kind == "schedule" else (losses[0] + losses[1]) / 2
    assert float(found.loss) == pytest.approx(expected.item(), rel=1e-6)
    expected.backward()
    gradients = torch.stack([each.grad.norm() for each in network.parameters() if each.grad is not None])
    assert float(found.norm) == pytest.approx(float(gradients.norm()) / BOTH.tokens, rel=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_updates_before_the_start_are_plain(kind: str) -> None:
    settings = {**ALWAYS[kind], "sampling_start": 0.5}
    sampled, plain = make_updater(config(**settings)), make_updater()
    for step in range(1, 5):
        losses = float(sampled.update([BOTH]).loss), float(plain.update([BOTH]).loss)
        assert (losses[0] == losses[1]) == (step <= 3)


@pytest.mark.parametrize("kind", KINDS)
def test_all_weights_learn_in_bf16(kind: str) -> None:
    """Autocast caches converted weights. Those of a pass without gradient must not be used again."""
    updater = make_updater(config(**ALWAYS[kind], precision="bf16"))
    updater.update([BOTH])
    without = [name for name, each in updater.network.named_parameters() if each.grad is None or not each.grad.any()]
    assert without == []


@pytest.mark.parametrize("kind", KINDS)
def test_windows_of_a_language_model_are_sampled_too(kind: str) -> None:
    windows = collate_windows(RaggedArray.from_lists([[5, 6, 7, 8], [9, 10, 11, 12]]))
    updater = make_updater(config(**ALWAYS[kind]), num_encoder_layers=0)
    assert math.isfinite(float(updater.update([windows]).loss))


@pytest.mark.parametrize("kind", KINDS)
def test_accumulated_batches_have_one_loss(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a fixed sample the loss of two batches is that of one."""
    monkeypatch.setattr(scheduled_sampling, "sample_tokens", lambda logits: torch.full(logits.shape[:-1], 9))
    monkeypatch.setattr(scheduled_sampling, "draw_target_tokens", lambda labels, shape: torch.full(shape, 9))
    monkeypatch.setattr(ScheduledSampling, "_draw_gold", lambda self, gold: gold % 2 == 0)
    one, many = (make_updater(config(epsilon=1e-4, **ALWAYS[kind])) for _ in range(2))
    for _ in range(3):
        full, parts = one.update([BOTH]), many.update([BATCH, OTHER])
        assert float(parts.loss) == pytest.approx(float(full.loss), rel=1e-5)
        assert float(parts.norm) == pytest.approx(float(full.norm), rel=1e-4)


def test_the_captured_pass_is_made_anew_when_sampling_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    updater = make_updater(config(steps=6, **{**ALWAYS["schedule"], "sampling_start": 0.5}))
    made = list[int]()

    def make_pass(self: Updater) -> Any:
        made.append(self.step)
        return self._forward_backward

    monkeypatch.setattr(Updater, "_make_pass", make_pass)
    for _ in range(6):
        updater.update([BATCH])
    assert made == [4]


@pytest.mark.parametrize(
    ("changes", "code", "values"),
    [
        ({"sampling_start": 0.5}, "sampling_setting_unused", {"option": "sampling_start", "kind": "off"}),
        (
            {"scheduled_sampling": "schedule", "sampling_thresholds": (0.5, 0.6)},
            "sampling_setting_unused",
            {"option": "sampling_thresholds", "kind": "schedule"},
        ),
        (
            {"scheduled_sampling": "confidence", "sampling_decay": 50.0},
            "sampling_setting_unused",
            {"option": "sampling_decay", "kind": "confidence"},
        ),
        (
            {"scheduled_sampling": "confidence", "sampling_thresholds": (0.9, 0.8)},
            "sampling_thresholds_not_sorted",
            {"low": 0.9, "high": 0.8},
        ),
    ],
)
def test_settings_without_effect_are_rejected(changes: dict[str, Any], code: str, values: dict[str, Any]) -> None:
    with pytest.raises(UsageError, check=has_code(code, **values)):
        TrainConfig(**changes)


def test_settings_without_treatments_keep_the_others() -> None:
    settings = TrainConfig(input_noise=0.1, r_drop=2.0, scheduled_sampling="confidence", sampling_start=0.5)
    assert settings.num_passes == 4
    assert settings.without_treatments() == TrainConfig(r_drop=2.0)


@pytest.mark.parametrize("kind", KINDS)
def test_the_mixture_is_made_without_reading_a_tensor_on_the_host(kind: str) -> None:
    """A captured pass must not wait for the device. A fake tensor has no values, so reading one raises an error."""
    with FakeTensorMode():
        sampling = make_sampling(**ALWAYS[kind])
        sampling.set_step(1)
        labels = torch.ones(3, 5, dtype=torch.long)
        assert sampling.mix(torch.zeros(3, 5, 17), torch.ones_like(labels), labels).shape == labels.shape
        with pytest.raises(RuntimeError):
            int(labels.sum())
