"""`attendo verify`: every path agrees for every kind of network, and each thing that can go wrong is found."""

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny import SOURCES, tiny_model
from torch import Tensor
from typer.testing import CliRunner

from attendo.cli.main import app
from attendo.decode.frontier import Frontier, RowLimits
from attendo.model.decoder_state import StaticCacheState
from attendo.runs import verify as recipe
from attendo.runs.verify import ComparedHypothesis, PathComparison, ScoredHypothesis, compare_hypotheses, verify
from attendo.text import EOS
from attendo.text_model import TextModel

OPTIONS: list[dict[str, Any]] = [
    {},
    {"norm": "post", "activation": "gelu", "tie": "none"},
    {"norm_kind": "rms", "activation": "swiglu", "positions": "rotary"},
    {"positions": "learned", "activation": "silu", "embedding_norm": True, "output_bias": True},
    {"positions": "none", "tie": "output", "scale_embedding": False},
    {"position_layout": "halves", "position_offset": 2, "d_key": 6, "d_value": 3},
]
FAST = {"fast", "fast, batches of 7", "fast, one slot"}


def lively(layers: int = 1, **changes: Any) -> TextModel:
    sizes = {"num_encoder_layers": layers, "num_decoder_layers": layers}
    model = tiny_model(2, **{"tie": "none", **sizes, **changes})
    with torch.no_grad():
        model.network.output.weight.mul_(3.0)
        model.network.output.weight[EOS].mul_(2.0)
    model.generation = model.generation.override(max_length_extra=3, max_length_factor=1.0)
    return model


def wrong(model: TextModel, texts: Sequence[str] = SOURCES) -> list[PathComparison]:
    return [each for each in verify(model, texts) if not each.equal]


# Random networks of every option are compared in tests/reliability/test_verify_options.py.
@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [each if n < 2 else pytest.param(each, marks=pytest.mark.slow) for n, each in enumerate(OPTIONS)],
    ids=str,
)
def test_all_paths_of_a_network_agree(options: dict[str, Any]) -> None:
    found = list(verify(lively(layers=2, **options), ["", *SOURCES]))
    assert [each for each in found if not each.equal] == []
    assert {each.what for each in found} == {"sub-layers", "greedy", "beam 4", "samples"}
    assert all(each.count >= len(SOURCES) for each in found if each.path.startswith(("cached", "fast")))


@pytest.mark.slow
def test_a_cache_that_forgets_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def forgetful(self: StaticCacheState, ids: Tensor, mask: Tensor | None) -> Any:
        state, seen = read(self, ids, mask)
        seen.visible[..., 0] = False
        return state, seen

    read = StaticCacheState.read
    monkeypatch.setattr(StaticCacheState, "read", forgetful)
    assert {each.path for each in wrong(lively(), SOURCES * 2)} == FAST


@pytest.mark.slow
def test_a_beam_that_follows_the_wrong_rows_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StaticCacheState, "reorder", lambda self, parents: self)
    assert {(each.path, each.what) for each in wrong(lively())} == {("fast", "beam 4"), ("fast, one slot", "beam 4")}


def test_a_score_that_is_not_that_of_the_answer_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def generous(asked: RowLimits, width: int = 1, capacity: int | None = None) -> Frontier:
        begun = start(asked, width, capacity)
        return replace(begun, log_probability=begun.log_probability + 0.5)

    start = Frontier.start
    monkeypatch.setattr(Frontier, "start", staticmethod(generous))
    assert "the score of an answer" in {each.path for each in wrong(lively())}


GOOD = ComparedHypothesis((5, 6), -1.0, -0.5)


def beside(*found: ScoredHypothesis, expected: tuple[ScoredHypothesis, ...] = (GOOD, GOOD)) -> PathComparison:
    return compare_hypotheses("fast", "beam 4", [(found, expected)], 0.1, lambda ids: " ".join(map(str, ids)))


