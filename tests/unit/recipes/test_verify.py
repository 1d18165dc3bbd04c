"""`attendo verify`: every path agrees for every kind of network, and each thing that can go wrong is found."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny import SOURCES, tiny_model
from torch import Tensor
from typer.testing import CliRunner

from attendo.cli.main import app
from attendo.decode.frontier import Asked, Frontier
from attendo.model.state import FixedState
from attendo.recipes.verify import Compared, verify
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


def lively(**changes: Any) -> TextModel:
    model = tiny_model(2, **{"tie": "none", **changes})
    with torch.no_grad():
        model.network.output.weight.mul_(3.0)
        model.network.output.weight[EOS].mul_(2.0)
    model.generation = model.generation.changed(max_length_extra=3, max_length_factor=1.0)
    return model


def wrong(model: TextModel) -> list[Compared]:
    return [each for each in verify(model, SOURCES) if not each.equal]


# Random networks of every option are compared in tests/reliability/test_verify_options.py.
@pytest.mark.parametrize(
    "options",
    [each if n < 2 else pytest.param(each, marks=pytest.mark.slow) for n, each in enumerate(OPTIONS)],
    ids=str,
)
def test_all_paths_of_a_network_agree(options: dict[str, Any]) -> None:
    found = list(verify(lively(**options), ["", *SOURCES]))
    assert [each for each in found if not each.equal] == []
    assert {each.what for each in found} == {"sub-layers", "greedy", "beam 4", "samples"}
    assert all(each.count >= len(SOURCES) for each in found if each.path.startswith(("cached", "fast")))


def test_a_cache_that_forgets_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def forgetful(self: FixedState, ids: Tensor, mask: Tensor | None) -> Any:
        state, seen = read(self, ids, mask)
        seen.visible[..., 0] = False
        return state, seen

    read = FixedState.read
    monkeypatch.setattr(FixedState, "read", forgetful)
    assert {each.path for each in wrong(lively())} == {"fast", "fast, one slot"}


def test_a_beam_that_follows_the_wrong_rows_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FixedState, "follow", lambda self, parents: self)
    assert {(each.path, each.what) for each in wrong(lively())} == {("fast", "beam 4"), ("fast, one slot", "beam 4")}


def test_a_score_that_is_not_that_of_the_answer_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def generous(asked: Asked, width: int = 1, capacity: int | None = None) -> Frontier:
        begun = start(asked, width, capacity)
        return replace(begun, log_probability=begun.log_probability + 0.5)

    start = Frontier.start
    monkeypatch.setattr(Frontier, "start", staticmethod(generous))
    assert "the score of an answer" in {each.path for each in wrong(lively())}


def test_what_differs_is_shown_and_the_exit_code_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lively().save(tmp_path / "model")
    (tmp_path / "some.txt").write_text("\n".join(SOURCES), "utf-8")
    command = ["verify", str(tmp_path / "model"), "--source", str(tmp_path / "some.txt"), "--device", "cpu"]
    right = CliRunner().invoke(app, command)
    assert (right.exit_code, "all paths agree" in right.stdout) == (0, True)
    monkeypatch.setattr(FixedState, "follow", lambda self, parents: self)
    found = CliRunner().invoke(app, command)
    assert found.exit_code == 1
    assert "differ" in found.stdout
