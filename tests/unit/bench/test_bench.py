"""The bench: the same work for all, turns and medians, how far answers agree and how good they are."""

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
def _one_thread() -> Iterator[None]:
    """The bench counts threads, it does not change them."""
    before = torch.get_num_threads()
    yield
    assert torch.get_num_threads() == before


@pytest.mark.parametrize("beam", [1, 4])
def test_forced_answers_have_exactly_the_steps_asked_for(network: Any, beam: int) -> None:
    works = make_forced_workloads(network.config, source_length=6, steps=7, beams=[beam], batches=[3])
    said = prepare_generation(CachedEngine(network, 1 << 40), works[0])()
    assert [len(ids) for ids in said] == [7, 7, 7]
    assert {len(source) for source in works[0].sources} == {5}  # eos is the sixth
    assert min(min(ids) for ids in said) >= 1


def test_the_random_network_does_not_say_one_word_for_ever_and_hears_its_source() -> None:
    network = make_random_network("tiny", 2000)
    said = prepare_generation(
        CachedEngine(network, 1 << 40), make_forced_workloads(network.config, 12, 16, [1], [8])[0]
    )()
    assert sum(len(set(ids)) for ids in said) / len(said) > 4
    assert len({tuple(ids) for ids in said}) == 8


def test_answers_do_not_depend_on_the_batch_and_keep_their_order(network: Any) -> None:
    alone = prepare_generation(
        CachedEngine(network, 1 << 40), Workload(WORK.sources, 4, batch=1, min_tokens=4, max_tokens=4)
    )()
    together = prepare_generation(
        CachedEngine(network, 1 << 40), Workload(WORK.sources, 4, batch=3, min_tokens=4, max_tokens=4)
    )()
    assert alone == together
    assert len({tuple(ids) for ids in alone}) == 3


def test_ours_leaves_the_network_as_it_was(network: Any) -> None:
    ours = AttendoRunner(network, "bf16", CPU)
    assert isinstance(ours, SystemRunner)
    assert [len(ids) for ids in ours.extract_ids(ours.prepare(WORK)())] == [4, 4, 4]
    assert network.output.weight.dtype == torch.float32


class Clockwork:
    """A system that says what it is told and takes as long as it is told."""

    def __init__(self, name: str, seconds: list[float], says: list[list[int]], now: list[float]) -> None:
        self.name, self._seconds, self._says, self._now = name, iter([0.0, *seconds]), says, now
        self.turns: list[float] = []

    def prepare(self, work: Workload) -> Callable[[], list[list[int]]]:
        return self._answer

    def extract_ids(self, said: Any) -> list[list[int]]:
        return said

    def _answer(self) -> list[list[int]]:
        self.turns.append(self._now[0])
        self._now[0] += next(self._seconds)
        return self._says


def test_all_take_turns_in_every_round_and_medians_count(network: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    ours = Clockwork("attendo", [1.0, 9.0, 2.0], [[1, 2, 3, 4]], now)
    rival = Clockwork("rival", [8.0, 8.0, 1.0], [[1, 2, 9, 4]], now)
    monkeypatch.setattr(comparison, "AttendoRunner", lambda *_: ours)
    monkeypatch.setattr(comparison, "load_baseline", lambda *_: rival)
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
    assert ours.turns == [0.0, 0.0, 17.0, 26.0]  # first, behind the rival, first again
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
def test_the_share_of_like_tokens_counts_every_place_that_one_has(
    one: list[list[int]], other: list[list[int]], share: float
) -> None:
    assert token_agreement(one, other) == token_agreement(other, one) == share


def test_eos_counts_where_it_was_said(network: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = count()
    monkeypatch.setattr(comparison, "AttendoRunner", lambda *_: Clockwork("attendo", [1.0], [[1, 2, 3], [1]], [0.0]))
    work = Workload([[5], [6]], beam=1, batch=1, min_tokens=0, max_tokens=3)
    *_, measured = compare(BenchmarkPlan(network, "fp32", [], [work], 1, CPU), clock=lambda: float(next(clock)))
    assert isinstance(measured, Measurement)
    assert measured.tokens == 3 + 2


def test_each_system_has_the_bleu_of_what_it_says(network: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("sacrebleu")
    tokenizer = tiny_model().target_tokenizer
    right = tokenizer.encode_many(TARGETS)
    ours = Clockwork("attendo", [1.0], right, [0.0])
    rival = Clockwork("rival", [1.0], [right[0], *right[:3]], [0.0])
    monkeypatch.setattr(comparison, "AttendoRunner", lambda *_: ours)
    monkeypatch.setattr(comparison, "load_baseline", lambda *_: rival)
    work = Workload(right, beam=1, batch=4, min_tokens=0, max_tokens=9)
    scoring = BleuScorer(TARGETS, tokenizer)
    plan = BenchmarkPlan(network, "fp32", [Baseline("rival", "fp32")], [work], 1, CPU, scoring)
    first, second = (each for each in compare(plan) if isinstance(each, Measurement))
    assert first.bleu == pytest.approx(100.0)
    assert second.bleu is not None
    assert 0 < second.bleu < 60
    assert "case:mixed" in scoring.signature


def test_without_references_there_is_no_bleu(network: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparison, "AttendoRunner", lambda *_: Clockwork("attendo", [1.0], [[5]], [0.0]))
    *_, measured = compare(BenchmarkPlan(network, "fp32", [], [Workload([[5]], 1, 1, 0, 3)], 1, CPU))
    assert isinstance(measured, Measurement)
    assert measured.bleu is None


def test_facts_say_hardware_versions_and_threads() -> None:
    known = collect_environment(CPU)
    assert known["torch"] == torch.__version__
    assert known["threads"] == torch.get_num_threads()
    assert known["hardware"]
    assert set(known) >= {"attendo", "python", "transformers", "ctranslate2", "device", "cores"}
