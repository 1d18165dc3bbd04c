"""What monolingual text is worth: Tatoeba, English to German, with a quarter of the pairs as parallel text.

    python -m benchmarks.monolingual_study --data data/tatoeba_en_de --out runs/monolingual --at-once 8

The pairs are split into quarters by their English side. The first quarter is the parallel text. The German sides of the
second and third are the monolingual German text, the English sides of the fourth the monolingual English text, without
lines that the first quarter has. All models have the settings of the recipe `tatoeba_en_de`, and the same updates:

    quarter   the first quarter
    beam, sample, noised   and back-translations of the German text: by a beam, by sampling, by a noised beam
    tagged    and those of the beam, with a tag
    round-2   and those of a second round: `tagged` back-translates the English text for a new reverse model
    distill   and a distillation of the first quarter, by teachers that have not seen its parts
    full      all pairs: what the parallel text itself would give

A second run of the same command continues. `--minutes` stops it early. OUT/scores.md has the table.
"""

import argparse
import hashlib
import json
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from statistics import mean
from typing import Any

from attendo.atomic_files import new_folder, replace_file
from attendo.data.corpus_files import read_lines, read_parallel_lines
from attendo.runs.commands import make_command
from attendo.runs.config import apply_changes, format_toml, read_run_file
from attendo.runs.run_folder import is_run_begun
from benchmarks.exposure_study.jobs import Job, run_jobs

RECIPE = Path(__file__).parents[1] / "recipes" / "tatoeba_en_de.toml"
TAG, BLANK = "<BT>", "<BLANK>"
METHODS = {"beam": "beam", "sample": "sample", "noised": "noised-beam"}
# Models by name: the synthetic pairs that they learn from. Reverse models translate German to English.
FORWARD = {
    "quarter": None,
    "beam": "beam",
    "tagged": "beam",
    "sample": "sample",
    "noised": "noised",
    "round-2": "second",
    "distill": "distilled",
    "full": None,
}
REVERSE = {"reverse": None, "reverse-2": "english"}
# Synthetic pairs by name: the model that translates, and the text.
BACK_TRANSLATED = {
    **dict.fromkeys(METHODS, ("reverse", "mono.de")),
    "english": ("tagged", "mono.en"),
    "second": ("reverse-2", "mono.de"),
}
TAGGED = ("tagged", "reverse-2", "round-2")


@dataclass(frozen=True)
class Study:
    """Everything that determines the results, and the folders."""

    data: Path
    out: Path
    device: str
    seeds: tuple[int, ...]
    steps: int
    lines: int | None  # training pairs to use; None: all
    changes: tuple[str, ...]

    @property
    def text(self) -> Path:
        return self.out / "text"

    def run_folder(self, name: str, seed: int) -> Path:
        return self.out / "models" / f"{name}-{seed}"

    def synthetic_folder(self, name: str, seed: int) -> Path:
        return self.out / "synthetic" / f"{name}-{seed}"

    def result_file(self, name: str, seed: int) -> Path:
        return self.out / "results" / f"{name}-{seed}.json"

    def check_plan(self) -> None:
        """Write the settings, or check that they are those of an earlier call."""
        path = self.out / "plan.json"
        plan = {name: value for name, value in asdict(self).items() if name not in ("data", "out", "device", "seeds")}
        content = (json.dumps(plan, indent=1) + "\n").encode()
        if path.exists() and path.read_bytes() != content:
            sys.exit(f"{path} has other settings: choose another folder")
        self.out.mkdir(parents=True, exist_ok=True)
        replace_file(path, content)


