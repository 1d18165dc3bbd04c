"""The exposure study: its plan, its settings, its jobs, the shuffled risks, and its tables from results."""

import gzip
import json
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from attendo.runs.config import RunConfig
from attendo.text import Words
from attendo.train.config import TrainConfig
from attendo.train.minimum_risk import make_text_risk
from attendo.train.scheduled_sampling import inverse_sigmoid
from benchmarks.exposure_study import paired_statistics
from benchmarks.exposure_study.collection import collect
from benchmarks.exposure_study.faults import FAULTS
from benchmarks.exposure_study.jobs import Job, make_jobs, run_jobs
from benchmarks.exposure_study.plan import BEAMS, CONTROLS, TASKS, TEXTS, Model, Plan, Study, read_plan, write_plan
from benchmarks.exposure_study.report import draw_study, find_comparison, format_report
from benchmarks.exposure_study.shuffled_risk import make_shuffled_risk
from benchmarks.exposure_study.training import find_decay, format_run_file, make_settings, treat

PLAN = Plan(
    tasks=("multi30k", "tatoeba"),
    seeds=(1, 2),
    treatments=("control", "input_noise", "schedule", "confidence", "r_drop", "mrt", "mrt_shuffled"),
    steps=200,
    mrt_steps=50,
    lines=12,
    exposure_lines=12,
    changes=(),
)


def make_study(folder: Path, **changes: Any) -> Study:
    return Study(replace(PLAN, **changes), folder / "data", folder / "out", "cpu")


# The plan


def test_every_treatment_continues_a_base_model_of_the_plan() -> None:
    names = [each.name for each in PLAN.models]
    assert len(names) == len({*names}) == 2 * 7 + 2 * 8
    assert names[:4] == ["multi30k-1-base", "multi30k-2-base", "tatoeba-1-base", "tatoeba-2-base"]
    assert all(each.base in PLAN.models for each in PLAN.models)
    assert [each.task for each in PLAN.models if each.treatment == "r_drop"] == ["tatoeba", "tatoeba"]
    assert {*CONTROLS} == {*PLAN.treatments}


def test_a_judge_is_the_base_model_of_another_seed_and_of_the_data_set_of_the_text() -> None:
    for model in PLAN.models:
        for text in TASKS[model.task].texts:
            judge = PLAN.find_judge(model, text)
            assert (judge.treatment, judge.task) == ("base", TEXTS[text].judge)
            assert judge.seed != model.seed
            assert text in PLAN.judged_texts[judge]
    alone = replace(PLAN, tasks=("multi30k",), seeds=(3,))
    assert alone.find_judge(Model("multi30k", 3, "control"), "tatoeba") == Model("multi30k", 3, "base")


def test_jobs_wait_for_the_models_that_they_read(tmp_path: Path) -> None:
    needs = {job.name: set(job.needs) for job in make_jobs(make_study(tmp_path))}
    assert needs["train tatoeba-1-base"] == set()
    assert needs["train tatoeba-2-mrt"] == {"train tatoeba-2-base"}
    bases = {f"train {name}" for name in ("tatoeba-1-base", "tatoeba-2-base", "multi30k-2-base")}
    assert needs["evaluate tatoeba-1-mrt"] == {"train tatoeba-1-mrt"} | bases - {"train tatoeba-1-base"}
    assert needs["evaluate judge-multi30k-1-base"] == {"train multi30k-1-base"}


# Settings


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("treatment", ["base", *CONTROLS])
def test_run_files_are_valid(tmp_path: Path, task: str, treatment: str) -> None:
    values = tomllib.loads(format_run_file(make_settings(make_study(tmp_path), Model(task, 2, treatment))))
    config = RunConfig(**values)
    assert config.seed == 2
    if treatment == "base":
        assert config.start_from is None
        return
    base = tmp_path / "out" / "models" / f"{task}-2-base"
    assert (config.start_from, config.data.prepared) == (base / "model", base / "data")
    assert config.train.steps == (50 if treatment.startswith("mrt") else 200)
    assert config.train.final == "last"


