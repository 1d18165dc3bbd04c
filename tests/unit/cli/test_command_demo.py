"""`attendo demo`, made short: what is shown, not how well it has learnt."""

import signal
from importlib.util import find_spec
from pathlib import Path

import pytest
from error_codes import fragment
from tiny import QUICK_RUN, Command, settings, write_pairs

from attendo.runs import demo
from attendo.runs.run import Run
from attendo.text_model import load


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few sentences, a narrow network, two steps."""
    whole, evaluate = demo.demo_config, demo.evaluate

    def config(seed: int) -> object:
        return whole(seed).replace(
            data={"task": "builtin", "pairs": 500},
            model={"d_model": 16, "num_heads": 2, "d_ff": 16},
            train={"steps": 2, "batch_tokens": 256, "warmup": 1},
        )

    monkeypatch.setattr("attendo.runs.corpora.BUILTIN_VALID_PAIRS", 20)
    monkeypatch.setattr(demo, "demo_config", config)
    monkeypatch.setattr(demo, "evaluate", lambda model, task: evaluate(model, task, count=30))


@pytest.mark.usefixtures("short")
def test_the_demo_trains_translates_and_shows_what_to_do_next(attendo: Command, tmp_path: Path) -> None:
    done = attendo("demo", "--seed", "3", "--out", tmp_path / "demo")
    assert done.code == 0
    folder = tmp_path / "demo" / "model"
    for shown in ("exact match ", "alignment accuracy ", "(expected: ", "</s>"):
        assert shown in done.output
    after = done.output.partition("Next:\n")[2]
    for command in ("generate", "describe", "explore", "serve"):
        assert f"attendo {command} {folder}" in after
    assert ("pip install 'attendo[serve]'" in after) == (find_spec("fastapi") is None)
    assert f"model     {folder}\n" in done.output
    assert "step 2: validation loss" in done.errors
    assert {path.name for path in (tmp_path / "demo").iterdir()} >= {"attention.svg", "attention.html", "model"}
    assert load(folder, "cpu").scores.keys() >= {"exact_match", "alignment_accuracy", "alignment_head"}
    again = attendo("demo", "--seed", "4", "--out", tmp_path / "demo")  # a demonstration may replace another
    assert again.code == 0
    assert "seed = 4\n" in (tmp_path / "demo" / "run.toml").read_text()


@pytest.mark.usefixtures("short")
def test_a_run_on_other_data_is_not_replaced_by_the_demo(attendo: Command, tmp_path: Path) -> None:
    source, target = write_pairs(tmp_path)
    out = tmp_path / "mine"
    assert attendo("train", "--source", source, "--target", target, "--out", out, *settings(*QUICK_RUN)).code == 0
    before = (out / "run.toml").read_bytes()
    failed = attendo("demo", "--out", out)
    assert failed.code == 2
    assert fragment("run_folder_in_use", folder=out) in failed.error
    assert (out / "run.toml").read_bytes() == before


@pytest.mark.slow
@pytest.mark.usefixtures("short")
def test_a_demo_that_is_stopped_keeps_its_model(
    attendo: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train = Run.train

    def stopped(run: Run, *arguments: object) -> object:
        for report in train(run, *arguments):
            signal.raise_signal(signal.SIGINT)
            yield report

    monkeypatch.setattr(Run, "train", stopped)
    done = attendo("demo", "--out", tmp_path / "demo")
    assert (done.code, done.output) == (130, "")
    assert f"attendo generate {tmp_path / 'demo' / 'model'}" in done.errors
    assert load(tmp_path / "demo" / "model", "cpu").generate(["I love"])
