"""`attendo reproduce`: from a recipe to a verdict, with four sentences and three training steps."""

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from error_codes import fragment, has_code, message
from full_disk import room_for
from tiny import SOURCES, TARGETS, Command

from attendo.cli import reproduce as command
from attendo.errors import DataError, ModelError, UsageError
from attendo.recipes.files import compute_checksums, list_training_files
from attendo.recipes.jobs import TrainingJob
from attendo.recipes.recipe import read_recipe
from attendo.recipes.run_state import read_run_state, write_text_checksums
from attendo.runs import corpora
from attendo.runs.config import RunConfig, load_run_config, to_toml
from attendo.runs.run import Run

NETWORK = """
preset = "tiny"
[tokenizer]
kind = "words"
[model]
d_model = 16
num_heads = 2
d_ff = 24
[train]
steps = 3
batch_tokens = 64
validate_every = 2
samples = 0
"""

PLAIN = """
[data]
source = "train.source"
target = "train.target"
valid_source = "test.source"
valid_target = "test.target"
[reproduce]
about = "four sentences"
dataset = "sentences"
seeds = [1, 2]
[reproduce.generate]
beam = 2
max_length_factor = 0.0
max_length_extra = 4
[[reproduce.test]]
name = "held-out"
source = "test.source"
target = "test.target"
metric = "error_rate"
expected = 99.5
spread = 0.5
reference = 12.5
reference_source = "someone 1999"
"""

LOSS = """
[[reproduce.test]]
name = "valid"
metric = "loss"
"""

VARIED = """
[data]
file = "{variant}.tsv"
valid_file = "{variant}.tsv"
[reproduce]
about = "two kinds"
variants = ["left", "right"]
[[reproduce.test]]
name = "test"
file = "{variant}.tsv"
metric = "exact_match"
expected = 0.0
"""

BUILTIN = """
[data]
task = "builtin"
pairs = 60
[reproduce]
about = "the built-in task"
[reproduce.generate]
max_length_factor = 0.0
max_length_extra = 1
[[reproduce.test]]
name = "valid"
metric = "chrf"
expected = 50.0
[[reproduce.test]]
name = "valid"
metric = "perplexity"
expected = 1e9
"""

