"""Compares treatments of exposure bias: what each changes in quality, hallucinated outputs and measures of exposure.

    python benchmarks/exposure_study.py run --data data --out runs/exposure --minutes 9 --at-once 10
    python benchmarks/exposure_study.py collect --data data --out runs/exposure --json docs/images/exposure-study.json
    python benchmarks/exposure_study.py report docs/images/exposure-study.json --figure docs/images/exposure-study.svg

`run` trains and evaluates, several processes at once. It keeps finished work: the same command goes on. After
`--minutes`, trainings get SIGTERM, save and end, which takes some seconds more. Processes share a GPU better with
NVIDIA's MPS (start `nvidia-cuda-mps-control -d` before). `collect` computes scores and tests on the CPU from
OUT/results and OUT/plan.json. It needs DATA but no model, so it may run on another machine. `report` prints tables and
draws the picture. It needs only the JSON file, which has no sentences.

A pilot has its own folder and shorter trainings:

    python benchmarks/exposure_study.py run --out runs/pilot --seeds 1 --steps 100 --mrt-steps 50 \\
        --set base:train.steps=500 --set mrt:train.mrt_alpha=0.5 --set mrt_shuffled:train.mrt_alpha=0.5

DATA has the folders multi30k and tatoeba_en_de with the files of the recipes, and msctd_en_de with dev and test, each
as .en.gz and .de.gz.

Protocol

Models. For each data set (Multi30k, Tatoeba, English to German) and seed, `base` is the recipe. Every other model
continues the base model for the same number of updates (--steps), with new moments of the optimizer, the base's
prepared data and seed, so with the same batches in the same order; linear decay from 2e-4; the last weights, not the
best of several:

    control         nothing else; Multi30k's recipe has R-Drop, and so have its continuations
    input_noise     train.input_noise = 0.15
    schedule        scheduled sampling by a schedule, from the first update on; half of the inputs are the reference
                    after half of the updates
    confidence      scheduled sampling by confidence, from the first update on
    r_drop          R-Drop; Tatoeba only, whose recipe has none
    mrt             minimum risk training: --mrt-steps updates of about 64 sentences, constant rate 1e-5, alpha 0.05,
                    weight 0.02 of the cross-entropy, so that the risk leads
    mrt_shuffled    the same, but the risks are shuffled among the candidates of each source

The control of mrt is mrt_shuffled, because mrt has other batches than the rest: both see the same sources, samples and
cross-entropy, and only mrt knows which sample is good. The control of the others is `control`. So a gain is not just
more training. Compare control and mrt_shuffled with base to see what more training does.

Texts. In domain: test 2016 and 2017 of Multi30k, the test set of Tatoeba. Under shift: models of Tatoeba on Multi30k's
test 2016 and on film lines (MSCTD); models of Multi30k on Tatoeba's test set. The first --lines lines of each.

Outputs, by greedy search and a beam of 5, without splitting into sentences: BLEU, chrF, length (words of outputs /
words of references), repeated (% of words equal to the word before), and the shares of loops and detached outputs by
the rules of exposure_faults.py. The judge of contrasts is the base model of another seed, trained on the text's own
data set (film lines: on Tatoeba), and never the model itself or what it was made from. A text has one judge per seed,
so a treatment and its control have the same one. The table of detectors has the recall on injected faults, and the
false alarms on references and on other references of the same source.

Exposure, with the definitions of docs/exposure-bias.md, on the first --exposure-lines lines: accuracy after gold and
own prefixes, loss of the references, recovery after a corrupted token, distractor gap, and %ExAccErr with the base
model of another seed as oracle. Such an oracle is about as good as the model, so ExAccErr means little here.

Tests. A treatment and its control are compared by paired bootstrap over lines (1,000 samples), on each seed and on the
mean of the seeds. A star marks a difference with p < 0.05, an interval without 0 and the same sign on all seeds. Seeds
are not resampled, so two seeds say little about how much a training varies.
"""

import argparse
import gzip
import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attendo.atomic_files import replace_file
from attendo.runs.commands import make_command
from attendo.runs.config import apply_changes, read_run_file, toml_literal

if TYPE_CHECKING:
    from exposure_statistics import Measure

    from attendo.text import Tokenizer
    from attendo.text_model import TextModel
    from attendo.train.config import TrainConfig
    from attendo.train.minimum_risk import RiskFunction

RECIPES = Path(__file__).parents[1] / "recipes"
BEAMS = {"greedy": 1, "beam": 5}
CONTINUATION_LR = 2e-4
R_DROP = 5.0
TESTED_CORRUPTIONS = ("random", "wrong")
GAP_POSITIONS = (1, 5, 10)
# Settings of a recipe's [train] that a continuation replaces.
_REPLACED = ("steps", "epochs", "schedule", "peak_lr", "final_lr", "warmup", "validate_every", "save_every", "patience")
_NOT_FOR_MRT = ("accumulate", "r_drop", "label_smoothing")


