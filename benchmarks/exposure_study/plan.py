"""What is studied: the texts, the data sets with their treatments, the models, and the plan file of a folder."""

import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from attendo.atomic_files import replace_file
from attendo.data.corpus_files import read_parallel_lines

BEAMS = {"greedy": 1, "beam": 5}
TESTED_CORRUPTIONS = ("random", "wrong")


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
        return Model(task, self._next_seed(model.seed), "base")

    def find_oracle(self, model: "Model") -> "Model":
        """Return the base model of another seed and of the same data set."""
        return Model(model.task, self._next_seed(model.seed), "base")

    def _next_seed(self, seed: int) -> int:
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
    def judge_name(self) -> str:
        """The name of its results as a judge."""
        return f"judge-{self.name}"

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


def read_text(study: Study, name: str, valid: bool = False) -> tuple[list[str], list[str]]:
    """Return the first sources and references of a text. Blank lines are left out."""
    text = TEXTS[name]
    paths = (study.data / text.folder / f"{text.valid if valid else text.test}.{side}.gz" for side in ("en", "de"))
    pairs = [pair for pair in read_parallel_lines(*paths) if pair[0].strip() and pair[1].strip()][: study.plan.lines]
    return [pair[0] for pair in pairs], [pair[1] for pair in pairs]