Recipe = Callable[[str], Path]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Finished runs for both seeds of `PLAIN`."""
    folder = tmp_path_factory.mktemp("trained")
    (folder / "mine.toml").write_text(NETWORK + PLAIN, "utf-8")
    found = read_recipe(folder / "mine.toml")
    config = found.config(None, write_data(folder / "data"))
    for planned in found.plan(folder / "out"):
        run = Run.begin(config.replace(seed=planned.seed), planned.folder, torch.device("cpu"))
        assert list(run.prepare())
        assert list(run.train())
        run.finish()
    return folder / "out"


@pytest.fixture
def out(trained: Path, tmp_path: Path) -> Path:
    """A copy of the trained runs for one test."""
    shutil.copytree(trained, tmp_path / "out")
    return tmp_path / "out"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write_data(tmp_path / "data")


@pytest.fixture
def recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Recipe:
    def write(text: str) -> Path:
        path = tmp_path / "mine.toml"
        path.write_text(NETWORK + text, "utf-8")
        return path

    monkeypatch.chdir(tmp_path)
    return write


def write_data(folder: Path) -> Path:
    folder.mkdir()
    for name, times in (("train", 10), ("test", 1)):
        for side, texts in (("source", SOURCES), ("target", TARGETS)):
            (folder / f"{name}.{side}").write_text("".join(f"{text}\n" for text in texts * times), "utf-8")
    for variant in ("left", "right"):
        lines = [f"{source}\t{target}\n" for source, target in zip(SOURCES, TARGETS, strict=True)]
        (folder / f"{variant}.tsv").write_text("".join(lines), "utf-8")
    return folder


def read_results(folder: Path, name: str = "results.json") -> dict[str, Any]:
    content: dict[str, Any] = json.loads((folder / name).read_text("utf-8"))
    return content


def test_a_recipe_that_matches_expectations_passes(attendo: Command, data: Path, recipe: Recipe) -> None:
    done = attendo("reproduce", recipe(PLAIN + LOSS), "--device", "cpu")
    assert done.code == 0, done.errors
    lines = done.output.splitlines()
    assert lines[0] == "mine: four sentences"
    assert " ".join(lines[1].split()) == "test score seed 1 seed 2 mean expected published verdict"
    scores = "held-out error_rate 100.00 100.00 100.00 99.5 ± 0.5 12.5 (someone 1999) pass"
    assert " ".join(lines[2].split()) == scores
    assert lines[3].startswith("valid     loss")
    assert lines[3].endswith("not judged")
    assert lines[-1] == "pass: as expected"
    assert "seed 1: training 1 of 2, in runs/reproduce/mine/seed-1\n" in done.errors
    assert "scoring held-out: seed 2\n" in done.errors
    assert "seed 2: 4 of 4 answers to held-out were cut at the length limit\n" in done.errors
    assert "written to runs/reproduce/mine/results.json\n" in done.errors
    learned, *_ = [run["learned_from"] for run in read_results(Path("runs/reproduce/mine"))["runs"]]
    assert learned.keys() == {"train.source", "train.target", "test.source", "test.target"}
    assert learned["train.source"] == hashlib.sha256((data / "train.source").read_bytes()).hexdigest()


@pytest.mark.slow
def test_all_measurements_are_written_to_results(attendo: Command, data: Path, out: Path, recipe: Recipe) -> None:
    assert attendo("reproduce", recipe(PLAIN + LOSS), "--out", out, "--device", "cpu").code == 0
    report = read_results(out)
    assert (report["recipe"], report["passed"], report["decoding"]["beam"]) == ("mine", True, 2)
    assert report["date"].startswith("20")
    assert report["scored_with"].keys() == {*("hardware", "device", "threads", "cores", "python", "torch", "attendo")}
    test, loss = report["tests"]
    assert (test["name"], test["metric"], test["value"]) == ("held-out", "error_rate", 100.0)
    assert (test["seeds"], test["lines"], test["passed"]) == ({"1": 100.0, "2": 100.0}, 4, True)
    assert (test["reference_source"], test["higher_is_better"], len(test["signatures"])) == ("someone 1999", False, 1)
    reports = [json.loads(line) for line in (out / "seed-1" / "metrics.jsonl").read_text().splitlines()]
    assert loss["seeds"]["1"] == min(each["loss"] for each in reports if each["kind"] == "validation")
    assert [(run["seed"], run["folder"], run["steps"]) for run in report["runs"]] == [
        (1, "seed-1", 3),
        (2, "seed-2", 3),
    ]
    steps = [each for each in reports if each["kind"] == "step"]
    last = max(each["seconds"] for each in steps)
    assert report["runs"][0]["target_tokens"] == sum(each["tokens"] for each in steps)
    assert report["runs"][0]["training_seconds"] == round(last, 1)
    assert report["training_seconds"] == pytest.approx(sum(run["training_seconds"] for run in report["runs"]), abs=0.06)
    assert (out / "seed-1" / "tests" / "held-out.txt").read_text("utf-8").count("\n") == len(SOURCES)
    assert report["data"] == "data"
    assert report["tested_on"] == {
        name: hashlib.sha256((data / name).read_bytes()).hexdigest() for name in ("test.source", "test.target")
    }


def test_a_recipe_below_expectations_fails(attendo: Command, data: Path, out: Path, recipe: Recipe) -> None:
    """A changed expectation does not train the runs again."""
    path = recipe(PLAIN.replace("expected = 99.5", "expected = 12.0"))
    done = attendo("reproduce", path, "--seeds", "2", "--out", out, "--device", "cpu")
    assert done.code == 1
    assert done.output.splitlines()[-1] == "fail: worse than expected"
    assert done.output.splitlines()[2].endswith("fail")
    some = read_results(out, "results-partial.json")
    assert (some["passed"], list(some["tests"][0]["seeds"])) == (False, ["2"])
    assert not (out / "results.json").exists(), "results of all seeds are not written for a subset"
    assert "seed 2: complete, in" in done.errors


@pytest.mark.slow
def test_without_files_the_validation_pairs_are_scored(
    attendo: Command, recipe: Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(corpora, "BUILTIN_VALID_PAIRS", 7)
    done = attendo("reproduce", recipe(BUILTIN), "--device", "cpu")
    assert done.code == 1, done.errors
    chrf, perplexity = read_results(Path("runs/reproduce/mine"))["tests"]
    assert (chrf["lines"], chrf["passed"], perplexity["passed"]) == (7, False, True)
    assert perplexity["value"] > 1


def test_missing_files_are_named_before_training(attendo: Command, recipe: Recipe) -> None:
    failed = attendo("reproduce", recipe(PLAIN), "--device", "cpu")
    assert failed.code == 3
    assert fragment("recipe_files_missing", recipe="mine") in failed.error
    assert fragment("recipe_files_missing") in failed.error
    assert not Path("runs").exists()


@pytest.mark.parametrize(("name", "given"), [("elsewhere", "elsewhere"), ("sentences", ".")])
def test_data_is_found_in_a_given_folder_or_by_dataset_name(
    attendo: Command, data: Path, out: Path, recipe: Recipe, name: str, given: str
) -> None:
    path = recipe(PLAIN)
    data.rename(name)
    done = attendo("reproduce", path, "--data", given, "--seeds", "1", "--out", out, "--device", "cpu")
    assert done.code == 0, done.errors
    assert "seed 1: complete" in done.errors


@pytest.mark.slow
def test_an_interrupted_run_is_resumed_and_then_reused(attendo: Command, data: Path, recipe: Recipe) -> None:
    path = recipe(PLAIN)
    options = ("--data", data, "--out", "out/seed-1", "--set", "seed=1", "--stop-at", "2", "--device", "cpu")
    assert attendo("train", path, *options).code == 0
    arguments = ("reproduce", path, "--out", "out", "--seeds", "1", "--device", "cpu")
    first = attendo(*arguments)
    assert "seed 1: training 1 of 1" in first.errors
    assert "going on from step 2\n" in first.errors
    weights = Path("out/seed-1/model/weights.safetensors")
    before = weights.stat().st_mtime_ns
    second = attendo(*arguments)
    assert (second.code, second.output) == (first.code, first.output)
    assert "seed 1: complete, in out/seed-1\n" in second.errors
    assert "training" not in second.errors
    assert weights.stat().st_mtime_ns == before


@pytest.mark.slow
def test_a_run_stopped_by_patience_is_complete(attendo: Command, data: Path, recipe: Recipe) -> None:
    path = recipe(PLAIN)
    no_improvement = "steps = 9\npatience = 1\npeak_lr = 1e-30\nvalidate_every = 1\n"
    path.write_text(
        path.read_text("utf-8").replace("validate_every = 2\n", "").replace("steps = 3\n", no_improvement), "utf-8"
    )
    arguments = ("reproduce", path, "--out", "out", "--seeds", "1", "--device", "cpu")
    assert attendo(*arguments).code == 0
    assert read_results(Path("out"), "results-partial.json")["runs"][0]["steps"] < 9
    assert "seed 1: complete" in attendo(*arguments).errors


def test_run_state_is_read_from_the_run_folder(data: Path, out: Path, recipe: Recipe) -> None:
    config, run = read_recipe(recipe(PLAIN)).config(None, data), out / "seed-1"
    assert read_run_state(out / "seed-3", config, {}) == "new"
    assert read_run_state(run, config, {}) == "complete"
    with pytest.raises(UsageError, check=has_code("run_settings_differ", settings="seed = 5")):
        read_run_state(run, config.replace(seed=5), {})
    smaller = config.train.replace(
        batch_tokens=32, accumulate=2
    )  # updates of the same size, as advised when memory is short
    assert read_run_state(run, config.replace(train=smaller), {}) == "complete"
    for name in ("data", "checkpoints"):
        shutil.rmtree(run / name)
    assert read_run_state(run, config, {}) == "complete", "the model and its reports are enough to score it"
    shutil.rmtree(run / "model")
    assert read_run_state(run, config, {}) == "new"
    shutil.rmtree(out / "seed-2" / "model")
    assert read_run_state(out / "seed-2", config.replace(seed=2), {}) == "begun"


@pytest.mark.slow
def test_a_relative_start_from_path_is_recognised(data: Path, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run stores the absolute path, so it can be resumed from any folder."""
    monkeypatch.chdir(out.parent)
    pairs = {f"{valid}{side}": f"data/test.{side}" for valid in ("", "valid_") for side in ("source", "target")}
    config = RunConfig(start_from="out/seed-1/model", data=pairs, train={"steps": 2, "warmup": 1, "workers": 0})
    run = Run.begin(config, Path("on"), torch.device("cpu"))
    assert list(run.prepare())
    assert list(run.train())
    run.finish()
    assert read_run_state(Path("on"), config, {}) == "complete"
    with pytest.raises(UsageError, check=has_code("run_settings_differ", folder="on")):
        read_run_state(Path("on"), config.replace(start_from=Path("out/seed-2/model")), {})


