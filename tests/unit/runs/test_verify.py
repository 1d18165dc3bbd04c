"""`attendo verify`: all paths agree for every kind of network, and injected faults are found."""

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny import SOURCES, parallel_model, tiny_model
from torch import Tensor
from typer.testing import CliRunner

from attendo.cli.main import app
from attendo.decode.frontier import Frontier, RowLimits
from attendo.model.decoder_state import StaticCacheState
from attendo.runs import verify as recipe
from attendo.runs.verify import (
    PARALLEL_SEARCHES,
    ComparedHypothesis,
    PathComparison,
    ScoredHypothesis,
    compare_hypotheses,
    verify,
)
from attendo.text import EOS
from attendo.text_model import TextModel

OPTIONS: list[dict[str, Any]] = [
    {},
    {"norm": "post", "activation": "gelu", "tie": "none"},
    {"norm_kind": "rms", "activation": "swiglu", "positions": "rotary"},
    {"positions": "learned", "activation": "silu", "embedding_norm": True, "output_bias": True},
    {"positions": "none", "tie": "output", "scale_embedding": False},
    {"positions": "relative", "linear_bias": False, "attention_scale": 1.0, "output_scale": 0.25},
    {"position_layout": "halves", "position_offset": 2, "d_key": 6, "d_value": 3},
]
FAST = {"fast", "fast, batches of 7", "fast, one slot"}


def make_model(layers: int = 1, **changes: Any) -> TextModel:
    sizes = {"num_encoder_layers": layers, "num_decoder_layers": layers}
    model = tiny_model(2, **{"tie": "none", **sizes, **changes})
    with torch.no_grad():
        model.network.output.weight.mul_(3.0)
        model.network.output.weight[EOS].mul_(2.0)
    model.generation = model.generation.override(max_length_extra=3, max_length_factor=1.0)
    return model


def differing_paths(model: TextModel, texts: Sequence[str] = SOURCES) -> list[PathComparison]:
    return [each for each in verify(model, texts) if not each.equal]


# Random networks of every option are compared in tests/reliability/test_verify_options.py.
@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [each if n < 2 else pytest.param(each, marks=pytest.mark.slow) for n, each in enumerate(OPTIONS)],
    ids=str,
)
def test_all_paths_of_a_network_agree(options: dict[str, Any]) -> None:
    found = list(verify(make_model(layers=2, **options), ["", *SOURCES]))
    assert [each for each in found if not each.equal] == []
    assert {each.what for each in found} == {"sub-layers", "greedy", "beam 4", "samples"}
    assert all(each.count >= len(SOURCES) for each in found if each.path.startswith(("cached", "fast")))


@pytest.mark.slow
def test_a_cache_that_drops_a_position_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def read_without_first(self: StaticCacheState, ids: Tensor, mask: Tensor | None) -> Any:
        state, cache = read(self, ids, mask)
        cache.visible[..., 0] = False
        return state, cache

    read = StaticCacheState.read
    monkeypatch.setattr(StaticCacheState, "read", read_without_first)
    assert {each.path for each in differing_paths(make_model(), SOURCES * 2)} == FAST


@pytest.mark.slow
def test_a_beam_with_wrong_parents_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StaticCacheState, "reorder", lambda self, parents: self)
    assert {(each.path, each.what) for each in differing_paths(make_model())} == {
        ("fast", "beam 4"),
        ("fast, one slot", "beam 4"),
    }


def test_a_wrong_score_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def start_with_offset(limits: RowLimits, width: int = 1, capacity: int | None = None) -> Frontier:
        frontier = start(limits, width, capacity)
        return replace(frontier, log_probability=frontier.log_probability + 0.5)

    start = Frontier.start
    monkeypatch.setattr(Frontier, "start", staticmethod(start_with_offset))
    assert "the score of an answer" in {each.path for each in differing_paths(make_model())}


GOOD = ComparedHypothesis((5, 6), -1.0, -0.5)


def compare_with(*found: ScoredHypothesis, expected: tuple[ScoredHypothesis, ...] = (GOOD, GOOD)) -> PathComparison:
    return compare_hypotheses("fast", "beam 4", [(found, expected)], 0.1, lambda ids: " ".join(map(str, ids)))