@dataclass(frozen=True)
class Text:
    """A test text, a validation text for the limits of detectors, and the task whose base models are its judges."""

    folder: str
    test: str
    valid: str
    judge: str


@dataclass(frozen=True)
class Task:
    """A data set with its recipe, and the texts that its models are tested on."""

    recipe: str
    folder: str
    in_domain: tuple[str, ...]
    shifted: tuple[str, ...]
    treatments: tuple[str, ...]
    mrt_batch_tokens: int  # about 64 sentences

    @property
    def texts(self) -> tuple[str, ...]:
        return self.in_domain + self.shifted


TEXTS = {
    "multi30k_2016": Text("multi30k", "test_2016_flickr", "val", "multi30k"),
    "multi30k_2017": Text("multi30k", "test_2017_flickr", "val", "multi30k"),
    "tatoeba": Text("tatoeba_en_de", "test", "valid", "tatoeba"),
    "msctd": Text("msctd_en_de", "test", "dev", "tatoeba"),
}
_FOR_BOTH = ("control", "mrt", "mrt_shuffled", "input_noise", "schedule", "confidence")
TASKS = {
    "multi30k": Task("multi30k_en_de", "multi30k", ("multi30k_2016", "multi30k_2017"), ("tatoeba",), _FOR_BOTH, 1024),
    "tatoeba": Task(
        "tatoeba_en_de", "tatoeba_en_de", ("tatoeba",), ("multi30k_2016", "msctd"), (*_FOR_BOTH, "r_drop"), 512
    ),
}
TREATMENTS = tuple(dict.fromkeys(name for task in TASKS.values() for name in task.treatments))
CONTROLS = {name: "mrt_shuffled" if name == "mrt" else "control" for name in TREATMENTS} | {
    "control": "base",
    "mrt_shuffled": "base",
}


@dataclass(frozen=True)
class Plan:
    """Everything that determines the results. It is stored in OUT/plan.json."""

    tasks: tuple[str, ...]
    seeds: tuple[int, ...]
    treatments: tuple[str, ...]
    steps: int
    mrt_steps: int
    lines: int
    exposure_lines: int
    changes: tuple[str, ...]  # NAME:SETTING=VALUE

    @property
    def models(self) -> "list[Model]":
        """The models, in the order in which they are trained: long trainings first."""
        bases = [Model(task, seed, "base") for task in self.tasks for seed in self.seeds]
        others = [
            Model(task, seed, name)
            for name in sorted(self.treatments, key=lambda name: not name.startswith("mrt"))
            for task in self.tasks
            for seed in self.seeds
            if name in TASKS[task].treatments
        ]
        return bases + others

    def find_judge(self, model: "Model", text: str) -> "Model":
        """Return the base model of another seed that was trained on the text's own data set, if it is studied."""
        task = TEXTS[text].judge if TEXTS[text].judge in self.tasks else model.task
        return Model(task, self.other_seed(model.seed), "base")

    def other_seed(self, seed: int) -> int:
        """Return the next seed. It is the same one if there is only one."""
        return self.seeds[(self.seeds.index(seed) + 1) % len(self.seeds)]

    @property
    def judged_texts(self) -> "dict[Model, list[str]]":
        """The texts of each judge."""
        found: dict[Model, list[str]] = {}
        for model in self.models:
            for text in TASKS[model.task].texts:
                texts = found.setdefault(self.find_judge(model, text), [])
                texts += [text] if text not in texts else []
        return found


@dataclass(frozen=True)
class Model:
    task: str
    seed: int
    treatment: str

    @property
    def name(self) -> str:
        return f"{self.task}-{self.seed}-{self.treatment}"

    @property
    def base(self) -> "Model":
        return Model(self.task, self.seed, "base")


