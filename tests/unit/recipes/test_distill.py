"""Distillation: folds by source, teachers that have not seen their fold, resumed translations, merged files."""

from pathlib import Path

import pytest
from error_codes import fragment, has_code
from tiny import QUICK_RUN, SOURCES, Command, parallel_model, tiny_model, without_source

from attendo.cli.distill import _train_teachers_in_parallel
from attendo.errors import DataError, UsageError
from attendo.recipes.distill import Distillation, choose_fold
from attendo.runs.config import RunConfig, load_run_config, to_toml

LINES = [f"{source} {number}" for number in range(12) for source in SOURCES]
SEARCH = {"beam": 2, "split": False}


@pytest.fixture
def corpus(tmp_path: Path) -> tuple[Path, Path]:
    """48 pairs, and the first source a second time with another target."""
    source, target = tmp_path / "a.en", tmp_path / "a.zh"
    source.write_text("\n".join([*LINES, LINES[0]]) + "\n", "utf-8")
    target.write_text("\n".join([f"我 {number}" for number in range(len(LINES))] + ["猫"]) + "\n", "utf-8")
    return source, target


def make_distillation(tmp_path: Path, corpus: tuple[Path, Path], folds: int = 3) -> Distillation:
    work = Distillation(tmp_path / "out", *corpus, [corpus[0]], folds, SEARCH)
    work.begin(work.identify())
    assert work.split() == len(LINES) + 1
    return work


def test_folds_are_a_partition_by_source(tmp_path: Path, corpus: tuple[Path, Path]) -> None:
    work = make_distillation(tmp_path, corpus)
    texts = [work.fold_file(fold, "source").read_text("utf-8").splitlines() for fold in range(3)]
    assert sorted(line for lines in texts for line in lines) == sorted([*LINES, LINES[0]])
    assert texts[choose_fold(LINES[0], 3)].count(LINES[0]) == 2
    assert all(lines for lines in texts)


def test_a_teacher_has_not_seen_its_fold(tmp_path: Path, corpus: tuple[Path, Path], attendo: Command) -> None:
    settings = [word for change in QUICK_RUN for word in ("--set", change)]
    made = attendo("train", "--source", corpus[0], "--target", corpus[1], "--out", tmp_path / "run", *settings)
    assert made.code == 0, made.errors
    work, config = make_distillation(tmp_path, corpus), load_run_config(tmp_path / "run")
    for fold in range(3):
        teacher = work.teacher_config(config, fold)
        read = {line for corpus in teacher.data.training for line in corpus.source.read_text("utf-8").splitlines()}
        held_out = {*work.fold_file(fold, "source").read_text("utf-8").splitlines()}
        assert not read & held_out
        assert read | held_out == {*LINES}
        assert (teacher.train, teacher.tokenizer) == (config.train, config.tokenizer)


def test_an_interrupted_translation_continues(tmp_path: Path, corpus: tuple[Path, Path]) -> None:
    model, work = tiny_model(), make_distillation(tmp_path, corpus)
    for fold in range(3):
        list(work.translate(model, fold))
    complete = work.output_file(0).read_bytes()
    lines = complete.splitlines(keepends=True)
    work.output_file(0).write_bytes(b"".join(lines[:4]) + lines[4][:-2])
    assert list(work.translate(model, 0)) == [4, len(lines)]
    assert work.output_file(0).read_bytes() == complete


def test_the_result_is_in_the_order_of_the_corpus(tmp_path: Path, corpus: tuple[Path, Path]) -> None:
    model, work = tiny_model(), make_distillation(tmp_path, corpus)
    for fold in range(3):
        list(work.translate(model, fold))
    assert work.merge() == len(LINES) + 1
    assert work.outputs[0].read_bytes() == corpus[0].read_bytes()
    expected = [each.text for each in model.generate([*LINES, LINES[0]], **SEARCH)]
    assert work.outputs[1].read_text("utf-8").splitlines() == expected
    assert 0 <= work.score().value <= 100


def test_other_settings_or_text_are_rejected(tmp_path: Path, corpus: tuple[Path, Path]) -> None:
    make_distillation(tmp_path, corpus)
    work = Distillation(tmp_path / "out", *corpus, [corpus[0]], 4, SEARCH)
    with pytest.raises(UsageError, check=has_code("distillation_settings_differ", settings="folds")):
        work.begin(work.identify())
    work = Distillation(tmp_path / "out", *corpus, [corpus[0]], 3, {**SEARCH, "length_penalty": 0.3})
    with pytest.raises(UsageError, check=has_code("distillation_settings_differ", settings="length_penalty")):
        work.begin(work.identify())
    corpus[1].write_text("x\n" * (len(LINES) + 1))
    work = Distillation(tmp_path / "out", *corpus, [corpus[0]], 3, SEARCH)
    with pytest.raises(UsageError, check=has_code("distillation_settings_differ", settings="target")):
        work.begin(work.identify())


def test_too_many_folds_are_rejected(tmp_path: Path, corpus: tuple[Path, Path]) -> None:
    work = Distillation(tmp_path / "out", *corpus, [corpus[0]], 100, SEARCH)
    with pytest.raises(DataError, check=has_code("distillation_fold_empty", lines=len(LINES) + 1, folds=100)):
        work.split()
    assert not list(tmp_path.glob("out/*"))


