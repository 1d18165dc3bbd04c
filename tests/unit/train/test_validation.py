"""Validation: the loss per token and scores of generated text."""

import pytest
import torch
from tiny import SOURCES, TARGETS, tiny_model

from attendo.data.batch import Example, collate
from attendo.train.config import TrainConfig
from attendo.train.loss import cross_entropy_sum
from attendo.train.update import Updater
from attendo.train.validation import Validator, validation_loss

PAIRS = list(zip(SOURCES, TARGETS, strict=True))
BATCHES = [collate([Example([5, 6, 7], [7, 6, 5]), Example([8, 9], [9, 8])]), collate([Example([6], [5, 6, 7, 8])])]


def make_validator(dropout: float = 0.0, old: list[tuple[str, str]] | None = None, **changes: object) -> Validator:
    model = tiny_model(dropout=dropout)
    updater = Updater(model.network, TrainConfig(**{"batch_tokens": 12, **changes}))
    return Validator(model, PAIRS, updater, old or [])


def test_validation_loss_is_per_token_without_smoothing() -> None:
    network = tiny_model().network
    total = sum(
        cross_entropy_sum(network(each.source_ids, each.target_ids, each.source_mask), each.labels).item()
        for each in BATCHES
    )
    expected = total / sum(batch.tokens for batch in BATCHES)
    assert validation_loss(network, BATCHES) == pytest.approx(expected, rel=1e-5)


def test_validation_uses_no_dropout_and_no_random_numbers() -> None:
    validator = make_validator(dropout=0.5)
    validator.model.network.train()
    state = torch.get_rng_state()
    first = validator(10)
    validator.model.network.train()
    assert validator(10) == first
    assert torch.equal(torch.get_rng_state(), state)


def test_a_validation_reports_loss_scores_and_samples() -> None:
    pytest.importorskip("sacrebleu")
    report = make_validator(metrics=("chrf",), best="exact_match", samples=2, metric_pairs=3)(7)
    assert report.step == 7
    assert report.scores.keys() == {"chrf", "exact_match"}
    assert "version:" in report.signatures["chrf"]
    assert [(each.source, each.reference) for each in report.samples] == PAIRS[:2]
    assert report.old == {}
    assert not report.best


def test_without_metrics_only_samples_are_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    validator = make_validator(samples=1)
    decoded: list[str] = []
    generate = validator.model.generate
    monkeypatch.setattr(validator.model, "generate", lambda texts, **_: (decoded.extend(texts), generate(texts))[1])
    report = validator(1)
    assert (decoded, report.scores) == (list(SOURCES[:1]), {})


def test_the_ema_weights_are_validated() -> None:
    validator = make_validator(ema=0.9)
    assert validator.updater.ema is not None
    before = validator(1).loss
    with torch.no_grad():
        for weight in validator.model.network.parameters():
            weight.add_(0.3)
    assert validator(1).loss == before
    for weight in validator.updater.ema.weights.values():
        weight.add_(0.3)
    assert validator(1).loss != before


def test_a_fine_tuned_model_is_validated_on_its_old_pairs() -> None:
    report = make_validator(old=PAIRS[:1], best="exact_match")(1)
    assert report.old.keys() == {"loss", "exact_match"}
    assert report.old["loss"] != report.loss
