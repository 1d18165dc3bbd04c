"""An actor of `attendo generate --ray`, without Ray. tests/reliability/test_generate_on_ray.py runs the command."""

import json
from pathlib import Path
from typing import Any

import pytest
from error_codes import fragment
from tiny import SOURCES, Command

from attendo.cli import corpus_ray
from attendo.cli.corpus_ray import WindowActor
from attendo.cli.generate_corpus import CorpusCommand, WindowGenerator
from attendo.cli.output import OutputStyle
from attendo.recipes import corpus_generation
from attendo.recipes.corpus_generation import CorpusGeneration


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus/a.txt").write_text("".join(f"{line}\n" for line in (*SOURCES, "")))
    return tmp_path / "corpus"


def plan(model: Path, corpus: Path, out: Path, **options: Any) -> tuple[CorpusCommand, CorpusGeneration]:
    fields = {"source": None, "output": "output", "errors": "strict"}
    command = CorpusCommand(model, [], None, "cpu", options, OutputStyle(False, False, False), fields)
    out.mkdir()
    work = command.plan([corpus / "a.txt"], out, {"model": "x"})
    for _ in work.begin():
        pass
    return command, work


def answer(actor: WindowActor, windows: list[dict[str, int]]) -> list[dict[str, Any]]:
    tasks = {name: [window[name] for window in windows] for name in ("shard", "number")}
    return [json.loads(each) for each in actor(tasks)["answer"]]


def test_an_actor_writes_the_outputs_of_its_windows_once(
    attendo: Command, model_folder: Path, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(corpus_generation, "WINDOW_LINES", 3)
    command, work = plan(model_folder, corpus, tmp_path / "out")
    actor = WindowActor(corpus_ray._make_settings(command, work))
    calls = []
    generate = WindowGenerator.generate
    monkeypatch.setattr(WindowGenerator, "generate", lambda *given: (calls.append(given[1]), generate(*given))[1])

    def compute(windows: Any) -> Any:
        for window in windows:
            one, again = answer(actor, 2 * [{"shard": window.shard, "number": window.number}])
            assert one == again, "the part of a finished window is used"
            yield window, corpus_generation.Counts(**one["counts"])

    for _ in work.run(compute):
        pass
    assert len(calls) == -(-(len(SOURCES) + 1) // 3)
    expected = attendo("generate", model_folder, given=(corpus / "a.txt").read_bytes()).output
    assert (tmp_path / "out/a.txt").read_text("utf-8") == expected


def test_errors_are_answers(model_folder: Path, corpus: Path, tmp_path: Path) -> None:
    command, work = plan(model_folder, corpus, tmp_path / "out", max_source=2)
    (too_long,) = answer(WindowActor(corpus_ray._make_settings(command, work)), [{"shard": 0, "number": 0}])
    assert too_long["exit_code"] == 3
    assert f"{corpus / 'a.txt'} line 1" in too_long["error"]
    command, work = plan(tmp_path / "no model", corpus, tmp_path / "other")
    (missing,) = answer(WindowActor(corpus_ray._make_settings(command, work)), [{"shard": 0, "number": 0}])
    assert missing["exit_code"] in (2, 4)
    assert "no model" in missing["error"]


def test_ray_needs_input_and_its_address_may_be_left_out(
    attendo: Command, model_folder: Path, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = attendo("generate", model_folder, "--ray")
    assert refused.code == 2
    assert fragment("corpus_option_without_input", option="ray") in refused.error or "--ray" in refused.error
    given = []
    monkeypatch.setattr("attendo.cli.generate_corpus.generate_corpus", lambda *arguments: given.append(arguments[3:]))
    usual = ("generate", model_folder, "--input", corpus, "--output", tmp_path / "out")
    for words in (["--ray"], ["--ray", "10.0.0.1:6379"], ["--ray", "--workers", "2"], []):
        assert attendo(*usual, *words).code == 0
    assert given == [(None, "local"), (None, "10.0.0.1:6379"), (2, "local"), (None, None)]