def test_a_run_trained_on_other_text_is_rejected(attendo: Command, data: Path, out: Path, recipe: Recipe) -> None:
    config, run = read_recipe(recipe(PLAIN)).config(None, data), out / "seed-1"
    texts = compute_checksums(list_training_files(config.data))
    write_text_checksums(run, texts)
    arguments = ("reproduce", "mine.toml", "--seeds", "1", "--out", out, "--device", "cpu", "--data")
    moved = data.rename(data.with_name("moved"))
    assert attendo(*arguments, moved).code == 0, "the folder of the text does not matter"
    (moved / "train.target").write_text("other\n" * 40, "utf-8")
    failed = attendo(*arguments, moved)
    assert failed.code == 2
    new = moved / "train.target"
    old_sha256, new_sha256 = texts["train.target"], compute_checksums({"train.target": new})["train.target"]
    expected = fragment("training_text_changed", old_sha256=old_sha256, new_path=new, new_sha256=new_sha256)
    assert expected in failed.error
    assert str(run) in failed.error
    shutil.rmtree(run / "model")
    assert attendo(*arguments, moved).code == 2, "an unfinished run is not resumed either"


@pytest.mark.parametrize(
    ("name", "content"), [("run.json", "{"), ("run.json", "[1]"), ("run.json", None), ("texts.json", "{")]
)
def test_a_damaged_file_of_a_complete_run_is_a_model_error(
    data: Path, out: Path, recipe: Recipe, name: str, content: str | None
) -> None:
    config, path = read_recipe(recipe(PLAIN)).config(None, data), out / "seed-1" / name
    path.unlink() if content is None else path.write_text(content, "utf-8")
    with pytest.raises(ModelError, check=has_code("run_record_damaged", path=path)):
        read_run_state(out / "seed-1", config, {})


