"""The training loop as a stream of reports."""

import math
from collections.abc import Callable, Iterator
from itertools import islice, repeat
from typing import Any

import pytest
import torch

from attendo.data.batch import Batch, Example, collate
from attendo.errors import AttendoError, UsageError
from attendo.model.transformer import Transformer
from attendo.train.config import TrainConfig
from attendo.train.loop import DivergedError, Step, Validation, train, validation_loss
from attendo.train.loss import summed_loss
from attendo.train.schedule import inverse_square_root

Networks = Callable[..., Transformer]

BATCH = collate([Example([5, 6, 7], [7, 6, 5]), Example([8, 9], [9, 8])])
OTHER = collate([Example([10, 5], [5, 10, 11, 12])])


def config(**changes: Any) -> TrainConfig:
    return TrainConfig(**{"steps": 6, "warmup": 3, "peak_lr": 1e-2, "validate_every": 4, **changes})


def test_there_is_a_step_for_every_update_and_a_validation_now_and_then_and_at_the_end(small_network: Networks) -> None:
    reports = list(train(small_network(), repeat(BATCH), [OTHER], config()))
    told = [(type(report).__name__, report.step) for report in reports]
    steps = [("Step", n) for n in range(1, 7)]
    assert told == [*steps[:4], ("Validation", 4), *steps[4:], ("Validation", 6)]


def test_the_last_step_is_validated_once(small_network: Networks) -> None:
    reports = list(train(small_network(), repeat(BATCH), [OTHER], config(steps=4)))
    assert [report.step for report in reports if isinstance(report, Validation)] == [4]


def test_a_step_tells_what_was_done(small_network: Networks) -> None:
    steps = [report for report in train(small_network(), repeat(BATCH), [], config()) if isinstance(report, Step)]
    assert [step.lr for step in steps] == [inverse_square_root(n, 1e-2, 3) for n in range(1, 7)]
    assert {(step.tokens, step.positions) for step in steps} == {(BATCH.tokens, BATCH.positions)}
    assert [step.seconds for step in steps] == sorted(step.seconds for step in steps)


def test_the_first_loss_is_that_of_the_untrained_network_per_token(small_network: Networks) -> None:
    first = next(train(small_network(), repeat(BATCH), [], config(label_smoothing=0.2)))
    logits = small_network()(BATCH.source_ids, BATCH.target_ids, BATCH.source_mask)
    assert first.loss == pytest.approx(summed_loss(logits, BATCH.labels, 0.2).item() / BATCH.tokens, rel=1e-5)


def test_the_loss_falls(small_network: Networks) -> None:
    reports = list(train(small_network(), repeat(BATCH), [BATCH], config(steps=60, label_smoothing=0.0)))
    assert reports[-1].loss < 0.2 * reports[0].loss


def test_the_validation_loss_is_per_token_over_all_batches_and_never_smoothed(small_network: Networks) -> None:
    network = small_network()
    total = sum(
        summed_loss(network(each.source_ids, each.target_ids, each.source_mask), each.labels).item()
        for each in (BATCH, OTHER)
    )
    assert validation_loss(network, [BATCH, OTHER]) == pytest.approx(total / (BATCH.tokens + OTHER.tokens), rel=1e-5)


def test_validation_knows_no_dropout_and_training_goes_on_with_it(small_network: Networks) -> None:
    network = small_network(dropout=0.5)
    assert validation_loss(network.train(), [OTHER]) == validation_loss(network.train(), [OTHER])
    next(train(network, repeat(BATCH), [], config()))
    losses = {next(train(network, repeat(BATCH), [], config(peak_lr=1e-30))).loss for _ in range(3)}
    assert len(losses) == 3


def test_the_same_seed_trains_the_same_network(small_network: Networks) -> None:
    weights = []
    for _ in range(2):
        network = small_network(dropout=0.3)
        torch.manual_seed(7)
        list(train(network, repeat(BATCH), [OTHER], config()))
        weights.append([weight.clone() for weight in network.parameters()])
    assert all(torch.equal(one, other) for one, other in zip(*weights, strict=True))


def test_training_stops_when_nobody_listens(small_network: Networks) -> None:
    taken: list[Batch] = []

    def batches() -> Iterator[Batch]:
        while True:
            taken.append(BATCH)
            yield BATCH

    assert len(list(islice(train(small_network(), batches(), [], config()), 2))) == 2
    assert len(taken) == 2


@pytest.mark.parametrize("broken", [math.nan, math.inf])
def test_a_loss_that_is_no_number_stops_the_run_and_says_what_to_change(
    small_network: Networks, broken: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("attendo.train.loop.summed_loss", lambda logits, *rest: logits.sum() * 0 + broken)
    with pytest.raises(DivergedError, match=r"step 1 .* lower peak_lr.* 0\.01"):
        next(train(small_network(), repeat(BATCH), [], config()))


def test_too_few_batches_are_told(small_network: Networks) -> None:
    with pytest.raises(AttendoError):
        list(train(small_network(), [BATCH] * 3, [], config()))


def test_gradients_are_clipped(small_network: Networks) -> None:
    """Adam makes the same first update of small gradients and large ones, so the gradients themselves are looked at."""
    network = small_network()
    next(train(network, repeat(BATCH), [], config(clip_norm=1e-3)))
    norm = torch.cat([weight.grad.flatten() for weight in network.parameters() if weight.grad is not None]).norm()
    assert norm.item() == pytest.approx(1e-3, rel=1e-3)


@pytest.mark.parametrize(
    "wrong",
    [{"steps": 0}, {"batch_tokens": 0}, {"peak_lr": 0}, {"warmup": -1}, {"label_smoothing": 1}, {"clip_norm": 0}],
)
def test_settings_that_cannot_be_meant_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=next(iter(wrong))):
        TrainConfig(**wrong)