@pytest.mark.parametrize("task", TASKS)
def test_a_treatment_differs_from_its_control_in_its_own_settings_alone(tmp_path: Path, task: str) -> None:
    study = make_study(tmp_path)
    for treatment in TASKS[task].treatments:
        control = CONTROLS[treatment]
        if control == "base":
            continue
        one, other = (make_settings(study, Model(task, 1, name)) for name in (treatment, control))
        for values, name in ((one, treatment), (other, control)):
            values["train"] = {key: value for key, value in values["train"].items() if key not in treat(name, 200)}
        assert one == other
    assert treat("mrt", 50) == treat("mrt_shuffled", 50)


def test_changes_reach_the_named_models(tmp_path: Path) -> None:
    changes = ("all:train.batch_tokens=77", "base:train.steps=5", "continued:train.ema=0.5", "mrt:train.mrt_alpha=0.9")
    study = make_study(tmp_path, changes=changes)
    settings = {name: make_settings(study, Model("tatoeba", 1, name))["train"] for name in ("base", "control", "mrt")}
    assert {each["batch_tokens"] for each in settings.values()} == {77}
    assert (settings["base"]["steps"], settings["control"]["steps"], settings["mrt"]["steps"]) == (5, 200, 50)
    assert ("ema" in settings["base"], settings["control"]["ema"], settings["mrt"]["ema"]) == (False, 0.5, 0.5)
    assert settings["mrt"]["mrt_alpha"] == 0.9


@pytest.mark.parametrize("updates", [20, 1000, 5000])
def test_half_of_the_inputs_are_the_reference_after_the_given_updates(updates: int) -> None:
    k = find_decay(updates)
    assert inverse_sigmoid(updates, k) == pytest.approx(0.5, abs=0.02)
    assert find_decay(1) == 2.7


def test_a_folder_keeps_its_plan(tmp_path: Path) -> None:
    study = make_study(tmp_path)
    study.out.mkdir()
    write_plan(study)
    write_plan(study)
    assert read_plan(study.out) == PLAN
    with pytest.raises(SystemExit, match="steps = 200, now 300"):
        write_plan(make_study(tmp_path, steps=300))


# Jobs


def make_job(folder: Path, name: str, code: str, needs: tuple[str, ...] = ()) -> Job:
    """Return a job whose code may write its file, which is its result."""
    file = folder / name
    command = [sys.executable, "-c", f"from pathlib import Path; import sys\nfile = Path({str(file)!r})\n{code}"]
    return Job(name, needs, lambda: command, file.exists)


def test_jobs_run_in_the_order_of_their_needs_and_finished_work_is_kept(tmp_path: Path) -> None:
    copy = "file.write_text(str(len(list(file.parent.glob('[abc]')))))"
    jobs = [make_job(tmp_path, "b", copy, ("a",)), make_job(tmp_path, "c", copy, ("b",)), make_job(tmp_path, "a", copy)]
    assert run_jobs(jobs, 3, tmp_path / "logs", lambda: False) == []
    assert [(tmp_path / name).read_text() for name in "abc"] == ["0", "1", "2"]
    (tmp_path / "c").unlink()
    assert run_jobs(jobs, 3, tmp_path / "logs", lambda: False) == []
    assert [(tmp_path / name).read_text() for name in "abc"] == ["0", "1", "2"]


def test_a_failed_job_stops_only_what_needs_it(tmp_path: Path) -> None:
    write = "file.write_text('x')"
    jobs = [
        make_job(tmp_path, "fails", "print('reason'); sys.exit(3)"),
        make_job(tmp_path, "without result", ""),
        make_job(tmp_path, "after", write, ("fails",)),
        make_job(tmp_path, "other", write),
    ]
    assert sorted(run_jobs(jobs, 1, tmp_path / "logs", lambda: False)) == ["fails", "without result"]
    assert (tmp_path / "other").exists()
    assert not (tmp_path / "after").exists()
    assert (tmp_path / "logs" / "fails.log").read_text() == "reason\n"