@pytest.mark.parametrize("content", ["[1]", "{", '{"step": "3"}'])
def test_a_run_with_damaged_scores_is_incomplete(data: Path, out: Path, recipe: Recipe, content: str) -> None:
    config = read_recipe(recipe(PLAIN)).config(None, data)
    (out / "seed-1" / "model" / "scores.json").write_text(content, "utf-8")
    assert read_run_state(out / "seed-1", config, {}) == "begun"


def test_damaged_metrics_lines_are_a_data_error(data: Path, out: Path, recipe: Recipe) -> None:
    config = read_recipe(recipe(PLAIN)).config(None, data)
    (out / "seed-1" / "run.toml").write_text(to_toml(longer := config.replace(train=config.train.replace(steps=9))))
    with (out / "seed-1" / "metrics.jsonl").open("a") as file:
        file.write('{"kind": "stopped", "step": 3}\n{"kind": "stopped", "st')
    assert read_run_state(out / "seed-1", longer, {}) == "complete", "an incomplete last line is allowed"
    with (out / "seed-1" / "metrics.jsonl").open("a") as file:
        file.write("\n")
    with pytest.raises(DataError, check=has_code("metrics_line_invalid", file="metrics.jsonl")):
        read_run_state(out / "seed-1", longer, {})


def test_bad_test_files_and_devices_fail_before_training(attendo: Command, data: Path, recipe: Recipe) -> None:
    path = recipe(PLAIN)
    failed = attendo("reproduce", path, "--device", "foo")
    assert (failed.code, "foo" in failed.error) == (2, True)
    (data / "test.target").write_text("\n" * len(SOURCES), "utf-8")
    failed = attendo("reproduce", path, "--device", "cpu")
    assert (failed.code, fragment("test_row_invalid", row=1, fault="empty") in failed.error) == (3, True)
    assert not Path("runs").exists()


