"""The bench: the same work for all, who takes part, turns and medians, and how far answers agree."""

import sys
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny import tiny_model

from attendo.decode.engines import CachedEngine
from attendo.errors import DataError, ModelError, UsageError
from attendo.model.config import ModelConfig
from attendo.recipes.bench import (
    Doing,
    LeftOut,
    Measured,
    Plan,
    Rival,
    compare,
    comparison,
    facts,
    forced_work,
    natural_work,
    parse_rivals,
    random_network,
    rivals,
)
from attendo.recipes.bench.comparison import share_alike
from attendo.recipes.bench.ours import Ours, answering
from attendo.recipes.bench.work import System, Work

CPU = torch.device("cpu")
WORK = Work([[5, 6, 7], [8], [9, 10, 11, 12]], beam=1, batch=2, least=4, most=4)


@pytest.fixture(scope="module")
def network() -> Any:
    return random_network("tiny", 50)


@pytest.mark.parametrize("beam", [1, 4])
def test_forced_answers_have_exactly_the_steps_asked_for(network: Any, beam: int) -> None:
    works = forced_work(network.config, source_length=6, steps=7, beams=[beam], batches=[3])
    said = answering(CachedEngine(network, 1 << 40), works[0])()
    assert [len(ids) for ids in said] == [7, 7, 7]
    assert {len(source) for source in works[0].sources} == {5}  # eos is the sixth
    assert min(min(ids) for ids in said) >= 1


def test_the_random_network_does_not_say_one_word_for_ever_and_hears_its_source() -> None:
    network = random_network("tiny", 2000)
    said = answering(CachedEngine(network, 1 << 40), forced_work(network.config, 12, 16, [1], [8])[0])()
    assert sum(len(set(ids)) for ids in said) / len(said) > 4
    assert len({tuple(ids) for ids in said}) == 8


def test_answers_do_not_depend_on_the_batch_and_keep_their_order(network: Any) -> None:
    alone = answering(CachedEngine(network, 1 << 40), Work(WORK.sources, 4, batch=1, least=4, most=4))()
    together = answering(CachedEngine(network, 1 << 40), Work(WORK.sources, 4, batch=3, least=4, most=4))()
    assert alone == together
    assert len({tuple(ids) for ids in alone}) == 3


def test_ours_leaves_the_network_as_it_was(network: Any) -> None:
    ours = Ours(network, "bf16", CPU)
    assert isinstance(ours, System)
    assert [len(ids) for ids in ours.ids(ours.prepare(WORK)())] == [4, 4, 4]
    assert network.output.weight.dtype == torch.float32


@pytest.mark.parametrize("name", ["transformers", "ctranslate2"])
@pytest.mark.parametrize("beam", [1, 4])
def test_a_rival_says_the_same_in_the_order_of_the_sources(network: Any, tmp_path: Path, name: str, beam: int) -> None:
    pytest.importorskip(name)
    work = Work(WORK.sources, beam, WORK.batch, WORK.least, WORK.most)
    rival = rivals.load_rival(name, "fp32", network, CPU, work.longest, tmp_path / "files")
    assert isinstance(rival, System)
    assert rival.ids(rival.prepare(work)()) == answering(CachedEngine(network, 1 << 40), work)()


@pytest.mark.parametrize("name", ["transformers", "ctranslate2"])
def test_greedy_answers_of_natural_length_are_the_same(tmp_path: Path, name: str) -> None:
    pytest.importorskip(name)
    network = random_network("tiny", 50)
    with torch.no_grad():
        network.output.bias[3] = 9.0
    work = Work(WORK.sources, beam=1, batch=2, least=0, most=9)
    rival = rivals.load_rival(name, "fp32", network, CPU, work.longest, tmp_path / "files")
    said = rival.ids(rival.prepare(work)())
    assert said == answering(CachedEngine(network, 1 << 40), work)()
    assert 0 < sum(map(len, said)) < 27


