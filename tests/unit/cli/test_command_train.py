"""`attendo train`: new and resumed runs. Signals and kills are tested in tests/reliability."""

import importlib.util
import json
import shutil
import tomllib
from pathlib import Path

import pytest
from error_codes import fragment, message
from tiny import QUICK_RUN, Command, settings, write_pairs

from attendo.runs.config import RunConfig
from attendo.text_model import load


def test_two_text_files_become_a_model(attendo: Command, tmp_path: Path) -> None:
    source, target = write_pairs(tmp_path)
    out = tmp_path / "runs" / ("x" * 100)
    done = attendo("train", "--source", source, "--target", target, "--out", out, *settings(*QUICK_RUN))
    assert (done.code, done.output) == (0, "")
    assert f"model written to {out / 'model'}\n" in done.errors
    assert " sentence pairs to train on, " in done.errors
    assert "step 3: validation loss" in done.errors
    assert attendo("generate", out / "model", given=b"the cat\n").output.count("\n") == 1


def test_a_run_file_names_the_run_folder(attendo: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_pairs(tmp_path)
    monkeypatch.chdir(tmp_path)
    Path("mine.toml").write_text('[data]\nsource = "train.source"\ntarget = "train.target"\n')
    assert attendo("train", "mine.toml", *settings(*QUICK_RUN)).code == 0
    assert load("runs/mine/model", "cpu").generate(["the cat"])
    assert attendo("train", "mine.toml", "--out", "other", *settings(*QUICK_RUN)).code == 0
    assert load("other/model", "cpu").generate(["the cat"])


def test_skipped_lines_are_counted_by_reason(attendo: Command, tmp_path: Path) -> None:
    source, target = write_pairs(tmp_path)
    source.write_text(source.read_text("utf-8") + "\n\n", "utf-8")
    target.write_text(target.read_text("utf-8") + "猫\n\n", "utf-8")
    files = ("--source", source, "--target", target, "--out", tmp_path / "run")
    failed = attendo("train", *files, *settings(*QUICK_RUN))
    assert failed.code == 3
    assert "data.max_bad_ratio" in failed.errors
    done = attendo("train", *files, "--overwrite", "--max-bad-ratio", "0.1", *settings(*QUICK_RUN))
    assert done.code == 0
    assert f"lines left out: 2 empty (listed in {tmp_path / 'run' / 'data' / 'bad-lines.tsv'})\n" in done.errors


def test_show_prints_a_run_file_with_the_same_settings(attendo: Command, tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text('preset = "base"\n[data]\nsource = "a"\ntarget = "b"\n[train]\nsteps = 7\n')
    shown = attendo("train", tmp_path / "run.toml", "--show", *settings("model.norm=post", "train.peak_lr=3e-4"))
    assert (shown.code, shown.errors) == (0, "")
    config = RunConfig(**tomllib.loads(shown.output))
    assert (config.preset, config.model["norm"], config.model["d_ff"], config.train.steps) == ("base", "post", 2048, 7)
    assert config.train.peak_lr == 3e-4
    assert config.generation["beam"] == 1
    assert "# d_key = 64, by the other settings\n" in shown.output
    (tmp_path / "again.toml").write_text(shown.output, "utf-8")
    assert attendo("train", tmp_path / "again.toml", "--show").output == shown.output


@pytest.mark.parametrize("name", ["2024", "true", "1e5", "2024-01-01", " a ", '"a"', "[a]", "a=b", "{}", "a # b"])
def test_any_file_name_can_be_given(
    attendo: Command, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("run.toml").write_text('[data]\nsource = "a"\ntarget = "b"\n')
    Path(name).write_text("x y\n")
    Path("b").write_text("u v\n")
    for start in (["run.toml", "--source", name], ["--source", name, "--target", "b", "--out", "c"]):
        shown = attendo("train", *start, "--show")
        assert shown.code == 0, shown.errors
        data = tomllib.loads(shown.output)["data"]
        assert (data["source"], data["target"]) == (name, "b")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"[data", "is not TOML"),
        (b"\xff\xfe", "is not TOML"),
        (b'data = 5\nseed = "x"', "data"),
        (b'"a\\nb" = 1\n[data]\ntask = "builtin"', "unknown setting"),
        (b'self = 1\n[data]\ntask = "builtin"', fragment("unknown_setting", name="self")),
        (b'[data]\ntask = "builtin"\n[model]\nd_modle = 3', "did you mean d_model?"),
        (b'[data]\ntask = "builtin"\n[model]\nname = 3', "unknown setting"),
        (
            b'[data]\ntask = "builtin"\n[train]\nwarmpu = 3',
            fragment("unknown_setting", name="train.warmpu", suggestion=" (did you mean warmup?)"),
        ),
    ],
)
def test_an_invalid_run_file_is_a_usage_error(attendo: Command, tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "run.toml").write_bytes(content)
    for more in ([], ["--source", "a"], ["--show"]):
        failed = attendo("train", tmp_path / "run.toml", *more)
        assert failed.code == 2
        if not more:
            assert message in failed.error


