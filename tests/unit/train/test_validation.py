"""Validation: the loss per token, and scores of the text that the model makes."""

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


def validator(dropout: float = 0.0, old: list[tuple[str, str]] | None = None, **changes: object) -> Validator:
    model = tiny_model(dropout=dropout)
    learner = Updater(model.network, TrainConfig(**{"batch_tokens": 12, **changes}))
    return Validator(model, PAIRS, learner, old or [])


def test_the_loss_is_per_token_over_all_batches_and_never_smoothed() -> None:
    network = tiny_model().network
    total = sum(
        cross_entropy_sum(network(each.source_ids, each.target_ids, each.source_mask), each.labels).item()
        for each in BATCHES
    )
    expected = total / sum(batch.tokens for batch in BATCHES)
    assert validation_loss(network, BATCHES) == pytest.approx(expected, rel=1e-5)


def test_validation_knows_no_dropout_and_draws_nothing() -> None:
    made = validator(dropout=0.5)
    made.model.network.train()
    state = torch.get_rng_state()
    first = made(10)
    made.model.network.train()
    assert made(10) == first
    assert torch.equal(torch.get_rng_state(), state)


def test_a_validation_tells_loss_scores_and_samples() -> None:
    pytest.importorskip("sacrebleu")
    told = validator(metrics=("chrf",), best="exact_match", samples=2, metric_pairs=3)(7)
    assert told.step == 7
    assert told.scores.keys() == {"chrf", "exact_match"}
    assert "version:" in told.signatures["chrf"]
    assert [(each.source, each.reference) for each in told.samples] == PAIRS[:2]
    assert told.old == {}
    assert not told.best


def test_without_scores_only_the_samples_are_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    made = validator(samples=1)
    decoded: list[str] = []
    generate = made.model.generate
    monkeypatch.setattr(made.model, "generate", lambda texts, **_: (decoded.extend(texts), generate(texts))[1])
    told = made(1)
    assert (decoded, told.scores) == (list(SOURCES[:1]), {})


def test_the_averaged_weights_are_those_that_are_validated() -> None:
    made = validator(ema=0.9)
    assert made.updater.ema is not None
    before = made(1).loss
    with torch.no_grad():
        for weight in made.model.network.parameters():
            weight.add_(0.3)
    assert made(1).loss == before
    for weight in made.updater.ema.weights.values():
        weight.add_(0.3)
    assert made(1).loss != before


def test_what_a_fine_tuned_model_forgets_shows_on_its_old_pairs() -> None:
    told = validator(old=PAIRS[:1], best="exact_match")(1)
    assert told.old.keys() == {"loss", "exact_match"}
    assert told.old["loss"] != told.loss