@pytest.mark.parametrize("name", ["attendo", "transformers", "ctranslate2"])
@pytest.mark.parametrize("beam", [1, 4])
def test_an_answer_of_natural_length_may_be_empty(tmp_path: Path, name: str, beam: int) -> None:
    pytest.importorskip(name)
    network = random_network("tiny", 50)
    with torch.no_grad():
        network.output.bias[3] = 100.0
    work = Work(WORK.sources, beam, batch=2, least=0, most=9)
    system: System = Ours(network, "fp32", CPU)
    if name != "attendo":
        system = rivals.load_rival(name, "fp32", network, CPU, work.longest, tmp_path / "files")
    assert system.ids(system.prepare(work)()) == [[], [], []]


def test_a_rival_that_is_not_installed_is_named_and_left_out(network: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    monkeypatch.setattr(rivals, "find_spec", lambda name: None if name == "ctranslate2" else object())
    reports = list(compare(Plan(network, "fp32", parse_rivals("transformers,ctranslate2", "fp32"), [WORK], 1, CPU)))
    left_out = {each.name: each.reason for each in reports if isinstance(each, LeftOut)}
    assert left_out["ctranslate2 fp32"] == "ctranslate2 is not installed"
    assert "transformers" in left_out["transformers fp32"]
    assert [each.system for each in reports if isinstance(each, Measured)] == ["attendo fp32"]


@pytest.mark.parametrize(
    ("name", "precision", "config", "reason"),
    [
        ("transformers", "fp32", {}, "cannot hold this network: norm is pre"),
        ("transformers", "int8", {"norm": "post", "position_layout": "halves"}, "no int8"),
        ("ctranslate2", "fp32", {"d_value": 3}, "cannot hold this network: keys are 8"),
        ("ctranslate2", "fp16", {}, "float16"),
    ],
)
def test_what_a_rival_cannot_do_is_a_reason(
    tmp_path: Path, name: str, precision: Any, config: dict[str, Any], reason: str
) -> None:
    package = pytest.importorskip(name)
    if precision == "fp16" and "float16" in package.get_supported_compute_types("cpu"):
        pytest.skip("this processor computes in float16")
    network = tiny_model(**config).network
    with pytest.raises(ModelError, match=reason):
        rivals.load_rival(name, precision, network, CPU, 20, tmp_path / "files")


class Clockwork:
    """A system that says what it is told and takes as long as it is told."""

    def __init__(self, name: str, seconds: list[float], says: list[list[int]], now: list[float]) -> None:
        self.name, self._seconds, self._says, self._now = name, iter([0.0, *seconds]), says, now
        self.turns: list[float] = []

    def prepare(self, work: Work) -> Callable[[], list[list[int]]]:
        return self._answer

    def ids(self, said: Any) -> list[list[int]]:
        return said

    def _answer(self) -> list[list[int]]:
        self.turns.append(self._now[0])
        self._now[0] += next(self._seconds)
        return self._says


def test_all_take_turns_in_every_round_and_medians_count(network: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    ours = Clockwork("attendo", [1.0, 9.0, 2.0], [[1, 2, 3, 4]], now)
    rival = Clockwork("rival", [8.0, 8.0, 1.0], [[1, 2, 9, 4]], now)
    monkeypatch.setattr(comparison, "Ours", lambda *_: ours)
    monkeypatch.setattr(comparison, "load_rival", lambda *_: rival)
    work = Work([[5]], beam=1, batch=1, least=4, most=4)
    plan = Plan(network, "fp32", [Rival("rival", "fp32")], [work], rounds=3, device=CPU)
    reports = list(compare(plan, clock=lambda: now[0]))
    first, second = (each for each in reports if isinstance(each, Measured))
    assert (first.seconds, first.median, first.speed, first.ratio, first.same) == (
        (1.0, 9.0, 2.0),
        2.0,
        2.0,
        None,
        None,
    )
    assert (second.seconds, second.ratio, second.same) == ((8.0, 8.0, 1.0), 4.0, 0.75)
    assert ours.turns == [0.0, 0.0, 17.0, 26.0]  # first, behind the rival, first again
    assert [each.text for each in reports if isinstance(each, Doing)][-1] == "beam 1, batch 1: round 3 of 3"


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
    assert share_alike(one, other) == share_alike(other, one) == share


def test_eos_counts_where_it_was_said(network: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = count()
    monkeypatch.setattr(comparison, "Ours", lambda *_: Clockwork("attendo", [1.0], [[1, 2, 3], [1]], [0.0]))
    work = Work([[5], [6]], beam=1, batch=1, least=0, most=3)
    *_, measured = compare(Plan(network, "fp32", [], [work], 1, CPU), clock=lambda: float(next(clock)))
    assert isinstance(measured, Measured)
    assert measured.tokens == 3 + 2


def test_rivals_may_have_a_precision_of_their_own() -> None:
    assert parse_rivals(" ctranslate2:int8, transformers ,ctranslate2", "bf16") == [
        Rival("ctranslate2", "int8"),
        Rival("transformers", "bf16"),
        Rival("ctranslate2", "bf16"),
    ]
    assert parse_rivals("", "fp32") == []


@pytest.mark.parametrize(
    ("text", "message"),
    [("ctranslate", r"unknown rival ctranslate \(did you mean ctranslate2\?\)"), ("ctranslate2:fp8", "precision fp8")],
)
def test_an_unknown_rival_or_precision_is_refused(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse_rivals(text, "fp32")


def test_there_is_a_piece_of_work_for_each_beam_and_batch(network: Any) -> None:
    works = forced_work(network.config, 5, 6, beams=[1, 4], batches=[2, 3])
    assert [(work.beam, work.batch, len(work.sources)) for work in works] == [
        (1, 2, 2),
        (1, 3, 3),
        (4, 2, 2),
        (4, 3, 3),
    ]
    assert all(work.forced for work in works)
    assert works[0].sources == works[1].sources[:2]
    assert works[0].longest == 7


def test_natural_lengths_are_those_of_the_lines_that_have_text(tmp_path: Path) -> None:
    model = tiny_model()
    path = tmp_path / "lines"
    path.write_text("I love NLP\n\n  \nthe cat sat home\n", "utf-8")
    (work,) = natural_work(path, model.source_tokenizer, model.network.config, [5], [64])
    assert [len(source) for source in work.sources] == [3, 4]
    assert (work.least, work.most, work.forced) == (0, 28, False)


def test_learned_positions_are_a_limit(tmp_path: Path) -> None:
    model = tiny_model(positions="learned", max_length=8)
    path = tmp_path / "lines"
    path.write_text("I love NLP\n", "utf-8")
    (work,) = natural_work(path, model.source_tokenizer, model.network.config, [5], [64])
    assert work.most == 7
    path.write_text("I love NLP " * 2 + "I love NLP", "utf-8")
    with pytest.raises(DataError, match="a line of 9 tokens is too long for 8 positions"):
        natural_work(path, model.source_tokenizer, model.network.config, [5], [64])
    with pytest.raises(UsageError, match="the network has 8 positions, not 10"):
        forced_work(model.network.config, 5, 9, [1], [1])


def test_a_file_without_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "lines").write_text("\n \n")
    model = tiny_model()
    with pytest.raises(DataError, match="has no line with text in it"):
        natural_work(tmp_path / "lines", model.source_tokenizer, model.network.config, [5], [64])


def test_a_vocabulary_of_control_tokens_is_refused() -> None:
    with pytest.raises(UsageError, match="nothing but control tokens"):
        forced_work(ModelConfig(vocab_size=4), 5, 5, [1], [1])


def test_facts_say_hardware_versions_and_threads() -> None:
    known = facts(CPU)
    assert known["torch"] == torch.__version__
    assert known["threads"] == torch.get_num_threads()
    assert known["hardware"]
    assert set(known) >= {"attendo", "python", "transformers", "ctranslate2", "device", "cores"}


def test_a_package_that_is_not_there_has_no_version() -> None:
    assert rivals.version("no-such-package-at-all") is None


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """The bench counts threads, it does not change them."""
    before = torch.get_num_threads()
    yield
    assert torch.get_num_threads() == before