def test_at_the_time_limit_jobs_get_sigterm_and_may_save(tmp_path: Path) -> None:
    code = (
        "import signal, time\nsaved = file.with_name('saved')\n"
        "signal.signal(signal.SIGTERM, lambda *_: (saved.write_text('x'), sys.exit(143)))\n"
        "file.with_name('ready').touch()\nwhile True: time.sleep(0.05)"
    )
    jobs = [make_job(tmp_path, "long", code), make_job(tmp_path, "later", "file.touch()", ("long",))]
    assert run_jobs(jobs, 2, tmp_path / "logs", (tmp_path / "ready").exists) == []
    assert (tmp_path / "saved").exists()
    assert not (tmp_path / "later").exists()


# The control of minimum risk training


def test_shuffled_risks_are_the_same_numbers_in_another_order() -> None:
    words = Words.build(["a b c d e f g h"])
    config = TrainConfig(objective="mrt")
    candidates = [tuple(words.encode(text)) for text in ("a b c", "a b", "d e f", "a c b", "g h")]
    compute, shuffle = make_text_risk(config, words), make_shuffled_risk(config, words)
    assert compute is not None
    assert shuffle is not None
    right = compute(candidates, candidates[0])
    torch.manual_seed(0)
    drawn = [tuple(shuffle(candidates, candidates[0])) for _ in range(50)]
    assert all(sorted(each) == sorted(right) for each in drawn)
    assert len({*drawn}) > 20
    assert np.mean([each[0] for each in drawn]) == pytest.approx(np.mean(right), abs=0.15)  # 0 without shuffling
    torch.manual_seed(0)
    assert [tuple(shuffle(candidates, candidates[0])) for _ in range(50)] == drawn
    assert make_shuffled_risk(TrainConfig(), words) is None


# Tables

WORDS = ["hund", "katze", "vogel", "pferd", "lampe", "garten", "fluss", "haus", "stadt", "ball", "wald", "berg"]


def write_study(folder: Path) -> Study:
    """Write made-up results: input noise is better than its control, and the control has more loops."""
    study = make_study(folder, tasks=("tatoeba",), treatments=("control", "input_noise", "schedule"))
    sources = [f"the {word} is number {number}" for number, word in enumerate(WORDS)]
    references = [f"{word} ist die nummer {number} von allen" for number, word in enumerate(WORDS)]
    for text in TEXTS.values():
        (study.data / text.folder).mkdir(parents=True, exist_ok=True)
        for side, lines in (("en", sources), ("de", references)):
            for name in (text.test, text.valid):
                file = study.data / text.folder / f"{name}.{side}.gz"
                file.write_bytes(gzip.compress(("\n".join(lines) + "\n").encode()))
    (study.out / "results").mkdir(parents=True)
    for model in study.plan.models:
        outputs = [text.replace("allen", "vielen") for text in references]
        if model.treatment != "input_noise":
            outputs = [*(" ".join(3 * text.split()[:3]) for text in outputs[:6]), *outputs[6:]]
        for text in TASKS["tatoeba"].texts:
            write_result(study, model.name, text, make_result(model, outputs))
    for judge, texts in study.plan.judged_texts.items():
        for text in texts:
            contrasts = [1.0 + line / 10 for line in range(len(sources))]
            faults = {name: [0.0] * len(sources) for name in ("paraphrases", *FAULTS)}
            found = {"valid": contrasts, "references": contrasts, "faults": faults}
            write_result(study, f"judge-{judge.name}", text, found)
    return study


def make_result(model: Model, outputs: list[str]) -> dict[str, Any]:
    better = model.treatment == "input_noise"
    recovery = [[2.0 - better, 1.0 - better / 2, 0.5, None, None, None, None, None]] * len(outputs)
    exposure: dict[str, Any] = {"accuracy_gold": 70.0, "accuracy_own": 40.0, "gap_5": None, "excess_sampled": 3.0}
    for name in ("random", "wrong", "dropped", "doubled"):
        exposure |= {f"{name}_deltas": recovery[0], f"{name}_half_life": "> 3" if better else 2}
    return {
        "facts": {"steps": 200, "seconds": 1.5, "valid_loss": 1.0},
        "outputs": dict.fromkeys(BEAMS, outputs),
        "contrasts": dict.fromkeys(BEAMS, [2.0] * len(outputs)),
        "log_probs": [[-10.0, 5]] * len(outputs),
        "recovery": dict.fromkeys(("random", "wrong"), recovery),
        "exposure": exposure,
    }


