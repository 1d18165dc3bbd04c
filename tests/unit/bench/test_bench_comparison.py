"""Comparison of systems: equal workloads, alternating rounds, medians, token agreement and BLEU."""

from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pytest
import torch
from tiny import TARGETS, tiny_model

from attendo.bench import Progress, comparison
from attendo.bench.comparison import (
    Baseline,
    BenchmarkPlan,
    BleuScorer,
    Measurement,
    collect_environment,
    compare,
    make_forced_workloads,
    token_agreement,
)
from attendo.bench.random_network import make_random_network
from attendo.bench.systems import AttendoRunner, SystemRunner, Workload, prepare_generation
from attendo.decode.engines import CachedEngine

CPU = torch.device("cpu")
WORK = Workload([[5, 6, 7], [8], [9, 10, 11, 12]], beam=1, batch=2, min_tokens=4, max_tokens=4)


@pytest.fixture(scope="module")
def network() -> Any:
    return make_random_network("tiny", 50)


@pytest.fixture(autouse=True)
def _threads_unchanged() -> Iterator[None]:
    """The benchmark must not change the number of threads."""
    before = torch.get_num_threads()
    yield
    assert torch.get_num_threads() == before


@pytest.mark.parametrize("beam", [1, 4])
def test_forced_outputs_have_exactly_the_given_steps(network: Any, beam: int) -> None:
    works = make_forced_workloads(network.config, source_length=6, steps=7, beams=[beam], batches=[3])
    outputs = prepare_generation(CachedEngine(network, 1 << 40), works[0])()
    assert [len(ids) for ids in outputs] == [7, 7, 7]
    assert {len(source) for source in works[0].sources} == {5}  # EOS is the sixth token
    assert min(min(ids) for ids in outputs) >= 1


def test_the_random_network_gives_varied_outputs() -> None:
    network = make_random_network("tiny", 2000)
    outputs = prepare_generation(
        CachedEngine(network, 1 << 40), make_forced_workloads(network.config, 12, 16, [1], [8])[0]
    )()
    assert sum(len(set(ids)) for ids in outputs) / len(outputs) > 4
    assert len({tuple(ids) for ids in outputs}) == 8


def test_outputs_do_not_depend_on_the_batch_size(network: Any) -> None:
    alone = prepare_generation(
        CachedEngine(network, 1 << 40), Workload(WORK.sources, 4, batch=1, min_tokens=4, max_tokens=4)
    )()
    together = prepare_generation(
        CachedEngine(network, 1 << 40), Workload(WORK.sources, 4, batch=3, min_tokens=4, max_tokens=4)
    )()
    assert alone == together
    assert len({tuple(ids) for ids in alone}) == 3


def test_the_attendo_runner_leaves_the_network_unchanged(network: Any) -> None:
    attendo_system = AttendoRunner(network, "bf16", CPU)
    assert isinstance(attendo_system, SystemRunner)
    assert [len(ids) for ids in attendo_system.extract_ids(attendo_system.prepare(WORK)())] == [4, 4, 4]
    assert network.output.weight.dtype == torch.float32


class ScriptedSystem:
    """A system with given outputs and given durations."""

    def __init__(self, name: str, seconds: list[float], outputs: list[list[int]], now: list[float]) -> None:
        self.name, self._seconds, self._outputs, self._now = name, iter([0.0, *seconds]), outputs, now
        self.start_times: list[float] = []

    def prepare(self, work: Workload) -> Callable[[], list[list[int]]]:
        return self._answer

    def extract_ids(self, outputs: Any) -> list[list[int]]:
        return outputs

    def _answer(self) -> list[list[int]]:
        self.start_times.append(self._now[0])
        self._now[0] += next(self._seconds)
        return self._outputs