def test_bad_data_exits_with_code_3(attendo: Command, tmp_path: Path) -> None:
    source, target = write_pairs(tmp_path)
    target.write_bytes(target.read_bytes() + b"one more\n")
    failed = attendo("train", "--source", source, "--target", target, "--out", tmp_path / "run")
    assert failed.code == 3
    assert fragment("file_line_counts_differ", short=source, short_lines=40) in failed.error


def test_a_run_stopped_at_a_step_can_be_resumed(attendo: Command, tmp_path: Path) -> None:
    run = start_run(attendo, tmp_path, "--stop-at", "2")
    assert list_steps(run) == [1, 2]
    resumed = attendo("train", "--resume", run)
    assert (resumed.code, resumed.output) == (0, "")
    assert "going on from step 2\n" in resumed.errors
    assert list_steps(run) == [1, 2, 3]
    shown = tomllib.loads(attendo("train", "--resume", run, "--show").output)
    stored = tomllib.loads((run / "run.toml").read_text("utf-8"))
    assert {**shown, "generation": {}} == stored


def test_stop_at_a_past_step_does_nothing(attendo: Command, tmp_path: Path) -> None:
    run = start_run(attendo, tmp_path, "--stop-at", "2")
    done = attendo("train", "--resume", run, "--stop-at", "2")
    assert (done.code, done.errors) == (0, "the run stands at step 2 already: nothing to do up to step 2\n")
    assert list_steps(run) == [1, 2]


def test_resuming_a_finished_run_changes_nothing(attendo: Command, tmp_path: Path) -> None:
    run = start_run(attendo, tmp_path)
    before = (run / "model" / "weights.safetensors").read_bytes()
    assert attendo("train", "--resume", run).code == 0
    assert (run / "model" / "weights.safetensors").read_bytes() == before
    assert list_steps(run) == [1, 2, 3]


def test_changed_settings_need_override(attendo: Command, tmp_path: Path) -> None:
    run = start_run(attendo, tmp_path, "--stop-at", "2")
    failed = attendo("train", "--resume", run, *settings("train.steps=5", "train.ema=0.5"))
    assert failed.code == 2
    assert message("resume_settings_differ", folder=run, settings="train.steps = 5, train.ema = 0.5") == failed.error
    assert attendo("train", "--resume", run, "--override", *settings("train.steps=5")).code == 0
    assert list_steps(run) == [1, 2, 3, 4, 5]
    assert tomllib.loads((run / "run.toml").read_text("utf-8"))["train"]["steps"] == 5
    assert attendo("train", "--resume", run).code == 0, "the override is stored"


def test_an_unchanged_setting_needs_no_override(attendo: Command, tmp_path: Path) -> None:
    run = start_run(attendo, tmp_path, "--stop-at", "2")
    assert attendo("train", "--resume", run, *settings("train.steps=3")).code == 0


def test_weights_that_do_not_fit_an_override_are_a_model_error(attendo: Command, tmp_path: Path) -> None:
    run = start_run(attendo, tmp_path, "--stop-at", "2")
    failed = attendo("train", "--resume", run, "--override", *settings("model.d_ff=32"))
    assert failed.code == 4
    assert fragment("checkpoint_does_not_fit", file="model.safetensors") in failed.error


def test_edited_settings_and_replaced_data_are_rejected(attendo: Command, tmp_path: Path) -> None:
    run = start_run(attendo, tmp_path, "--stop-at", "2")
    path = run / "run.toml"
    original = path.read_text("utf-8")
    path.write_text(original.replace("steps = 3\n", "steps = 4\n"), "utf-8")
    failed = attendo("train", "--resume", run)
    assert (failed.code, str(path) in failed.error, "--override" in failed.error) == (2, True, True)
    path.write_text(original, "utf-8")
    shutil.rmtree(run / "data")
    source = tmp_path / "train.source"
    source.write_text(source.read_text("utf-8").replace("cat", "cow"), "utf-8")
    failed = attendo("train", "--resume", run)
    assert failed.code == 4
    assert fragment("checkpoint_data_mismatch", folder=run / "data") in failed.errors


