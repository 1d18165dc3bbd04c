"""Network checks of the doctor: each fault is injected once, and a correct network gives no finding."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from doctor_runs import built_run, find_check, parallel_text
from torch import Tensor, nn

from attendo.data.batch import Batch, Example, collate, collate_sequences
from attendo.doctor import Finding
from attendo.doctor.checks import examine_network
from attendo.doctor.network import check_causal_leak, check_padding, check_shift, check_tying, pick_pairs, take_batches
from attendo.doctor.training_checks import check_first_loss, check_overfitting
from attendo.errors import UsageError
from attendo.nn.masks import Mask
from attendo.runs.run import Run
from attendo.text import BOS, EOS, PAD, Words
from attendo.train.loss import training_loss

NETWORK_CHECKS = ["tying", "shift", "causal leak", "padding", "first loss", "memory"]
TEXT = parallel_text(60)


@pytest.fixture(autouse=True)
def _without_memory_check(monkeypatch: pytest.MonkeyPatch) -> None:
    found = Finding("memory", "ok", "enough")
    monkeypatch.setattr("attendo.doctor.checks.check_memory", lambda updater, data, measure: found)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return built_run(tmp_path, TEXT)


def quick_findings(run: Run) -> list[Finding]:
    return list(examine_network(run, quick=True))


def list_batches(run: Run) -> list[Batch]:
    return take_batches(run.trainer.stream)


@pytest.mark.short(2)
@pytest.mark.parametrize(
    "model",
    [
        {},
        {"norm": "post"},
        {"positions": "rotary"},
        {"positions": "relative", "output_scale": 0.5},
        {"positions": "learned", "max_length": 40},
        {"tie": "none", "dropout": 0.0},
        {"d_model": 64, "num_heads": 4},
    ],
)
def test_a_correct_network_gives_no_finding(tmp_path: Path, model: dict[str, Any]) -> None:
    findings = quick_findings(built_run(tmp_path, TEXT, model=model))
    assert [finding.check for finding in findings] == [*NETWORK_CHECKS]
    assert {finding.check: finding.level for finding in findings if finding.level != "ok"} == {}


@pytest.mark.parametrize("dropout", [0.0, 0.2])
@pytest.mark.parametrize("ahead", [1, 100])
def test_a_decoder_that_attends_ahead_is_a_causal_leak(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ahead: int, dropout: float
) -> None:
    def leaky_mask(past: int, queries: int, is_token: object, device: torch.device) -> Mask:
        position = torch.arange(queries)
        return Mask((position[None, :] <= position[:, None] + ahead)[None, None])

    run = built_run(tmp_path, TEXT, model={"dropout": dropout})
    monkeypatch.setattr("attendo.model.decoder_state.causal_mask", leaky_mask)
    found = find_check(quick_findings(run), "causal leak")
    assert (found.level, found.about) == ("fault", "network")
    assert found.values["change"] > 0.01
    assert "causal mask" in found.advice


def test_a_leak_only_in_training_mode_is_found(run: Run) -> None:
    class AttendsAhead(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x + x.roll(-1, dims=1) if self.training else x

    run.model.network.decoder_norm = AttendsAhead()
    assert find_check(quick_findings(run), "causal leak").level == "fault"


def test_a_missing_source_mask_is_found_with_equal_lengths(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches of equal length would hide it."""
    pairs = [Example([4 + n] * 6, [4 + n] * 6) for n in range(4)]
    assert check_padding(run.trainer.updater, pairs).level == "ok"
    monkeypatch.setattr("attendo.doctor.network.collate", lambda examples: replace(collate(examples), source_mask=None))
    found = check_padding(run.trainer.updater, pairs)
    assert (found.level, found.values["by_neighbours"] > 0.01) == ("fault", True)