def test_an_empty_file_is_rejected(tmp_path: Path, corpus: tuple[Path, Path]) -> None:
    for path in corpus:
        path.write_text("")
    work = Distillation(tmp_path / "out", *corpus, [corpus[0]], 1, SEARCH)
    with pytest.raises(DataError, check=has_code("file_is_empty", path=corpus[0])):
        work.split()


def test_the_command_trains_teachers_and_continues(tmp_path: Path, corpus: tuple[Path, Path], attendo: Command) -> None:
    settings = [word for change in QUICK_RUN for word in ("--set", change)]
    made = attendo("train", "--source", corpus[0], "--target", corpus[1], "--out", tmp_path / "run", *settings)
    assert made.code == 0, made.errors
    words = ["distill", tmp_path / "run", "--source", corpus[0], "--target", corpus[1], "--out", tmp_path / "new"]
    first = attendo(*words, "--folds", "2", "--beam", "2")
    assert first.code == 0, first.errors
    outputs = [(tmp_path / "new" / name).read_bytes() for name in ("source.txt", "target.txt")]
    assert outputs[0] == corpus[0].read_bytes()
    assert outputs[1].count(b"\n") == len(LINES) + 1
    assert "teacher 2 of 2: training" in first.errors
    again = attendo(*words, "--folds", "2", "--beam", "2")
    assert again.code == 0
    assert "training" not in again.errors
    assert [(tmp_path / "new" / name).read_bytes() for name in ("source.txt", "target.txt")] == outputs


@pytest.mark.slow
def test_teachers_trained_in_parallel_give_the_same_text(
    tmp_path: Path, corpus: tuple[Path, Path], attendo: Command
) -> None:
    settings = [word for change in QUICK_RUN for word in ("--set", change)]
    made = attendo("train", "--source", corpus[0], "--target", corpus[1], "--out", tmp_path / "run", *settings)
    assert made.code == 0, made.errors
    words = ["distill", tmp_path / "run", "--source", corpus[0], "--target", corpus[1], "--folds", "2", "--beam", "2"]
    one = attendo(*words, "--out", tmp_path / "one")
    assert one.code == 0, one.errors
    several = attendo(*words, "--out", tmp_path / "several", "--jobs", "2")
    assert several.code == 0, several.errors
    assert "teacher 2 of 2: done" in several.errors
    assert (tmp_path / "several" / "target.txt").read_bytes() == (tmp_path / "one" / "target.txt").read_bytes()
    again = attendo(*words, "--out", tmp_path / "several")  # the number of jobs is no part of the settings
    assert again.code == 0
    assert "training" not in again.errors


def test_only_teachers_that_are_not_complete_are_trained(
    tmp_path: Path, corpus: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new one from its run file, a begun one from its folder. No more processes than folds share the cores."""
    work, planned = make_distillation(tmp_path, corpus), []
    states = dict(zip(map(work.teacher_folder, range(3)), ("complete", "begun", "new"), strict=True))
    monkeypatch.setattr("attendo.recipes.run_state.read_run_state", lambda folder, *_: states[folder])
    monkeypatch.setattr("attendo.cli.progress.train_in_parallel", lambda *given: planned.append(given))
    config = RunConfig(data={"source": corpus[0], "target": corpus[1]}, preset="tiny")
    _train_teachers_in_parallel(work, config, "cpu", 8)
    ((jobs, max_jobs),) = planned
    folders = [str(work.teacher_folder(fold)) for fold in (1, 2)]
    assert [list(each.arguments) for each in jobs] == [
        ["train", "--resume", folders[0], "--device", "cpu"],
        ["train", f"{folders[1]}.toml", "--out", folders[1], "--device", "cpu"],
    ]
    assert max_jobs == 3
    assert Path(f"{folders[1]}.toml").read_text("utf-8") == to_toml(work.teacher_config(config, 2))
    assert sorted(work.folder.glob("teachers/*/texts.json")) == [Path(folders[1]) / "texts.json"]


def test_one_fold_is_translated_by_the_model(tmp_path: Path, corpus: tuple[Path, Path], attendo: Command) -> None:
    model = tiny_model()
    model.save(tmp_path / "model")
    words = ["distill", tmp_path / "model", "--source", corpus[0], "--target", corpus[1], "--out", tmp_path / "new"]
    failed = attendo(*words)
    assert failed.code == 2
    assert fragment("distillation_run_missing", model=tmp_path / "model") in failed.errors
    missing = attendo(*words[:3], tmp_path / "none.txt", *words[4:], "--folds", "1")
    assert missing.code == 3
    assert "none.txt" in missing.error
    assert not (tmp_path / "new").exists()
    for name, other, code in (
        ("masked", parallel_model("masked"), "option_unsupported_by_kind"),
        ("text", without_source(), "distillation_model_without_source"),
    ):
        other.save(tmp_path / name)
        refused = attendo("distill", tmp_path / name, *words[2:], "--folds", "1", "--beam", "2")
        assert (refused.code, fragment(code, option="--beam", kind=name, model=tmp_path / name) in refused.errors) == (
            2,
            True,
        )
    refused = attendo(*words, "--folds", "1", "--jobs", "2")
    assert (refused.code, fragment("distillation_jobs_unused", jobs=2) in refused.errors) == (2, True)
    assert not (tmp_path / "new").exists()
    done = attendo(*words, "--folds", "1", "--beam", "2")
    assert done.code == 0, done.errors
    expected = [each.text for each in model.generate([*LINES, LINES[0]], **SEARCH)]
    assert (tmp_path / "new" / "target.txt").read_text("utf-8").splitlines() == expected