def test_scores_are_printed_even_if_they_cannot_be_written(
    attendo: Command, data: Path, out: Path, recipe: Recipe
) -> None:
    (out / "results.json").mkdir()
    failed = attendo("reproduce", recipe(PLAIN), "--out", out, "--device", "cpu")
    assert failed.output.splitlines()[-1] == "pass: as expected"
    assert failed.code == 2
    assert message("reproduce_file_not_writable", path=out / "results.json", reason="Is a directory") in failed.errors
    assert not (out / ".tmp-results.json").exists()


def test_a_full_disk_prints_scores_and_names_the_files(attendo: Command, data: Path, out: Path, recipe: Recipe) -> None:
    path = recipe(PLAIN)
    with room_for(1):
        failed = attendo("reproduce", path, "--out", out, "--device", "cpu")
    assert failed.output.splitlines()[-1] == "pass: as expected"
    assert failed.code == 1
    answers = out / "seed-2" / "tests" / "held-out.txt"
    assert fragment("disk_full", path=answers) in failed.errors
    assert failed.errors.splitlines()[-1].startswith("attendo: " + fragment("disk_full", path=out / "results.json"))


def test_unsaved_outputs_exit_with_code_1(attendo: Command, data: Path, out: Path, recipe: Recipe) -> None:
    (out / "seed-1" / "tests").touch()
    failed = attendo("reproduce", recipe(PLAIN), "--out", out, "--device", "cpu")
    assert failed.code == 1
    assert fragment("reproduce_file_not_writable", path=out / "seed-1" / "tests" / "held-out.txt") in failed.errors
    assert read_results(out)["passed"] is True


def test_a_run_of_another_process_is_a_usage_error(data: Path, out: Path, recipe: Recipe) -> None:
    found = read_recipe(recipe(PLAIN))
    run, config = found.plan(out)[0], found.config(None, data)
    with pytest.raises(UsageError, check=has_code("run_started_by_another_process")):
        command._start_run(run, config, torch.device("cpu"), {})


STUDENT = """
[model]
kind = "ctc"
upsample = 8
[train]
steps = 2
batch_tokens = 64
samples = 0
""" + PLAIN.replace("seeds = [1, 2]", 'seeds = [1, 2]\nstart_recipe = "mine"').replace("beam = 2\n", "")


def test_runs_start_from_the_models_of_another_recipe(
    attendo: Command, data: Path, trained: Path, recipe: Recipe, tmp_path: Path
) -> None:
    recipe(PLAIN)
    student = tmp_path / "student.toml"
    student.write_text(STUDENT, "utf-8")
    shutil.copytree(trained, tmp_path / "out" / "start")
    done = attendo("reproduce", student, "--out", "out", "--seeds", "2", "--device", "cpu")
    assert done.code == 0, done.errors
    assert "student starts from the models of mine\nseed 2: complete, in out/start/seed-2\n" in done.errors
    stored = load_run_config(Path("out/seed-2"))
    assert stored.start_from == (tmp_path / "out/start/seed-2/model").absolute()
    assert stored.model["kind"] == "ctc"
    again = attendo("reproduce", student, "--out", "out", "--seeds", "2", "--device", "cpu")
    assert "training" not in again.errors


def test_a_start_may_start_from_another_recipe(
    attendo: Command, data: Path, trained: Path, recipe: Recipe, tmp_path: Path
) -> None:
    recipe(PLAIN)
    (tmp_path / "student.toml").write_text(STUDENT, "utf-8")
    last = tmp_path / "last.toml"
    last.write_text(STUDENT.replace('start_recipe = "mine"', 'start_recipe = "student"'), "utf-8")
    shutil.copytree(trained, tmp_path / "out" / "start" / "start")
    done = attendo("reproduce", last, "--out", "out", "--seeds", "2", "--device", "cpu")
    assert done.code == 0, done.errors
    assert "last starts from the models of student\nstudent starts from the models of mine\n" in done.errors
    assert load_run_config(Path("out/seed-2")).start_from == (tmp_path / "out/start/seed-2/model").absolute()
    stored = load_run_config(Path("out/start/seed-2"))
    assert stored.start_from == (tmp_path / "out/start/start/seed-2/model").absolute()
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "out" / "start")
    linked = stored.replace(start_from=link / "start" / "seed-2" / "model")
    assert read_run_state(Path("out/start/seed-2"), linked, {}) == "complete"
    (tmp_path / "mine.toml").write_text(STUDENT.replace('start_recipe = "mine"', 'start_recipe = "last"'), "utf-8")
    with pytest.raises(UsageError, check=has_code("start_recipe_circular", recipe="last", start="last")):
        read_recipe(last).list_starts()


