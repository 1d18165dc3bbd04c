"""`attendo demo`, made short: what is shown, not how well it has learnt."""

from pathlib import Path

import pytest
from tiny import Command

from attendo.recipes import demo
from attendo.text_model import load


def test_the_demo_trains_translates_and_shows_what_to_do_next(
    attendo: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    short = demo.demo_config(3).replace(
        model={"d_model": 16, "num_heads": 2, "d_ff": 16}, train={"steps": 2, "batch_tokens": 256}
    )
    evaluate = demo.evaluate
    monkeypatch.setattr(demo, "demo_config", lambda seed: short)
    monkeypatch.setattr(demo, "evaluate", lambda model, task: evaluate(model, task, count=30))
    done = attendo("demo", "--seed", "3", "--out", tmp_path / "demo")
    assert done.code == 0
    folder = tmp_path / "demo" / "model"
    for shown in ("exact match ", "alignment accuracy ", "(expected: ", "</s>", f"attendo generate {folder}", "Next:"):
        assert shown in done.output
    assert f"model     {folder}\n" in done.output
    assert "step 2: validation loss" in done.errors
    assert {path.name for path in (tmp_path / "demo").iterdir()} >= {"attention.svg", "attention.html", "model"}
    assert set(load(folder, "cpu").scores) == {"exact_match", "alignment_accuracy", "alignment_head"}