@dataclass(frozen=True)
class Study:
    """A plan in a folder."""

    plan: Plan
    data: Path
    out: Path
    device: str

    def run_folder(self, model: Model) -> Path:
        return self.out / "models" / model.name

    def results_file(self, name: str, text: str) -> Path:
        return self.out / "results" / f"{name}.{text}.json.gz"

    def count_steps(self, model: Model) -> int:
        """Return the number of updates of the complete training."""
        return int(self.make_settings(model)["train"]["steps"])

    def make_settings(self, model: Model) -> dict[str, Any]:
        """Return the run file of a model. For a base model it is the recipe with changes."""
        recipe = read_run_file(RECIPES / f"{TASKS[model.task].recipe}.toml")
        recipe.pop("reproduce", None)
        values = recipe if model.treatment == "base" else self._continue(recipe, model)
        names = {"all", model.treatment} | ({"continued"} if model.treatment != "base" else set())
        changes = [change.partition(":")[2] for change in self.plan.changes if change.partition(":")[0] in names]
        return apply_changes({**values, "seed": model.seed}, changes)

    def _continue(self, recipe: Mapping[str, Any], model: Model) -> dict[str, Any]:
        is_mrt = model.treatment.startswith("mrt")
        steps = self.plan.mrt_steps if is_mrt else self.plan.steps
        train = {name: value for name, value in recipe["train"].items() if name not in _REPLACED}
        train |= {"steps": steps, "validate_every": steps, "save_every": max(1, steps // 4), "patience": 0}
        train |= {"metrics": ["bleu", "chrf"], "best": "chrf", "final": "last"}
        if is_mrt:
            train = {name: value for name, value in train.items() if name not in _NOT_FOR_MRT}
            train |= {"batch_tokens": TASKS[model.task].mrt_batch_tokens}
            train |= {"schedule": "constant", "peak_lr": 1e-5, "warmup": 0}
        else:
            train |= {"schedule": "linear", "peak_lr": CONTINUATION_LR, "warmup": steps // 20}
        base = self.run_folder(model.base)
        return {
            "start_from": str(base / "model"),
            "data": {"prepared": str(base / "data")},
            "tokenizer": {"dropout": recipe["tokenizer"].get("dropout", 0.0)},
            "train": train | treat(model.treatment, steps),
        }


def treat(treatment: str, steps: int) -> dict[str, Any]:
    """Return the settings of [train] of a treatment."""
    mrt = {"objective": "mrt", "mrt_alpha": 0.05, "mrt_cross_entropy": 0.02}
    sampling = {"scheduled_sampling": treatment, "sampling_start": 0.0}
    return {
        "control": {},
        "input_noise": {"input_noise": 0.15},
        "schedule": {**sampling, "sampling_decay": find_decay(steps / 2)},
        "confidence": sampling,
        "r_drop": {"r_drop": R_DROP},
        "mrt": mrt,
        "mrt_shuffled": mrt,
    }[treatment]


def find_decay(updates: float) -> float:
    """Return k with k · ln k = updates, at least e: the inverse sigmoid is 1/2 after so many updates."""
    low, high = 2.72, max(10.0, updates)
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if middle * math.log(middle) < updates else (low, middle)
    return round(low, 1)


# Training and evaluation as jobs


@dataclass(frozen=True)
class Job:
    """A process. It starts when the jobs that it needs are done. `is_done` reads the disk."""

    name: str
    needs: tuple[str, ...]
    make_command: Callable[[], list[str]]
    is_done: Callable[[], bool]


def make_jobs(study: Study) -> list[Job]:
    """Return the trainings, then the calibrations of judges and the evaluations."""
    jobs = [_make_training(study, model) for model in study.plan.models]
    for judge, texts in study.plan.judged_texts.items():
        jobs.append(_make_evaluation(study, f"judge-{judge.name}", texts, (judge,)))
    for model in study.plan.models:
        texts = TASKS[model.task].texts
        judges = [study.plan.find_judge(model, text) for text in texts]
        jobs.append(_make_evaluation(study, model.name, texts, (model, _oracle_of(study.plan, model), *judges)))
    return jobs


def _make_training(study: Study, model: Model) -> Job:
    needs = () if model.treatment == "base" else (f"train {model.base.name}",)
    return Job(f"train {model.name}", needs, lambda: _training_command(study, model), lambda: is_trained(study, model))


def _make_evaluation(study: Study, name: str, texts: Sequence[str], models: Sequence[Model]) -> Job:
    command = [sys.executable, __file__, "evaluate", "--out", str(study.out), "--data", str(study.data), "--name", name]
    files = [study.results_file(name, text) for text in texts]
    needs = tuple(dict.fromkeys(f"train {each.name}" for each in models))
    return Job(
        f"evaluate {name}",
        needs,
        lambda: [*command, "--device", study.device],
        lambda: all(file.exists() for file in files),
    )


def _training_command(study: Study, model: Model) -> list[str]:
    from attendo.runs.run_folder import is_run_begun

    folder = study.run_folder(model)
    file = folder.with_name(f"{model.name}.toml")
    file.write_text(format_run_file(study.make_settings(model)), "utf-8")
    if model.treatment == "mrt_shuffled":
        return [sys.executable, __file__, "train-shuffled", str(file), str(folder), "--device", study.device]
    if is_run_begun(folder):
        return make_command("train", "--resume", str(folder), "--device", study.device)
    data = ["--data", str(study.data / TASKS[model.task].folder)] if model.treatment == "base" else []
    return make_command("train", str(file), *data, "--out", str(folder), "--device", study.device)


def is_trained(study: Study, model: Model) -> bool:
    """Return whether the model folder has the weights of a complete run."""
    try:
        scores = json.loads((study.run_folder(model) / "model" / "scores.json").read_bytes())
    except (OSError, ValueError):
        return False
    return int(scores.get("step", 0)) >= study.count_steps(model)


def format_run_file(values: Mapping[str, Any]) -> str:
    """Return the settings as TOML."""
    lines = [f"{name} = {toml_literal(value)}" for name, value in values.items() if not isinstance(value, Mapping)]
    for table, settings in values.items():
        if isinstance(settings, Mapping):
            lines += ["", f"[{table}]", *(f"{name} = {toml_literal(value)}" for name, value in settings.items())]
    return "\n".join(lines) + "\n"


@dataclass
class RunningJob:
    job: Job
    process: "subprocess.Popen[bytes]"
    began: float


def run_jobs(jobs: Sequence[Job], at_once: int, logs: Path, is_over: Callable[[], bool]) -> list[str]:
    """Run all jobs, some at once. Return the names of failed jobs. When `is_over`, jobs get SIGTERM and end."""
    logs.mkdir(parents=True, exist_ok=True)
    done = {job.name for job in jobs if job.is_done()}
    waiting, running, failed = [job for job in jobs if job.name not in done], list[RunningJob](), list[str]()
    try:
        while (waiting or running) and not is_over():
            ready = next((job for job in waiting if done.issuperset(job.needs)), None)
            if ready is not None and len(running) < at_once:
                waiting.remove(ready)
                running.append(_start(ready, at_once, logs))
                continue
            if not running:
                break  # what waits needs a failed job
            time.sleep(0.2)
            for each in [each for each in running if each.process.poll() is not None]:
                running.remove(each)
                job, code = each.job, each.process.returncode
                print(f"{job.name}: exit code {code} after {time.monotonic() - each.began:.0f} s", flush=True)
                (failed.append if code or not job.is_done() else done.add)(job.name)
    finally:
        for each in running:
            with suppress(ProcessLookupError):
                each.process.terminate()
        for each in running:  # they save. A killed process can crash others on the same GPU (MPS)
            each.process.wait()
            print(f"{each.job.name}: stopped after {time.monotonic() - each.began:.0f} s", flush=True)
    left = len(waiting) + len(running)
    print(f"{len(done)} jobs done, {len(failed)} failed, {left} left", flush=True)
    return failed


def _start(job: Job, at_once: int, logs: Path) -> RunningJob:
    threads = {"OMP_NUM_THREADS": str(max(1, (os.cpu_count() or 1) // at_once))}
    print(f"{job.name}: begun", flush=True)
    with (logs / f"{job.name.replace(' ', '-')}.log").open("ab") as log:
        process = subprocess.Popen(
            job.make_command(),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**threads, **os.environ},
            process_group=0,  # Ctrl-C reaches only this process, which stops the others
        )
    return RunningJob(job, process, time.monotonic())


# The control of minimum risk training


def make_shuffled_risk(config: "TrainConfig", tokenizer: "Tokenizer") -> "RiskFunction | None":
    """Return a risk function whose values are shuffled among the candidates, the reference included.

    The permutation is drawn from torch's random numbers, whose state is in the checkpoint. It is another one if the
    same candidates come again, so the weights cannot learn it.
    """
    import torch

    from attendo.train.minimum_risk import make_text_risk

    compute = make_text_risk(config, tokenizer)
    if compute is None:
        return None
    assert config.mrt_reference, "the reference must be a candidate, because its risk is shuffled too"

    def shuffle(candidates: Sequence[tuple[int, ...]], reference: tuple[int, ...]) -> list[float]:
        risks = compute(candidates, reference)
        return [risks[number] for number in torch.randperm(len(risks)).tolist()]

    return shuffle


def train_shuffled(file: Path, folder: Path, device: str) -> None:
    """Train as `attendo train` does, with shuffled risks. Their `reward` in metrics.jsonl has no meaning."""
    import typer

    from attendo.cli.progress import report_end, train_with_progress
    from attendo.cli.signals import catch_signals
    from attendo.cli.train import make_config
    from attendo.runs.run import Run
    from attendo.runs.run_folder import is_run_begun
    from attendo.text_model import pick_device

    catch_signals()
    own = pick_device(device)
    run = Run.resume(folder, own) if is_run_begun(folder) else Run.begin(make_config(file, {}, ()), folder, own)
    run.make_risk = make_shuffled_risk
    try:
        report_end(train_with_progress(run))
    except typer.Exit as end:
        sys.exit(end.exit_code)


# Evaluation


def read_text(study: Study, name: str, valid: bool = False) -> tuple[list[str], list[str]]:
    """Return the first sources and references of a text. Blank lines are left out."""
    from attendo.data.corpus_files import read_parallel_lines

    text = TEXTS[name]
    paths = (study.data / text.folder / f"{text.valid if valid else text.test}.{side}.gz" for side in ("en", "de"))
    pairs = [pair for pair in read_parallel_lines(*paths) if pair[0].strip() and pair[1].strip()][: study.plan.lines]
    return [pair[0] for pair in pairs], [pair[1] for pair in pairs]


def evaluate(study: Study, name: str) -> None:
    """Write the results of a model or a judge on all its texts. Results that exist are kept."""
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # releases the GPU
    (study.out / "results").mkdir(exist_ok=True)
    if name.startswith("judge-"):
        judges = {f"judge-{judge.name}": (judge, texts) for judge, texts in study.plan.judged_texts.items()}
        model, texts = judges[name]
        measure: Callable[[Study, Model, str], dict[str, Any]] = calibrate
    else:
        model = next(each for each in study.plan.models if each.name == name)
        texts, measure = list(TASKS[model.task].texts), evaluate_model
    for text in texts:
        if not study.results_file(name, text).exists():
            content = json.dumps(measure(study, model, text), ensure_ascii=False)
            replace_file(study.results_file(name, text), gzip.compress(content.encode()))


def calibrate(study: Study, judge: Model, text: str) -> dict[str, Any]:
    """Return the contrasts of references of the validation text, and of right and faulty outputs of the test text."""
    from exposure_faults import FAULTS, compute_contrasts, find_paraphrases, inject_fault

    model = _load(study, judge)
    sources, references = read_text(study, text)
    valid = compute_contrasts(model, *read_text(study, text, valid=True))
    other = find_paraphrases(sources, references)
    outputs = {name: inject_fault(name, sources, references) for name in FAULTS}
    outputs["paraphrases"] = [other.get(line, reference) for line, reference in enumerate(references)]
    contrasts = {name: _round(compute_contrasts(model, sources, texts)) for name, texts in outputs.items()}
    return {
        "valid": _round(valid),
        "references": _round(compute_contrasts(model, sources, references)),
        "faults": contrasts,
    }


def evaluate_model(study: Study, name: Model, text: str) -> dict[str, Any]:
    """Return outputs, contrasts and measures of exposure on one text."""
    from exposure_faults import compute_contrasts

    from attendo.explore.exposure import ExposureSettings, ParallelText, measure_exposure

    model, judge = _load(study, name), _load(study, study.plan.find_judge(name, text))
    oracle = _load(study, _oracle_of(study.plan, name)) if len(study.plan.seeds) > 1 else None
    sources, references = read_text(study, text)
    outputs = {
        search: [each.text for each in model.generate(sources, beam=beam, split=False)]
        for search, beam in BEAMS.items()
    }
    limit = study.plan.exposure_lines
    pairs = ParallelText(sources[:limit], references[:limit])
    report = measure_exposure(model, pairs, oracle, ExposureSettings(seed=0))
    scored = model.score_tokens(sources, references)
    return {
        "facts": read_facts(study, name),
        "outputs": outputs,
        "contrasts": {search: _round(compute_contrasts(judge, sources, texts)) for search, texts in outputs.items()},
        "log_probs": [[round(each.log_probability, 4), len(each.log_probabilities)] for each in scored],
        "recovery": {each: _round_rows(report.recovery[each].differences.tolist()) for each in TESTED_CORRUPTIONS},
        "exposure": summarise_exposure(report.as_json()),
    }


def summarise_exposure(report: Mapping[str, Any]) -> dict[str, Any]:
    """Return the numbers of a report that the tables show."""
    gap, excess = report["distractor"]["gap"], report["excess_error"]
    found = {
        "lines": report["sentences"],
        "cut": report["cut"],
        "accuracy_gold": 100 * report["accuracy"]["gold_mean"],
        "accuracy_own": 100 * report["accuracy"]["own_mean"],
        "nll": report["nll"],
        "oracle_nll": report["oracle_nll"],
        "excess_sampled": excess and excess["sampled"]["percent"][-1],
        "excess_greedy": excess and excess["greedy"]["percent"][-1],
        **{f"gap_{position}": gap[position - 1] for position in GAP_POSITIONS if position <= len(gap)},
    }
    for name, recovery in report["recovery"].items():
        found[f"{name}_deltas"] = [None if each is None else round(each, 4) for each in recovery["deltas"]]
        found[f"{name}_half_life"] = recovery["half_life"] or f"> {recovery['max_distance']}"
    return {name: round(value, 4) if isinstance(value, float) else value for name, value in found.items()}


def read_facts(study: Study, model: Model) -> dict[str, Any]:
    """Return updates, seconds and scores of a training, and for mrt the reward and the entropy at both ends."""
    folder = study.run_folder(model)
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text("utf-8").splitlines()]
    steps = [line for line in lines if line["kind"] == "step"]
    valid = [line for line in lines if line["kind"] == "validation"]
    facts = {"steps": steps[-1]["step"], "seconds": round(steps[-1]["seconds"], 1)}
    scores = {"loss": valid[-1]["loss"], **valid[-1]["scores"]} if valid else {}
    tenth = max(1, len(steps) // 10)
    for name in ("reward", "entropy") if model.treatment == "mrt" else ():
        for end, part in (("first", steps[:tenth]), ("last", steps[-tenth:])):
            facts[f"{name}_{end}"] = round(sum(each[name] for each in part) / tenth, 4)
    return facts | {f"valid_{name}": round(value, 4) for name, value in scores.items()}


def _oracle_of(plan: Plan, model: Model) -> Model:
    return Model(model.task, plan.other_seed(model.seed), "base")


@cache
def _load(study: Study, model: Model) -> "TextModel":
    from attendo.text_model import load

    return load(study.run_folder(model) / "model", study.device)


def _round(values: Any) -> list[float | None]:
    return [None if each == float("inf") else round(float(each), 4) for each in values]


def _round_rows(rows: Sequence[Sequence[float]]) -> list[list[float | None]]:
    return [[None if each != each else round(each, 4) for each in row] for row in rows]  # NaN is null


# Collection: scores and tests from the results


def collect(study: Study, jobs: int) -> dict[str, Any]:
    """Return the content of the JSON file. Texts are computed in parallel. Missing results are left out."""
    units = [(study, task, text) for task in study.plan.tasks for text in TASKS[task].texts]
    if jobs == 1:
        found = [_collect_text(*unit) for unit in units]
    else:
        with ProcessPoolExecutor(jobs, get_context("spawn")) as pool:
            found = list(pool.map(_collect_text, *zip(*units, strict=True)))
    models: dict[str, Any] = {}
    for (_, _, text), part in zip(units, found, strict=True):
        for name, (facts, values) in part["models"].items():
            models.setdefault(name, {**facts, "texts": {}})["texts"][text] = values
    return {
        "plan": asdict(study.plan),
        "tasks": {
            name: {"in_domain": TASKS[name].in_domain, "shifted": TASKS[name].shifted} for name in study.plan.tasks
        },
        "models": models,
        "comparisons": [each for part in found for each in part["comparisons"]],
        "detectors": [each for _, _, text in _first_of_texts(units) for each in judge_detectors(study, text)],
    }


def _first_of_texts(units: Sequence[tuple[Study, str, str]]) -> list[tuple[Study, str, str]]:
    return list({unit[2]: unit for unit in units}.values())


def _collect_text(study: Study, task: str, text: str) -> dict[str, Any]:
    """Measure and compare all models of a task on one text."""
    sources, references = read_text(study, text)
    measures: dict[Model, dict[str, dict[str, Measure]]] = {}
    models: dict[str, Any] = {}
    for model in study.plan.models:
        raw = _read_results(study, model.name, text) if model.task == task else None
        judged = _read_results(study, f"judge-{study.plan.find_judge(model, text).name}", text)
        if raw is None or judged is None:
            continue
        measures[model] = _measure(raw, judged, sources, references)
        values = {part: _values(each) for part, each in measures[model].items()}
        identity = {"task": model.task, "seed": model.seed, "treatment": model.treatment}
        models[model.name] = {**identity, **raw["facts"]}, {**values, "exposure": raw["exposure"]}
    return {"models": models, "comparisons": list(_compare_all(study.plan, task, text, measures))}


def _measure(
    raw: Mapping[str, Any], judged: Mapping[str, Any], sources: Sequence[str], references: Sequence[str]
) -> "dict[str, dict[str, Measure]]":
    """Return the measures of one model on one text: of both searches, and of given prefixes."""
    from exposure_faults import contrast_limit
    from exposure_statistics import measure_outputs, measure_recovery

    limit = contrast_limit(_to_array(judged["valid"]))
    found = {
        search: measure_outputs(sources, references, raw["outputs"][search], _to_array(raw["contrasts"][search]), limit)
        for search in BEAMS
    }
    return {
        **found,
        "prefix": measure_recovery(raw["log_probs"], {name: raw["recovery"][name] for name in TESTED_CORRUPTIONS}),
    }


def _values(measures: "Mapping[str, Measure]") -> dict[str, float]:
    from exposure_statistics import shorten

    return {name: shorten(each.value) for name, each in measures.items()}


def _compare_all(
    plan: Plan, task: str, text: str, measures: "Mapping[Model, Mapping[str, Mapping[str, Measure]]]"
) -> Iterator[dict[str, Any]]:
    """Yield the comparison of each treatment with its control, and of mrt with base, for every measure."""
    from exposure_statistics import compare

    for treatment, control in [*CONTROLS.items(), ("mrt", "base")]:
        pairs = [(Model(task, seed, treatment), Model(task, seed, control)) for seed in plan.seeds]
        pairs = [(one, other) for one, other in pairs if one in measures and other in measures]
        if not pairs:
            continue
        parts: dict[str, dict[str, Any]] = {}
        for part, names in measures[pairs[0][0]].items():
            for name in names:
                sides = ([measures[pair[side]][part][name] for pair in pairs] for side in (0, 1))
                parts.setdefault(part, {})[name] = compare(*sides)
        yield {"task": task, "text": text, "treatment": treatment, "control": control, "parts": parts}


def judge_detectors(study: Study, text: str) -> Iterator[dict[str, Any]]:
    """Yield what the rules find in references and in injected faults, in percent of the lines, for each judge."""
    from exposure_faults import FAULTS, contrast_limit, find_paraphrases, inject_fault

    sources, references = read_text(study, text)
    right = find_paraphrases(sources, references)
    outputs = {"references": references, **{name: inject_fault(name, sources, references) for name in FAULTS}}
    outputs["paraphrases"] = [right.get(line, reference) for line, reference in enumerate(references)]
    for judge in study.plan.judged_texts:
        judged = _read_results(study, f"judge-{judge.name}", text)
        if judged is None:
            continue
        limit = contrast_limit(_to_array(judged["valid"]))
        contrasts = {"references": judged["references"], **judged["faults"]}
        for name, texts in outputs.items():
            lines = sorted(right) if name == "paraphrases" else range(len(texts))
            shares = _apply_rules(sources, references, texts, _to_array(contrasts[name]), limit, lines)
            facts = {"text": text, "judge": judge.name, "limit": round(limit, 4), "outputs": name, "lines": len(lines)}
            yield {**facts, **shares}


def _apply_rules(
    sources: Sequence[str], references: Sequence[str], outputs: Sequence[str], contrasts: Any, limit: float,
    lines: Sequence[int],
) -> dict[str, float]:  # fmt: skip
    """Return the percentage of lines that each rule finds."""
    from exposure_faults import SIMILAR_SHARE, find_loops, share_of_similar

    similar = share_of_similar(outputs, references) >= SIMILAR_SHARE
    loops, low = find_loops(sources, outputs), contrasts <= limit
    flags = {"loop": loops, "low_contrast": low, "not_similar": similar, "detached": low & similar}
    flags["hallucinated"] = loops | flags["detached"]
    chosen = list(lines)
    return {name: round(100 * float(each[chosen].mean()), 2) if chosen else 0.0 for name, each in flags.items()}


def _to_array(values: Sequence[float | None]) -> Any:
    import numpy as np

    return np.array([np.inf if each is None else each for each in values], np.float64)


def _read_results(study: Study, name: str, text: str) -> dict[str, Any] | None:
    file = study.results_file(name, text)
    found: dict[str, Any] | None = json.loads(gzip.decompress(file.read_bytes())) if file.exists() else None
    return found


# Command line


def run(study: Study, at_once: int, minutes: float | None, stages: str) -> None:
    """Train and evaluate. Exit with code 1 if a job failed."""
    began, stopped = time.monotonic(), list[int]()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, frame: stopped.append(number))

    def is_over() -> bool:
        return bool(stopped) or (minutes is not None and time.monotonic() - began > 60 * minutes)

    (study.out / "models").mkdir(parents=True, exist_ok=True)
    write_plan(study)
    jobs = [job for job in make_jobs(study) if stages in ("all", job.name.partition(" ")[0]) or job.is_done()]
    failed = run_jobs(jobs, at_once, study.out / "logs", is_over)
    if failed:
        sys.exit(f"failed, see {study.out / 'logs'}: {', '.join(failed)}")
    if is_over():
        print("stopped: the same command goes on from here", flush=True)


def write_plan(study: Study) -> None:
    """Store the plan. Exit if the folder has another one."""
    file = study.out / "plan.json"
    content = json.dumps(asdict(study.plan), indent=2) + "\n"
    if file.exists() and (before := read_plan(study.out)) != study.plan:
        old, new = asdict(before), asdict(study.plan)
        other = [f"{name} = {old[name]}, now {new[name]}" for name in new if old[name] != new[name]]
        sys.exit(f"{study.out} has another study: {'; '.join(other)}")
    replace_file(file, content.encode())


def read_plan(out: Path) -> Plan:
    values = json.loads((out / "plan.json").read_bytes())
    return Plan(**{name: tuple(value) if isinstance(value, list) else value for name, value in values.items()})


def main() -> None:
    """Parse the command line and run one of the commands."""
    arguments = _parse_arguments()
    if arguments.command == "report":
        from exposure_report import write_report

        write_report(arguments.json, arguments.figure)
    elif arguments.command == "train-shuffled":
        train_shuffled(arguments.file, arguments.folder, arguments.device)
    elif arguments.command == "run":
        study = Study(_make_plan(arguments), arguments.data.absolute(), arguments.out.absolute(), arguments.device)
        run(study, arguments.at_once, arguments.minutes, arguments.stages)
    else:
        study = Study(read_plan(arguments.out), arguments.data.absolute(), arguments.out.absolute(), "")
        if arguments.command == "evaluate":
            evaluate(Study(study.plan, study.data, study.out, arguments.device), arguments.name)
        else:
            content = json.dumps(collect(study, arguments.jobs), ensure_ascii=False, separators=(",", ":"))
            replace_file(arguments.json, f"{content}\n".encode())


def _make_plan(arguments: argparse.Namespace) -> Plan:
    names = {"all", "base", "continued", *TREATMENTS}
    for change in arguments.change:
        if change.partition(":")[0] not in names or "=" not in change:
            sys.exit(f"--set wants NAME:SETTING=VALUE with a NAME of {', '.join(sorted(names))}: {change}")
    for given, known in ((arguments.tasks, TASKS), (arguments.treatments, TREATMENTS)):
        if unknown := [name for name in given.split(",") if name not in known]:
            sys.exit(f"unknown: {', '.join(unknown)}; known: {', '.join(known)}")
    return Plan(
        tasks=tuple(arguments.tasks.split(",")),
        seeds=tuple(map(int, arguments.seeds.split(","))),
        treatments=tuple(arguments.treatments.split(",")),
        steps=arguments.steps,
        mrt_steps=arguments.mrt_steps,
        lines=arguments.lines,
        exposure_lines=arguments.exposure_lines,
        changes=tuple(arguments.change),
    )


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    several = {name: commands.add_parser(name) for name in ("run", "evaluate", "collect", "report", "train-shuffled")}
    for name in ("run", "evaluate", "collect"):
        several[name].add_argument("--data", type=Path, default=Path("data"), help="folder of the data sets")
        several[name].add_argument("--out", type=Path, default=Path("runs/exposure"))
    for name in ("run", "evaluate", "train-shuffled"):
        several[name].add_argument("--device", default="auto")
    several["evaluate"].add_argument("--name", required=True)
    several["collect"].add_argument("--json", type=Path, required=True)
    several["collect"].add_argument("--jobs", type=int, default=os.cpu_count())
    several["report"].add_argument("json", type=Path)
    several["report"].add_argument("--figure", type=Path, help="picture to draw: .svg, .png or .pdf")
    several["train-shuffled"].add_argument("file", type=Path)
    several["train-shuffled"].add_argument("folder", type=Path)
    _add_run_arguments(several["run"])
    return parser.parse_args()


def _add_run_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--tasks", default=",".join(TASKS))
    parser.add_argument("--seeds", default="1,2")
    parser.add_argument("--treatments", default=",".join(TREATMENTS))
    parser.add_argument("--steps", type=int, default=2000, help="updates of a continuation")
    parser.add_argument("--mrt-steps", type=int, default=1000, help="updates of minimum risk training")
    parser.add_argument("--lines", type=int, default=2000, help="of each text")
    parser.add_argument("--exposure-lines", type=int, default=1000, help="of each text, for the measures of exposure")
    parser.add_argument(
        "--set", dest="change", action="append", default=[], metavar="NAME:SETTING=VALUE",
        help="change a setting of base, a treatment, continued (all but base) or all: mrt:train.mrt_alpha=0.5",
    )  # fmt: skip
    parser.add_argument("--at-once", type=int, default=10, help="maximum number of processes")
    parser.add_argument("--minutes", type=float, help="time limit; then trainings save and end")
    parser.add_argument("--stages", choices=("all", "train", "evaluate"), default="all")


if __name__ == "__main__":
    main()