def test_settings_that_a_start_fixes_are_reported_before_it_is_trained(
    attendo: Command, data: Path, recipe: Recipe, tmp_path: Path
) -> None:
    recipe(PLAIN)
    (tmp_path / "student.toml").write_text(f'preset = "tiny"{STUDENT}', "utf-8")
    done = attendo("reproduce", tmp_path / "student.toml", "--out", "out", "--device", "cpu")
    assert done.code == 2
    assert fragment("start_from_preset_fixed") in done.errors
    assert not Path("out").exists()


def test_a_recipe_with_variants_is_no_start(recipe: Recipe, tmp_path: Path) -> None:
    recipe(VARIED)
    student = tmp_path / "student.toml"
    student.write_text(STUDENT, "utf-8")
    with pytest.raises(UsageError, check=has_code("start_recipe_unsuitable", recipe="student", start="mine")):
        read_recipe(student).find_start()
    path = recipe(VARIED.replace("about =", 'start_recipe = "student"\nabout ='))
    with pytest.raises(UsageError, check=has_code("run_file_invalid", error=has_code("start_recipe_with_variants"))):
        read_recipe(path)


@pytest.mark.slow
def test_an_ensemble_of_all_seeds_is_scored(attendo: Command, data: Path, out: Path, recipe: Recipe) -> None:
    path = recipe(PLAIN.replace("seeds =", "ensemble = true\nseeds ="))
    done = attendo("reproduce", path, "--out", out, "--device", "cpu")
    assert done.code == 0, done.errors
    assert "scoring held-out: together\n" in done.errors
    assert done.output.splitlines()[1].split()[-4:] == ["together", "expected", "published", "verdict"]
    assert read_results(out)["tests"][0]["together"] == 100.0
    assert (out / "tests" / "held-out.txt").is_file()
    path = recipe(path.read_text("utf-8").removeprefix(NETWORK).replace("expected = 99.5", "expected = 1.0"))
    alone = attendo("reproduce", path, "--seeds", "2", "--out", out, "--device", "cpu")
    assert (alone.code, alone.output.splitlines()[2].endswith("not judged")) == (0, True)
    assert alone.output.splitlines()[-1] == "not compared: the expected number is for an ensemble of 2 networks"


@pytest.mark.slow
def test_each_variant_is_trained_on_its_own_files(attendo: Command, data: Path, recipe: Recipe) -> None:
    path = recipe(VARIED)
    done = attendo("reproduce", path, "--out", "out", "--device", "cpu")
    assert done.code == 0, done.errors
    report = read_results(Path("out"))
    assert [run["folder"] for run in report["runs"]] == ["left/seed-1", "right/seed-1"]
    assert report["tests"][0]["variants"] == {"left": {"1": 0.0}, "right": {"1": 0.0}}
    assert report["tests"][0]["lines"] == 2 * len(SOURCES)
    assert [" ".join(line.split()) for line in done.output.splitlines()[4:7]] == [
        "test score variant seed 1",
        "test exact_match left 0.00",
        "test exact_match right 0.00",
    ]
    for variant in ("left", "right"):
        assert f'file = "{variant}.tsv"' in Path(f"out/{variant}/seed-1/run.toml").read_text("utf-8")
    some = attendo("reproduce", recipe(VARIED.replace("expected = 0.0", "expected = 99.0")), "--out", "out",
                   "--variants", "right", "--device", "cpu")  # fmt: skip
    assert some.code == 0, "a mean of some variants is not judged"
    assert some.output.splitlines()[-1] == "not compared: the expected number is for the mean of 2 variants"
    assert read_results(Path("out"), "results-partial.json")["passed"] is None
    assert read_results(Path("out")) == report, "results of all variants are kept"