def test_an_existing_run_folder_needs_overwrite(attendo: Command, tmp_path: Path) -> None:
    run = start_run(attendo, tmp_path)
    files = ("--source", tmp_path / "train.source", "--target", tmp_path / "train.target", "--out", run)
    failed = attendo("train", *files, *settings(*QUICK_RUN))
    assert failed.code == 2
    assert fragment("run_folder_in_use", folder=run) in failed.error
    missing = attendo("train", "--source", "none", "--target", "none", "--out", run)
    assert missing.error == failed.error, "the error comes before any text is read"
    assert attendo("finetune", tmp_path, "--source", "none", "--target", "none", "--out", run).error == failed.error
    assert attendo("train", *files, "--overwrite", *settings(*QUICK_RUN, "train.steps=2")).code == 0
    assert list_steps(run) == [1, 2]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--resume", "{folder}/missing"], "missing"),
        (["--resume", "{folder}"], fragment("run_not_found")),
        (["--resume", "{folder}", "--out", "x"], fragment("options_with_resume")),
        (["--resume", "{folder}", "--overwrite"], fragment("options_with_resume")),
        (["--resume", "{folder}", "--stop-at", "0"], "--stop-at"),
    ],
)
def test_invalid_resume_options_are_usage_errors(
    attendo: Command, tmp_path: Path, arguments: list[str], message: str
) -> None:
    failed = attendo("train", *(word.format(folder=tmp_path) for word in arguments))
    assert failed.code == 2
    assert message in failed.error


def start_run(attendo: Command, folder: Path, *more: str) -> Path:
    """Train three steps on the tiny sentences."""
    source, target = write_pairs(folder)
    files = ("--source", source, "--target", target, "--out", folder / "run")
    done = attendo("train", *files, *more, *settings(*QUICK_RUN))
    assert done.code == 0, done.errors
    return folder / "run"


def list_steps(run: Path) -> list[int]:
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text("utf-8").splitlines()]
    return [line["step"] for line in lines if line["kind"] == "step"]


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--device", "gpu"], fragment("unknown_device", name="gpu")),
        (["--device", "cuda:99"], "cuda:99"),
        (["--tensorboard"], "attendo[tensorboard]"),
        (["--set", "train.metrics=['bleu']", "--set", "preset=auto"], "attendo[eval]"),
    ],
)
def test_missing_packages_and_devices_fail_before_text_is_read(
    attendo: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], named: str
) -> None:
    missing = {"tensorboard", "sacrebleu"}
    find_spec = importlib.util.find_spec
    monkeypatch.setattr("attendo.errors.find_spec", lambda name: None if name in missing else find_spec(name))
    monkeypatch.setattr("attendo.runs.corpora.measure_data", lambda *_: pytest.fail("text was read"))
    source, target = write_pairs(tmp_path)
    failed = attendo("train", "--source", source, "--target", target, "--out", tmp_path / "run", *options)
    assert (failed.code, named in failed.error) == (2, True)


def test_the_same_source_and_target_file_needs_allow_copies(attendo: Command, tmp_path: Path) -> None:
    source, _ = write_pairs(tmp_path)
    same = ["train", "--source", source, "--target", source, "--out", tmp_path / "run", *settings(*QUICK_RUN)]
    failed = attendo(*same)
    assert (failed.code, "data.allow_copies" in failed.error) == (2, True)
    assert attendo(*same, *settings("data.allow_copies=true")).code == 0


def test_copied_sources_are_rejected_before_the_first_step(attendo: Command, tmp_path: Path) -> None:
    source, target = write_pairs(tmp_path)
    target.write_bytes(source.read_bytes())
    failed = attendo("train", "--source", source, "--target", target, "--out", tmp_path / "run", *settings(*QUICK_RUN))
    assert failed.code == 3
    assert "copied sources: 30 of 30 pairs" in failed.errors
    assert not (tmp_path / "run" / "checkpoints").exists()


def test_the_length_of_a_run_is_printed_first(attendo: Command, tmp_path: Path) -> None:
    source, target = write_pairs(tmp_path)
    options = ["--source", source, "--target", target, "--out", tmp_path / "run"]
    changes = ("train.steps=12", "train.validate_every=2", "train.patience=3", "train.best=loss", "train.metrics=[]")
    done = attendo("train", *options, *settings(*QUICK_RUN, *changes))
    plan = "12 steps, about 5 epochs; a validation every 2 steps; stops early after 3 validations without a better loss"
    assert plan in done.errors