def test_attended_padding_is_found(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("attendo.model.transformer.padding_mask", lambda is_token: Mask())
    findings = quick_findings(run)
    found = find_check(findings, "padding")
    assert found.level == "fault"
    assert found.values["by_padding"] > 0.01
    assert find_check(findings, "causal leak").level == "ok"


def test_a_sentence_that_depends_on_its_neighbours_is_found(run: Run) -> None:
    class MixesRows(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x + x.mean(dim=0, keepdim=True)

    run.model.network.encoder_norm = MixesRows()
    found = find_check(quick_findings(run), "padding")
    assert (found.level, found.found.split(" changes")[0]) == ("fault", "a longer sentence in the same batch")


def unshifted(batch: Batch) -> Batch:
    return replace(batch, target_ids=batch.labels)


def without_bos(batch: Batch) -> Batch:
    return replace(batch, target_ids=batch.target_ids.masked_fill(batch.target_ids == BOS, 5))


def without_eos(batch: Batch) -> Batch:
    return replace(batch, labels=batch.labels.masked_fill(batch.labels == EOS, PAD))


def going_on_after_eos(batch: Batch) -> Batch:
    column = batch.labels[:, :1]
    labels = torch.cat((batch.labels, torch.full_like(column, 5)), dim=1)
    return replace(batch, labels=labels, target_ids=torch.cat((batch.target_ids, torch.full_like(column, PAD)), dim=1))


def two_steps_ahead(batch: Batch) -> Batch:
    labels = torch.cat((batch.labels[:, 1:], torch.full_like(batch.labels[:, :1], PAD)), dim=1)
    return replace(batch, labels=labels)


def source_without_eos(batch: Batch) -> Batch:
    return replace(batch, source_ids=batch.source_ids.masked_fill(batch.source_ids == EOS, 5))


def other_pairs(batch: Batch) -> Batch:
    return replace(batch, numbers=batch.numbers[1:] + batch.numbers[:1])


@pytest.mark.short(3)
@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (unshifted, "not bos"),
        (without_bos, "not bos"),
        (without_eos, "do not end with eos"),
        (going_on_after_eos, "do not end with eos"),
        (two_steps_ahead, "one step ahead"),
        (source_without_eos, "the source does not end with eos"),
        (other_pairs, "is not that of the pair in the prepared data"),
    ],
)
def test_a_wrong_batch_is_found(run: Run, change: Callable[[Batch], Batch], fault: str) -> None:
    batches = list_batches(run)
    assert check_shift(batches, run.data, resegmented=False).level == "ok"
    found = check_shift([change(batch) for batch in batches], run.data, resegmented=False)
    assert found.level == "fault"
    assert fault in found.examples[0]
    assert len(found.examples) <= 3


