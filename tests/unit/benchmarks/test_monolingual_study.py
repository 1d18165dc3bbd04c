"""The study of monolingual text: its texts, settings, jobs and table."""

import gzip
import json
from pathlib import Path

import pytest

from attendo.runs.config import RunConfig
from benchmarks import monolingual_study
from benchmarks.monolingual_study import (
    BACK_TRANSLATED,
    FORWARD,
    REVERSE,
    Study,
    format_scores,
    make_jobs,
    make_settings,
)

PAIRS = [(f"english {n // 2}", f"deutsch {n}") for n in range(200)] + [("new", "deutsch 5")]


@pytest.fixture
def study(tmp_path: Path) -> Study:
    data = tmp_path / "data"
    data.mkdir()
    for part, pairs in (("train", PAIRS), ("valid", PAIRS[:9]), ("test", PAIRS[9:20])):
        for side, language in enumerate(("en", "de")):
            with gzip.open(data / f"{part}.{language}.gz", "wt", encoding="utf-8") as file:
                file.writelines(f"{pair[side]}\n" for pair in pairs)
    return Study(data, tmp_path / "out", "cpu", (1, 2), 100, None, ("train.warmup=7",))


def test_the_texts_do_not_overlap(study: Study) -> None:
    monolingual_study.write_texts(study)
    texts = {path.name: path.read_text("utf-8").splitlines() for path in study.text.iterdir()}
    quarter = list(zip(texts["quarter.en"], texts["quarter.de"], strict=True))
    assert 20 < len(quarter) < 90
    assert set(quarter) < set(PAIRS)
    assert not {*texts["mono.de"]} & {*texts["quarter.de"]}
    assert not {*texts["mono.en"]} & {*texts["quarter.en"]}
    translated = {german for english, german in PAIRS if english in {*texts["mono.en"]}}
    assert not translated & {*texts["mono.de"]} - {"deutsch 5"}, "both monolingual texts have no pair in common"
    assert list(zip(texts["full.en"], texts["full.de"], strict=True)) == PAIRS
    assert len(texts["test.en"]) == 11


def test_every_model_has_a_valid_run_file(study: Study) -> None:
    for name in (*FORWARD, *REVERSE):
        settings = make_settings(study, name, 2)
        config = RunConfig(**settings)
        assert (config.seed, config.train.steps, config.train.warmup) == (2, 100, 7)
        sources = [corpus.source for corpus in config.data.training]
        assert ("quarter.de" in str(sources[0])) == (name in REVERSE)
        assert len(sources) == (1 if name in ("quarter", "full", "reverse") else 2)
        assert {corpus.tag for corpus in config.data.training} <= {None, "<BT>"}


def test_every_job_waits_for_a_job_of_the_study(study: Study) -> None:
    jobs = make_jobs(study)
    names = [job.name for job in jobs]
    assert len(set(names)) == len(names) == 2 * (len(FORWARD) * 2 + len(REVERSE) + len(BACK_TRANSLATED) + 1)
    assert {need for job in jobs for need in job.needs} <= set(names)
    done: set[str] = set()
    while ready := [job.name for job in jobs if job.name not in done and done.issuperset(job.needs)]:
        done.update(ready)
    assert done == set(names), "no job waits for itself"


def test_the_table_has_models_with_all_seeds(study: Study) -> None:
    for name, seeds in (("quarter", (1, 2)), ("tagged", (1, 2)), ("full", (1,))):
        for seed in seeds:
            path = study.result_file(name, seed)
            path.parent.mkdir(parents=True, exist_ok=True)
            bleu = 20 + seed + (3 if name == "tagged" else 0)
            path.write_text(json.dumps({"scores": {"bleu": {"value": bleu}, "chrf": {"value": 50.0}}}))
    table = format_scores(study).splitlines()
    assert [row.split(" | ")[0] for row in table[2:]] == ["| `quarter`", "| `tagged`"]
    assert table[3] == "| `tagged` | 24.50 (24.00, 25.00) | 50.00 (50.00, 50.00) | +3.00 |"


def test_other_settings_need_another_folder(study: Study) -> None:
    study.check_plan()
    study.check_plan()
    with pytest.raises(SystemExit):
        Study(study.data, study.out, "cpu", (1,), 200, None, study.changes).check_plan()