def test_systems_alternate_in_every_round_and_medians_count(network: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    attendo_system = ScriptedSystem("attendo", [1.0, 9.0, 2.0], [[1, 2, 3, 4]], now)
    baseline = ScriptedSystem("rival", [8.0, 8.0, 1.0], [[1, 2, 9, 4]], now)
    monkeypatch.setattr(comparison, "AttendoRunner", lambda *_: attendo_system)
    monkeypatch.setattr(comparison, "load_baseline", lambda *_: baseline)
    work = Workload([[5]], beam=1, batch=1, min_tokens=4, max_tokens=4)
    plan = BenchmarkPlan(network, "fp32", [Baseline("rival", "fp32")], [work], rounds=3, device=CPU)
    reports = list(compare(plan, clock=lambda: now[0]))
    first, second = (each for each in reports if isinstance(each, Measurement))
    assert (first.seconds, first.median, first.speed, first.ratio, first.same) == (
        (1.0, 9.0, 2.0),
        2.0,
        2.0,
        None,
        None,
    )
    assert (second.seconds, second.ratio, second.same) == ((8.0, 8.0, 1.0), 4.0, 0.75)
    assert attendo_system.start_times == [0.0, 0.0, 17.0, 26.0]  # first, after the baseline, first again
    assert [each.text for each in reports if isinstance(each, Progress)][-1] == "beam 1, batch 1: round 3 of 3"


@pytest.mark.parametrize(
    ("one", "other", "share"),
    [
        ([[1, 2], [3]], [[1, 2], [3]], 1.0),
        ([[1, 2], [3]], [[1, 5], [3]], 2 / 3),
        ([[1, 2, 3]], [[1]], 1 / 3),
        ([[]], [[4, 5]], 0.0),
        ([[], []], [[], []], 1.0),
    ],
)
def test_token_agreement_counts_every_position(one: list[list[int]], other: list[list[int]], share: float) -> None:
    assert token_agreement(one, other) == token_agreement(other, one) == share


def test_eos_counts_if_it_was_generated(network: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = count()
    monkeypatch.setattr(
        comparison, "AttendoRunner", lambda *_: ScriptedSystem("attendo", [1.0], [[1, 2, 3], [1]], [0.0])
    )
    work = Workload([[5], [6]], beam=1, batch=1, min_tokens=0, max_tokens=3)
    *_, measured = compare(BenchmarkPlan(network, "fp32", [], [work], 1, CPU), clock=lambda: float(next(clock)))
    assert isinstance(measured, Measurement)
    assert measured.tokens == 3 + 2


def test_each_system_has_the_bleu_of_its_outputs(network: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("sacrebleu")
    tokenizer = tiny_model().target_tokenizer
    right = tokenizer.encode_many(TARGETS)
    attendo_system = ScriptedSystem("attendo", [1.0], right, [0.0])
    baseline = ScriptedSystem("rival", [1.0], [right[0], *right[:3]], [0.0])
    monkeypatch.setattr(comparison, "AttendoRunner", lambda *_: attendo_system)
    monkeypatch.setattr(comparison, "load_baseline", lambda *_: baseline)
    work = Workload(right, beam=1, batch=4, min_tokens=0, max_tokens=9)
    scoring = BleuScorer(TARGETS, tokenizer)
    plan = BenchmarkPlan(network, "fp32", [Baseline("rival", "fp32")], [work], 1, CPU, scoring)
    first, second = (each for each in compare(plan) if isinstance(each, Measurement))
    assert first.bleu == pytest.approx(100.0)
    assert second.bleu is not None
    assert 0 < second.bleu < 60
    assert "case:mixed" in scoring.signature


def test_without_references_there_is_no_bleu(network: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparison, "AttendoRunner", lambda *_: ScriptedSystem("attendo", [1.0], [[5]], [0.0]))
    *_, measured = compare(BenchmarkPlan(network, "fp32", [], [Workload([[5]], 1, 1, 0, 3)], 1, CPU))
    assert isinstance(measured, Measurement)
    assert measured.bleu is None


def test_environment_has_hardware_versions_and_threads() -> None:
    known = collect_environment(CPU)
    assert known["torch"] == torch.__version__
    assert known["threads"] == torch.get_num_threads()
    assert known["hardware"]
    assert set(known) >= {"attendo", "python", "transformers", "ctranslate2", "device", "cores"}
