"""From two text files to right answers, through the command line: copy, reverse and sort strings of digits."""

import json
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

# One process for all commands: to start one takes as long as to train.
COMMANDS = """
import json, sys
from attendo.cli.main import main
for words in json.loads(sys.argv[1]):
    sys.argv = ["attendo", *words]
    try:
        main()
    except SystemExit as end:
        if end.code:
            raise
"""

TASKS: dict[str, Callable[[str], str]] = {
    "copy": lambda digits: digits,
    "reverse": lambda digits: digits[::-1],
    "sort": lambda digits: "".join(sorted(digits)),
}

RUN = """
seed = 1
preset = "tiny"

[data]
source = "train.source"
target = "train.target"

[tokenizer]
kind = "characters"
joint = true

[model]
d_model = 48
d_ff = 128
dropout = 0.0
tie = "all"

[train]
steps = 300
batch_tokens = 500
schedule = "linear"
peak_lr = 4e-3
warmup = 50
validate_every = 300
label_smoothing = 0.0
"""


@pytest.mark.parametrize(
    "task", [each if each == "reverse" else pytest.param(each, marks=pytest.mark.slow) for each in TASKS]
)
def test_a_tiny_model_learns_it_from_files(task: str, tmp_path: Path) -> None:
    strings = unlike_strings(count=10_200, seed=task)
    train, unseen = strings[:-200], strings[-200:]
    answer = TASKS[task]
    write_lines(tmp_path / "train.source", train)
    write_lines(tmp_path / "train.target", [answer(digits) for digits in train])
    allowed = "allow_copies = true\n\n[tokenizer]" if task == "copy" else "[tokenizer]"
    (tmp_path / "run.toml").write_text(RUN.replace("[tokenizer]", allowed))

    commands = [["train", "run.toml", "--out", "run"], ["generate", "run/model"]]
    answers = attendo(commands, "".join(f"{digits}\n" for digits in unseen), tmp_path).splitlines()

    assert len(answers) == len(unseen)
    right = sum(given == answer(digits) for given, digits in zip(answers, unseen, strict=True))
    assert right >= 0.95 * len(unseen), f"{right} of {len(unseen)} are right"


def unlike_strings(count: int, seed: str) -> list[str]:
    """Strings of 3 to 7 digits, no two alike, so that what is kept back was never seen."""
    dice = random.Random(seed)
    strings: dict[str, None] = {}
    while len(strings) < count:
        strings["".join(dice.choice("0123456789") for _ in range(dice.randint(3, 7)))] = None
    shuffled = list(strings)
    dice.shuffle(shuffled)
    return shuffled


def write_lines(path: Path, lines: list[str]) -> None:
    path.write_text("".join(f"{line}\n" for line in lines))


def attendo(commands: list[list[str]], text: str, folder: Path) -> str:
    python = [sys.executable, "-c", COMMANDS, json.dumps(commands)]
    done = subprocess.run(python, input=text, capture_output=True, text=True, cwd=folder, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout
