"""`attendo demo`, shortened: checks its output, not its quality."""

import signal
from importlib.util import find_spec
from pathlib import Path

import pytest
from error_codes import fragment
from tiny import QUICK_RUN, Command, settings, write_pairs

from attendo.model.config import ModelKind
from attendo.runs import demo
from attendo.runs.run import Run
from attendo.text_model import load


@pytest.fixture
def short_demo(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few sentences, a narrow network, two steps."""
    full_config, evaluate = demo.demo_config, demo.evaluate

    def config(seed: int, kind: ModelKind) -> object:
        own = {name: value for name, value in full_config(seed, kind).model.items() if name in ("kind", "upsample")}
        return full_config(seed, kind).replace(
            data={"task": "builtin", "pairs": 500},
            model={**own, "d_model": 16, "num_heads": 2, "d_ff": 16},
            train={"steps": 2, "batch_tokens": 256, "warmup": 1},
        )

    monkeypatch.setattr("attendo.runs.corpora.BUILTIN_VALID_PAIRS", 20)
    monkeypatch.setattr(demo, "demo_config", config)
    monkeypatch.setattr(demo, "evaluate", lambda model, task: evaluate(model, task, count=30))


@pytest.mark.usefixtures("short_demo")
def test_the_demo_trains_translates_and_prints_next_commands(attendo: Command, tmp_path: Path) -> None:
    done = attendo("demo", "--seed", "3", "--out", tmp_path / "demo")
    assert done.code == 0
    folder = tmp_path / "demo" / "model"
    for text in ("exact match ", "alignment error rate ", "(expected: ", "</s>"):
        assert text in done.output
    after = done.output.partition("Next:\n")[2]
    for command in ("generate", "describe", "explore", "serve"):
        assert f"attendo {command} {folder}" in after
    assert ("pip install 'attendo[serve]'" in after) == (find_spec("fastapi") is None)
    assert f"model     {folder}\n" in done.output
    assert "step 2: validation loss" in done.errors
    assert {path.name for path in (tmp_path / "demo").iterdir()} >= {"attention.svg", "attention.html", "model"}
    assert load(folder, "cpu").scores.keys() >= {"exact_match", "alignment_head"}
    again = attendo("demo", "--seed", "4", "--out", tmp_path / "demo")  # a demo run may replace another demo run
    assert again.code == 0
    assert "seed = 4\n" in (tmp_path / "demo" / "run.toml").read_text()


@pytest.mark.usefixtures("short_demo")
@pytest.mark.parametrize(
    ("kind", "title"), [("masked", "Passes of mask-predict"), ("ctc", "The CTC alignment"), ("graph", "The graph")]
)
def test_the_demo_trains_every_kind_and_shows_how_it_predicts(
    attendo: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, title: str
) -> None:
    monkeypatch.chdir(tmp_path)
    done = attendo("demo", "--kind", kind)
    assert done.code == 0
    folder = Path("runs", f"demo-{kind}")
    for text in (
        "exact match ",
        "(expected: ",
        title,
        f"attendo trace {folder / 'model'} ",
        "--beside runs/demo/model",
    ):
        assert text in done.output
    assert "alignment error rate" not in done.output
    model = load(folder / "model", "cpu")
    assert (model.kind, set(model.scores) >= {"exact_match"}) == (kind, True)
    pictures = {f"{kind}.html", *(["graph.svg"] if kind == "graph" else [])}
    assert {path.name for path in folder.iterdir()} >= pictures
    assert all(str(folder / name) in done.output for name in pictures)


@pytest.mark.usefixtures("short_demo")
def test_the_demo_does_not_replace_another_run(attendo: Command, tmp_path: Path) -> None:
    source, target = write_pairs(tmp_path)
    out = tmp_path / "mine"
    assert attendo("train", "--source", source, "--target", target, "--out", out, *settings(*QUICK_RUN)).code == 0
    before = (out / "run.toml").read_bytes()
    failed = attendo("demo", "--out", out)
    assert failed.code == 2
    assert fragment("run_folder_in_use", folder=out) in failed.error
    assert (out / "run.toml").read_bytes() == before


@pytest.mark.slow
@pytest.mark.usefixtures("short_demo")
def test_an_interrupted_demo_keeps_its_model(attendo: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    train = Run.train

    def train_until_interrupt(run: Run, *arguments: object) -> object:
        for report in train(run, *arguments):
            signal.raise_signal(signal.SIGINT)
            yield report

    monkeypatch.setattr(Run, "train", train_until_interrupt)
    done = attendo("demo", "--out", tmp_path / "demo")
    assert (done.code, done.output) == (130, "")
    assert f"attendo generate {tmp_path / 'demo' / 'model'}" in done.errors
    assert load(tmp_path / "demo" / "model", "cpu").generate(["I love"])