def test_the_batches_of_the_stream_are_checked(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def collate_unshifted(*parts: Any) -> Batch:
        return unshifted(collate_sequences(*parts))

    monkeypatch.setattr("attendo.data.sampler.collate_sequences", collate_unshifted)
    found = find_check(quick_findings(run), "shift")
    assert (found.level, found.values["faults"]) == ("fault", found.values["rows"])


def test_labels_are_compared_with_the_validation_text(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Words, "decode", lambda self, ids: "something else")
    found = check_shift([], run.data, resegmented=False)
    assert found.level == "fault"
    assert found.examples[0].startswith("validation pair 1: read back it is not ")


def test_bpe_dropout_pieces_are_compared_as_text(tmp_path: Path) -> None:
    settings = {"kind": "bpe", "size": 300, "dropout": 0.5}
    run = built_run(tmp_path, TEXT, tokenizer=settings)
    batches = list_batches(run)
    assert find_check(quick_findings(run), "shift").level == "ok"
    assert check_shift(batches, run.data, resegmented=False).level == "fault", "the pieces are not those of the shards"
    assert check_shift([other_pairs(batch) for batch in batches], run.data, resegmented=True).level == "fault"


def test_tied_embeddings_with_two_vocabularies_are_a_fault(tmp_path: Path) -> None:
    run = built_run(tmp_path, TEXT, tokenizer={"joint": True}, model={"tie": "all"})
    network, data = run.model.network, run.data
    assert check_tying(network, data).level == "ok"
    twin = Words(data.target_tokenizer.entries)  # type: ignore[attr-defined]
    found = check_tying(network, replace(data, target_tokenizer=twin))
    assert (found.level, found.about) == ("fault", "network")
    assert "vocabularies of their own" in found.found
    assert "tokenizer.joint" in found.advice


def test_an_embedding_of_the_wrong_size_is_a_fault(run: Run) -> None:
    larger = Words.build([f"word{n}" for n in range(500)])
    found = check_tying(run.model.network, replace(run.data, source_tokenizer=larger))
    rows = run.data.source_tokenizer.vocab_size
    assert found.level == "fault"
    assert f"source table has {rows:,} rows for a vocabulary of {larger.vocab_size}" in found.found
    found = check_tying(run.model.network, replace(run.data, target_tokenizer=larger))
    assert found.found.count("rows for a vocabulary") == 2, "the embedding and the output"


def test_tying_that_differs_from_the_settings_is_a_fault(run: Run) -> None:
    network = run.model.network
    network.output.weight = nn.Parameter(network.output.weight.detach().clone())
    assert (
        "the output does not share the target table, against model.tie output" in check_tying(network, run.data).found
    )
    run.data = replace(run.data, source_tokenizer=Words.build([f"word{n}" for n in range(900)]))
    assert [finding.check for finding in quick_findings(run)] == ["tying"], "ids would exceed the embeddings"


def test_untied_embeddings_of_a_joint_vocabulary_are_a_note(tmp_path: Path) -> None:
    run = built_run(tmp_path, TEXT, tokenizer={"joint": True}, model={"tie": "output"})
    found = check_tying(run.model.network, run.data)
    assert (found.level, found.values["parameters"]) == ("note", 16 * run.data.source_tokenizer.vocab_size)


def test_too_large_initial_weights_are_a_warning(run: Run) -> None:
    with torch.no_grad():
        for weight in run.model.network.parameters():
            weight *= 4
    found = find_check(quick_findings(run), "first loss")
    assert found.level == "warning"
    assert found.values["loss"] > found.values["ln_v"] + 2
    assert f"{found.values['loss']:.2f}" in found.found
    assert f"{found.values['ln_v']:.2f}" in found.found


def test_a_tied_embedding_that_repeats_its_input_is_ok(tmp_path: Path) -> None:
    """With a small vocabulary this alone makes the loss much larger than ln V."""
    run = built_run(tmp_path, TEXT, model={"d_model": 128, "num_heads": 4}, tokenizer={"kind": "characters"})
    found = find_check(quick_findings(run), "first loss")
    assert found.values["loss"] > 1.3 * found.values["ln_v"]
    assert found.level == "ok"
    assert found.values["without_repeats"] == pytest.approx(found.values["ln_v"] + 0.5, abs=0.5)


def test_a_trained_network_must_beat_a_uniform_prediction(tmp_path: Path) -> None:
    run = built_run(tmp_path, TEXT, train={"schedule": "constant", "peak_lr": 0.02, "warmup": 0})
    updater, pairs = run.trainer.updater, pick_pairs(list_batches(run), run.model.network)
    assert check_first_loss(updater, pairs, trained=True).level == "warning"
    while updater.step < 10:
        updater.update([collate(pairs)])
    assert check_first_loss(updater, pairs, trained=True).level == "ok"


def test_a_few_pairs_can_be_overfitted(run: Run) -> None:
    pairs = pick_pairs(list_batches(run), run.model.network)
    found = check_overfitting(run.trainer.updater, pairs)
    assert found.level == "ok"
    assert found.values["last"] <= 0.1 * found.values["first"]


@pytest.mark.slow
def test_a_lower_learning_rate_is_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("attendo.doctor.training_checks.ATTEMPTS", ((1e6, 5), (0.02, 200)))
    run = built_run(tmp_path, TEXT)
    found = check_overfitting(run.trainer.updater, pick_pairs(list_batches(run), run.model.network))
    assert (found.level, found.values["steps"] > 5) == ("ok", True)


@pytest.mark.slow
def test_slow_learning_is_a_warning(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("attendo.doctor.training_checks.ATTEMPTS", ((0.02, 45),))
    found = check_overfitting(run.trainer.updater, pick_pairs(list_batches(run), run.model.network))
    assert 0.1 < found.values["last"] / found.values["first"] < 0.5
    assert found.level == "warning"


def test_a_network_without_gradient_is_a_fault(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def without_gradient(logits: Tensor, labels: Tensor, *settings: float) -> Tensor:
        return training_loss(logits.detach(), labels, *settings) + 0 * logits.sum()

    monkeypatch.setattr("attendo.train.update.training_loss", without_gradient)
    monkeypatch.setattr("attendo.doctor.training_checks.ATTEMPTS", ((0.02, 10), (0.002, 20)))
    found = check_overfitting(run.trainer.updater, pick_pairs(list_batches(run), run.model.network))
    assert (found.level, found.values["steps"]) == ("fault", 20)
    assert found.values["last"] == pytest.approx(found.values["first"])


def test_picked_pairs_are_long_with_different_sources(run: Run) -> None:
    pairs = pick_pairs(list_batches(run), run.model.network)
    assert len({tuple(pair.source) for pair in pairs}) == 4
    assert min(len(pair.source) for pair in pairs) >= 15
    controls: Sequence[int] = (PAD, BOS, EOS)
    assert not any(each in controls for pair in pairs for each in (*pair.source, *pair.target))


def test_a_check_that_raises_is_a_fault(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> Finding:
        raise UsageError("settings_invalid", faults="too long")

    monkeypatch.setattr("attendo.doctor.checks.check_padding", fail)
    findings = quick_findings(run)
    assert find_check(findings, "padding") == Finding("padding", "fault", "too long", about="network")
    assert findings[-1].check == "memory", "the other checks still run"


def test_the_causal_check_tests_both_ends_of_the_target(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """A leak only between the last two tokens."""

    def leaky_mask(past: int, queries: int, is_token: object, device: torch.device) -> Mask:
        visible = torch.ones(queries, queries, dtype=torch.bool).tril()
        visible[-2, -1] = True
        return Mask(visible[None, None])

    monkeypatch.setattr("attendo.model.decoder_state.causal_mask", leaky_mask)
    pairs = pick_pairs(list_batches(run), run.model.network)
    found = check_causal_leak(run.trainer.updater, pairs)
    assert (found.level, found.values["position"]) == ("fault", max(len(pair.target) for pair in pairs) - 1)
    assert check_padding(run.trainer.updater, pairs).level == "fault"