def write_texts(study: Study) -> None:
    """Write the parallel and the monolingual text."""
    if study.text.exists():
        return
    found = read_parallel_lines(study.data / "train.en.gz", study.data / "train.de.gz")
    pairs = [(english, german) for english, german in found][: study.lines]
    quarters: list[list[tuple[str, str]]] = [[], [], [], []]
    for pair in pairs:
        quarters[hashlib.blake2b(pair[0].encode(), digest_size=8).digest()[0] % 4].append(pair)
    known = [{pair[side] for pair in quarters[0]} for side in (0, 1)]
    texts = {
        "quarter.en": [english for english, _ in quarters[0]],
        "quarter.de": [german for _, german in quarters[0]],
        "mono.de": list(dict.fromkeys(german for _, german in quarters[1] + quarters[2] if german not in known[1])),
        "mono.en": list(dict.fromkeys(english for english, _ in quarters[3] if english not in known[0])),
        "full.en": [english for english, _ in pairs],
        "full.de": [german for _, german in pairs],
    }
    with new_folder(study.text) as new:
        for name, lines in texts.items():
            (new / name).write_text("".join(f"{line}\n" for line in lines), "utf-8")
        for name in ("valid.en", "valid.de", "test.en", "test.de"):
            lines = list(read_lines(study.data / f"{name}.gz"))[: study.lines and study.lines // 50]
            (new / name).write_text("".join(f"{line}\n" for line in lines), "utf-8")


def make_settings(study: Study, name: str, seed: int) -> dict[str, Any]:
    """Return the run file of a model."""
    values = read_run_file(RECIPE)
    values.pop("reproduce", None)
    sides = ("de", "en") if name in REVERSE else ("en", "de")
    parallel = "full" if name == "full" else "quarter"
    corpora = [_make_corpus(*(study.text / f"{parallel}.{side}" for side in sides))]
    if synthetic := {**FORWARD, **REVERSE}[name]:
        folder = study.synthetic_folder(synthetic, seed)
        corpora.append(_make_corpus(folder / "source.txt", folder / "target.txt"))
        if name in TAGGED:
            corpora[1]["tag"] = TAG
    valid = dict(
        zip(("valid_source", "valid_target"), (str(study.text / f"valid.{side}") for side in sides), strict=True)
    )
    values["data"] = {"corpora": corpora, "valid_corpora": (), **valid}
    if name == "noised":
        values["tokenizer"]["symbols"] = [BLANK]
    train = values["train"]
    train |= {"steps": study.steps, "warmup": min(train["warmup"], study.steps // 10 or 1), "patience": 0}
    train |= dict.fromkeys(("validate_every", "save_every"), max(study.steps // 10, min(study.steps, 100)))
    return apply_changes({**values, "seed": seed}, list(study.changes))


def _make_corpus(source: Path, target: Path) -> dict[str, str]:
    return {"source": str(source.absolute()), "target": str(target.absolute())}


def make_jobs(study: Study) -> list[Job]:
    """Return all jobs. A job waits for those that it needs."""
    jobs = []
    for seed in study.seeds:
        jobs += [_make_training(study, name, seed) for name in (*REVERSE, *FORWARD)]
        jobs += [_make_back_translation(study, name, seed) for name in BACK_TRANSLATED]
        jobs += [_make_distillation(study, seed)]
        jobs += [_make_evaluation(study, name, seed) for name in FORWARD]
    return jobs


def _make_training(study: Study, name: str, seed: int) -> Job:
    synthetic = {**FORWARD, **REVERSE}[name]
    needs = (f"pairs {synthetic}-{seed}",) if synthetic else ()
    folder = study.run_folder(name, seed)

    def command() -> list[str]:
        if is_run_begun(folder):
            return make_command("train", "--resume", str(folder), "--device", study.device)
        folder.parent.mkdir(parents=True, exist_ok=True)
        file = folder.with_name(f"{folder.name}.toml")
        settings = make_settings(study, name, seed)
        file.write_text(format_toml(settings), "utf-8")
        return make_command("train", str(file), "--out", str(folder), "--device", study.device)

    return Job(f"train {name}-{seed}", needs, command, partial(_is_trained, folder, study.steps))


def _is_trained(folder: Path, steps: int) -> bool:
    """Return whether the model folder has the weights of a complete run."""
    try:
        scores = json.loads((folder / "model" / "scores.json").read_bytes())
    except (OSError, ValueError):
        return False
    return int(scores.get("step", 0)) >= steps


def _make_back_translation(study: Study, name: str, seed: int) -> Job:
    model, text = BACK_TRANSLATED[name]
    folder = study.synthetic_folder(name, seed)
    arguments = ["backtranslate", str(study.run_folder(model, seed) / "model"), "--text", str(study.text / text)]
    arguments += ["--method", METHODS.get(name, "beam"), "--seed", str(seed), "--out", str(folder)]
    command = make_command(*arguments, "--device", study.device)
    return Job(f"pairs {name}-{seed}", (f"train {model}-{seed}",), lambda: command, (folder / "target.txt").exists)


def _make_distillation(study: Study, seed: int) -> Job:
    folder = study.synthetic_folder("distilled", seed)
    texts = ["--source", str(study.text / "quarter.en"), "--target", str(study.text / "quarter.de")]
    arguments = ["distill", str(study.run_folder("quarter", seed)), *texts, "--out", str(folder), "--jobs", "4"]
    command = make_command(*arguments, "--device", study.device)
    return Job(f"pairs distilled-{seed}", (f"train quarter-{seed}",), lambda: command, (folder / "target.txt").exists)


def _make_evaluation(study: Study, name: str, seed: int) -> Job:
    command = [sys.executable, "-m", "benchmarks.monolingual_study", "--evaluate", f"{name}-{seed}"]
    command += ["--data", str(study.data), "--out", str(study.out), "--device", study.device]
    done = study.result_file(name, seed).exists
    return Job(f"evaluate {name}-{seed}", (f"train {name}-{seed}",), lambda: command, done)


def evaluate(study: Study, name: str) -> None:
    """Write BLEU and chrF of a model on the test text."""
    model, text = study.out / "models" / name / "model", study.text
    arguments = ["evaluate", str(model), "--source", str(text / "test.en"), "--reference", str(text / "test.de")]
    command = make_command(*arguments, "--beam", "5", "--json", "--device", study.device)
    printed = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout
    path = study.out / "results" / f"{name}.json"
    path.parent.mkdir(exist_ok=True)
    replace_file(path, printed)


def format_scores(study: Study) -> str:
    """Return the table of all models that are evaluated with all seeds."""
    rows = ["| model | BLEU | chrF | BLEU minus quarter |", "|---|---|---|---|"]
    found = {name: _read_scores(study, name) for name in FORWARD}
    base = found["quarter"].get("bleu")
    for name, scores in found.items():
        if scores:
            cells = [
                f"{mean(scores[metric]):.2f} ({', '.join(f'{each:.2f}' for each in scores[metric])})"
                for metric in ("bleu", "chrf")
            ]
            gain = "" if base is None or name == "quarter" else f"{mean(scores['bleu']) - mean(base):+.2f}"
            rows.append(f"| `{name}` | {' | '.join(cells)} | {gain} |")
    return "\n".join(rows) + "\n"


def _read_scores(study: Study, name: str) -> dict[str, list[float]]:
    files = [study.result_file(name, seed) for seed in study.seeds]
    if not all(file.exists() for file in files):
        return {}
    scores = [json.loads(file.read_bytes()) for file in files]
    return {metric: [each["scores"][metric]["value"] for each in scores] for metric in ("bleu", "chrf")}


def run(study: Study, at_once: int, minutes: float | None) -> None:
    """Run all jobs. Exit with code 1 if one failed."""
    began, stopped = time.monotonic(), list[int]()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, frame: stopped.append(number))

    def is_over() -> bool:
        return bool(stopped) or (minutes is not None and time.monotonic() - began > 60 * minutes)

    study.check_plan()
    write_texts(study)
    failed = run_jobs(make_jobs(study), at_once, study.out / "logs", is_over)
    table = format_scores(study)
    replace_file(study.out / "scores.md", table.encode())
    print(table)
    if failed:
        sys.exit(f"failed, see {study.out / 'logs'}: {', '.join(failed)}")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with train, valid and test")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--seeds", default="1,2")
    parser.add_argument("--steps", type=int, default=10_000, help="updates of every model")
    parser.add_argument("--lines", type=int, help="training pairs; valid and test have lines/50")
    parser.add_argument("--change", action="append", default=[], metavar="SETTING=VALUE", help="of all models")
    parser.add_argument("--at-once", type=int, default=8, help="jobs at once")
    parser.add_argument("--minutes", type=float, help="stop after this time")
    parser.add_argument("--evaluate", metavar="NAME-SEED", help="score one model; a job of the study")
    given = parser.parse_args(arguments)
    seeds = tuple(map(int, given.seeds.split(",")))
    study = Study(given.data, given.out, given.device, seeds, given.steps, given.lines, tuple(given.change))
    if given.evaluate:
        evaluate(study, given.evaluate)
    else:
        run(study, given.at_once, given.minutes)


if __name__ == "__main__":
    main()