def test_a_tie_is_one_of_every_hypothesis_and_not_of_the_best_alone() -> None:
    as_good, worse = ComparedHypothesis((7,), -1.0, -0.45), ComparedHypothesis((7,), -9.0, -9.0)
    assert (beside(GOOD, GOOD).different, beside(GOOD, GOOD).equal) == (0, True)
    assert (beside(GOOD, as_good).ties, beside(GOOD, as_good).equal) == (1, True)
    assert (beside(GOOD, worse).ties, beside(GOOD, worse).equal) == (0, False)
    assert beside(GOOD, worse).example == "'7' and '5 6'"


def test_what_is_no_number_is_a_difference_and_nothing_beside_nothing_is_none() -> None:
    not_a_number, nothing = (
        ComparedHypothesis(GOOD.ids, math.nan, math.nan),
        ComparedHypothesis(GOOD.ids, -math.inf, -math.inf),
    )
    assert not beside(GOOD, not_a_number).equal
    assert not beside(GOOD, not_a_number, expected=(GOOD, not_a_number)).equal
    assert not beside(GOOD, ComparedHypothesis((7,), math.nan, math.nan)).equal
    assert not beside(GOOD, nothing).equal
    assert beside(GOOD, nothing, expected=(GOOD, nothing)).equal


def test_a_hypothesis_too_few_or_an_answer_that_is_missing_is_a_difference() -> None:
    assert not beside(GOOD).equal
    assert beside(GOOD).example == "1 hypotheses and 2"
    assert not beside().equal


@pytest.mark.slow
def test_scores_of_answers_that_were_all_cut_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    model = lively()
    with torch.no_grad():
        model.network.output.weight[EOS].mul_(0.0)
    model.generation = model.generation.override(max_length_extra=1, max_length_factor=0.0)
    scores = [each for each in verify(model, SOURCES) if each.path == "the score of an answer"]
    assert [(each.what, each.count, each.equal) for each in scores] == [
        (what, len(SOURCES), True) for what in recipe.STRATEGIES
    ]


def test_a_precision_is_tried_with_what_it_allows() -> None:
    found = next(iter(verify(lively(), SOURCES[:1], "bf16")))
    assert (found.equal, found.allowed >= recipe.TOLERANCE[torch.bfloat16]) == (True, True)


@pytest.mark.slow
def test_what_overflows_is_not_the_same_as_itself() -> None:
    model = lively()
    with torch.no_grad():
        model.network.output.weight.mul_(1e5)
    found = {(each.path, each.what): each for each in verify(model, SOURCES[:2], "fp16")}
    assert not found["output", "sub-layers"].equal
    assert not found["fast", "greedy"].equal


def test_what_is_too_long_to_verify_with_is_left_out_by_name(tmp_path: Path) -> None:
    lively().save(tmp_path / "model")
    (tmp_path / "some.txt").write_text(f"{SOURCES[0]}\n{'a ' * 5_000}\n", "utf-8")
    command = ["verify", str(tmp_path / "model"), "--source", str(tmp_path / "some.txt"), "--device", "cpu", "--json"]
    told = CliRunner().invoke(app, command)
    assert told.exit_code == 0
    assert told.stderr == "1 of 2 sentences have more than 256 tokens and are left out\n"
    assert {json.loads(line)["count"] for line in told.stdout.splitlines() if '"cached"' in line} == {1}


@pytest.mark.slow
def test_what_differs_is_shown_and_the_exit_code_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lively().save(tmp_path / "model")
    (tmp_path / "some.txt").write_text("\n".join(SOURCES), "utf-8")
    command = ["verify", str(tmp_path / "model"), "--source", str(tmp_path / "some.txt"), "--device", "cpu"]
    right = CliRunner().invoke(app, command)
    assert (right.exit_code, "all paths agree" in right.stdout) == (0, True)
    monkeypatch.setattr(StaticCacheState, "reorder", lambda self, parents: self)
    found = CliRunner().invoke(app, command)
    assert found.exit_code == 1
    assert "differ" in found.stdout