def write_result(study: Study, name: str, text: str, content: dict[str, Any]) -> None:
    study.results_file(name, text).write_bytes(gzip.compress(json.dumps(content).encode()))


@pytest.fixture(scope="module", autouse=True)
def few_samples() -> Iterator[None]:
    """The bootstrap has tests of its own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(paired_statistics, "SAMPLES", 50)
        yield


@pytest.fixture(scope="module")
def collected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    study = write_study(tmp_path_factory.mktemp("study"))
    return json.loads(json.dumps(collect(study, jobs=1)))


def test_collected_values_are_those_of_the_outputs(collected: dict[str, Any]) -> None:
    good, bad = (collected["models"][f"tatoeba-2-{name}"]["texts"]["msctd"] for name in ("input_noise", "control"))
    assert (good["beam"]["loop"], bad["beam"]["loop"], bad["beam"]["hallucinated"]) == (0.0, 50.0, 50.0)
    assert (good["prefix"]["nll"], good["prefix"]["random_1"], bad["prefix"]["random_1"]) == (2.0, 1.0, 2.0)
    assert good["prefix"]["random_2_to_4"] == 0.5
    assert good["greedy"]["bleu"] > bad["greedy"]["bleu"]
    assert "outputs" not in json.dumps(collected["models"])  # the file has no sentence
    assert not any(word in json.dumps(collected) for word in WORDS)


def test_a_treatment_is_compared_with_its_control_on_both_seeds(collected: dict[str, Any]) -> None:
    found = find_comparison(collected, "tatoeba", "input_noise", "msctd", "beam", "loop")
    assert found is not None
    assert (found["difference"], found["seeds"], found["significant"]) == (-50.0, [-50.0, -50.0], True)
    same = find_comparison(collected, "tatoeba", "schedule", "msctd", "beam", "loop")
    assert same is not None
    assert (same["difference"], same["significant"], same["p"]) == (0.0, False, 1.0)
    assert {each["control"] for each in collected["comparisons"]} == {"control", "base"}


def test_the_report_has_a_table_per_question(collected: dict[str, Any]) -> None:
    lines = list(format_report(collected))
    tables = [line for line in lines if line.startswith("### ")]
    assert len(tables) == 7
    (row,) = (line for line in lines if line.startswith("| input noise") and "−50.00*" in line)
    assert "[−" in row
    assert any(line.startswith("| base (the recipe) | 70 / 70 | 40 / 40 | 2 / 2") for line in lines)
    assert any(line.startswith("| input noise | 70 / 70 | 40 / 40 | > 3 / > 3") for line in lines)
    faulty = next(line for line in lines if line.startswith("| Tatoeba | last two words 4 times"))
    assert faulty.split(" | ")[3] == "100.0"
    widths = [{line.count("|") for line in table} for table in split_tables(lines)]
    assert all(len(width) == 1 for width in widths)


def split_tables(lines: list[str]) -> list[list[str]]:
    tables: list[list[str]] = [[]]
    for line in lines:
        if line.startswith("|"):
            tables[-1].append(line)
        elif tables[-1]:
            tables.append([])
    return [table for table in tables if table]


def test_the_picture_is_drawn_from_the_same_file(collected: dict[str, Any]) -> None:
    picture = draw_study(collected, "svg")
    assert picture.startswith(b"<?xml")
    assert draw_study(collected, "svg") == picture


def test_missing_results_are_left_out(tmp_path: Path) -> None:
    study = write_study(tmp_path)
    for file in (study.out / "results").glob("tatoeba-1-input_noise.*"):
        file.unlink()
    found = collect(study, jobs=1)
    assert "tatoeba-1-input_noise" not in found["models"]
    tests = [each for each in found["comparisons"] if each["treatment"] == "input_noise"]
    assert {len(each["parts"]["beam"]["bleu"]["seeds"]) for each in tests} == {1}
    assert list(format_report(json.loads(json.dumps(found))))