def test_test_parts_are_reported_separately(attendo: Command, data: Path, out: Path, recipe: Recipe) -> None:
    files = 'file = "{part}.tsv"\nparts = ["left", "right"]'
    path = recipe(PLAIN.replace('source = "test.source"\ntarget = "test.target"\nmetric', f"{files}\nmetric"))
    done = attendo("reproduce", path, "--seeds", "1", "--out", out, "--device", "cpu")
    assert done.code == 0, done.errors
    assert [" ".join(line.split()) for line in done.output.splitlines()[3:7]] == [
        "",
        "test score part seed 1",
        "held-out error_rate left 100.00",
        "held-out error_rate right 100.00",
    ]


def test_a_variant_can_be_trained_like_a_run_file(attendo: Command, data: Path, recipe: Recipe) -> None:
    path = recipe(VARIED)
    failed = attendo("train", path, "--data", data)
    assert (failed.code, "--set variant=left: left, right" in failed.error) == (2, True)
    shown = attendo("train", path, "--data", data, "--set", "variant=left", "--show")
    assert 'file = "left.tsv"\n' in shown.output


@pytest.mark.slow
def test_parallel_trainings_are_processes_with_logs(attendo: Command, data: Path, out: Path, recipe: Recipe) -> None:
    """One real process; `test_reproduce_jobs.py` tests several."""
    shutil.rmtree(out / "seed-1")
    done = attendo("reproduce", recipe(PLAIN), "--jobs", "2", "--out", out, "--device", "cpu")
    assert done.code == 0, done.errors
    assert f"seed 1: training, log in {out / 'seed-1.log'}\n" in done.errors
    assert "seed 1: done after " in done.errors
    assert "seed 2: complete, in " in done.errors
    assert f"model written to {out / 'seed-1' / 'model'}" in (out / "seed-1.log").read_text("utf-8")
    assert read_results(out / "seed-1", "texts.json").keys() >= {"train.source", "train.target"}


def test_job_arguments_match_the_run(data: Path, recipe: Recipe) -> None:
    found = read_recipe(recipe(VARIED))
    run = found.plan(Path("out"))[1]
    new = command._make_job(found, run, data, "cpu", resumes=False)
    assert new.arguments == [
        *("train", str(found.path), "--out", "out/right/seed-1", "--data", str(data)),
        *("--set", "seed=1", "--set", 'variant="right"', "--device", "cpu"),
    ]
    assert new.log == Path("out/right/seed-1.log")
    resumed = command._make_job(found, run, data, "cpu", resumes=True)
    assert resumed.arguments == ["train", "--resume", "out/right/seed-1", "--device", "cpu"]
    assert isinstance(resumed, TrainingJob)


def test_all_recipes_are_listed_with_their_numbers(attendo: Command) -> None:
    done = attendo("reproduce", "--list")
    assert (done.code, done.errors) == (0, "")
    lines = done.output.splitlines()
    assert lines[0].split() == ["recipe", "test", "expected", "published", "data"]
    assert max(map(len, lines)) <= 100
    start = next(number for number, line in enumerate(lines) if line.startswith("multi30k_en_de"))
    assert lines[start].split() == ["multi30k_en_de", "test_2016", "bleu", "41.7", "±", "0.7", "41.02", "multi30k"]
    assert lines[start + 1].split() == ["test_2017", "bleu", "34.1", "±", "0.7", "33.36"]
    assert lines[start + 2] == "  Translation of image captions, English to German (Multi30k); 3 trainings"
    assert (lines[start - 1], lines[start + 3]) == ("", "")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], message("recipe_missing")),
        (["nothing"], fragment("unknown_recipe", name="nothing")),
        (["scan_simple", "--list"], fragment("list_with_recipe")),
        (["scan_simple", "--seeds", "1,x"], fragment("seeds_not_integers", value="x")),
        (["scan_simple", "--seeds", ","], message("option_list_empty", option="--seeds", value=",", example="1,2")),
        (["scan_simple", "--seeds", ""], fragment("option_list_empty", option="--seeds", value="")),
        (
            ["inflection", "--variants", " ,"],
            fragment("option_list_empty", option="--variants", value=" ,", example="A,B"),
        ),
        (["scan_simple", "--variants", "x"], message("no_variants", name="x", owner="scan_simple")),
        (["scan_simple", "--jobs", "0"], "--jobs"),
    ],
)
def test_a_usage_error_is_one_line_with_exit_code_2(attendo: Command, arguments: list[str], message: str) -> None:
    failed = attendo("reproduce", *arguments)
    assert failed.code == 2
    assert message in failed.error