def test_ties_are_checked_for_every_hypothesis() -> None:
    as_good, worse = ComparedHypothesis((7,), -1.0, -0.45), ComparedHypothesis((7,), -9.0, -9.0)
    assert (compare_with(GOOD, GOOD).different, compare_with(GOOD, GOOD).equal) == (0, True)
    assert (compare_with(GOOD, as_good).ties, compare_with(GOOD, as_good).equal) == (1, True)
    assert (compare_with(GOOD, worse).ties, compare_with(GOOD, worse).equal) == (0, False)
    assert compare_with(GOOD, worse).example == "'7' and '5 6'"


def test_nan_is_a_difference_and_equal_infinities_are_not() -> None:
    not_a_number, nothing = (
        ComparedHypothesis(GOOD.ids, math.nan, math.nan),
        ComparedHypothesis(GOOD.ids, -math.inf, -math.inf),
    )
    assert not compare_with(GOOD, not_a_number).equal
    assert not compare_with(GOOD, not_a_number, expected=(GOOD, not_a_number)).equal
    assert not compare_with(GOOD, ComparedHypothesis((7,), math.nan, math.nan)).equal
    assert not compare_with(GOOD, nothing).equal
    assert compare_with(GOOD, nothing, expected=(GOOD, nothing)).equal


def test_a_missing_hypothesis_is_a_difference() -> None:
    assert not compare_with(GOOD).equal
    assert compare_with(GOOD).example == "1 hypotheses and 2"
    assert not compare_with().equal


@pytest.mark.slow
def test_scores_of_truncated_answers_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    model = make_model()
    with torch.no_grad():
        model.network.output.weight[EOS].mul_(0.0)
    model.generation = model.generation.override(max_length_extra=1, max_length_factor=0.0)
    scores = [each for each in verify(model, SOURCES) if each.path == "the score of an answer"]
    assert [(each.what, each.count, each.equal) for each in scores] == [
        (what, len(SOURCES), True) for what in recipe.STRATEGIES
    ]


def test_a_precision_has_its_own_tolerance() -> None:
    found = next(iter(verify(make_model(), SOURCES[:1], "bf16")))
    assert (found.equal, found.allowed >= recipe.TOLERANCE[torch.bfloat16]) == (True, True)


@pytest.mark.slow
def test_an_overflow_is_a_difference() -> None:
    model = make_model()
    with torch.no_grad():
        model.network.output.weight.mul_(1e5)
    found = {(each.path, each.what): each for each in verify(model, SOURCES[:2], "fp16")}
    assert not found["output", "sub-layers"].equal
    assert not found["fast", "greedy"].equal


def test_too_long_sentences_are_skipped_with_a_message(tmp_path: Path) -> None:
    make_model().save(tmp_path / "model")
    (tmp_path / "some.txt").write_text(f"{SOURCES[0]}\n{'a ' * 5_000}\n", "utf-8")
    command = ["verify", str(tmp_path / "model"), "--source", str(tmp_path / "some.txt"), "--device", "cpu", "--json"]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0
    assert done.stderr == "1 of 2 sentences have more than 256 tokens and are left out\n"
    assert {json.loads(line)["count"] for line in done.stdout.splitlines() if '"cached"' in line} == {1}


@pytest.mark.parametrize("kind", PARALLEL_SEARCHES)
def test_the_tables_have_every_comparison_of_a_parallel_model(tmp_path: Path, kind: str) -> None:
    parallel_model(kind).save(tmp_path / "model")
    (tmp_path / "some.txt").write_text("\n".join(SOURCES[:2]), "utf-8")
    command = ["verify", str(tmp_path / "model"), "--source", str(tmp_path / "some.txt"), "--device", "cpu"]
    shown = CliRunner().invoke(app, command)
    comparisons = CliRunner().invoke(app, [*command, "--json"]).stdout.splitlines()
    assert (shown.exit_code, shown.stdout.count("same ")) == (0, len(comparisons))
    assert all(search.split()[0] in shown.stdout for search in PARALLEL_SEARCHES[kind])


@pytest.mark.slow
def test_differences_are_printed_and_exit_with_code_1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_model().save(tmp_path / "model")
    (tmp_path / "some.txt").write_text("\n".join(SOURCES), "utf-8")
    command = ["verify", str(tmp_path / "model"), "--source", str(tmp_path / "some.txt"), "--device", "cpu"]
    equal = CliRunner().invoke(app, command)
    assert (equal.exit_code, "all paths agree" in equal.stdout) == (0, True)
    monkeypatch.setattr(StaticCacheState, "reorder", lambda self, parents: self)
    different = CliRunner().invoke(app, command)
    assert different.exit_code == 1
    assert "differ" in different.stdout
