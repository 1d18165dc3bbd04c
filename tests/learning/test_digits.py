"""A tiny model learns to copy, reverse and sort strings of digits, through the command line."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from tiny import Command

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
steps = 200
batch_tokens = 400
schedule = "linear"
peak_lr = 4e-3
warmup = 50
validate_every = 200
label_smoothing = 0.0
"""


@pytest.mark.parametrize(
    "task", [each if each == "reverse" else pytest.param(each, marks=pytest.mark.slow) for each in TASKS]
)
def test_tiny_model_learns_the_task_from_files(
    attendo: Command, task: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    tokenizer_section = "allow_copies = true\n\n[tokenizer]" if task == "copy" else "[tokenizer]"
    assert _learn(attendo, tmp_path, task, RUN.replace("[tokenizer]", tokenizer_section)) >= 190


def _learn(attendo: Command, tmp_path: Path, task: str, run: str) -> int:
    """Train on the task and return how many of 200 new strings are answered correctly."""
    strings = distinct_strings(count=5_200, seed=task)
    train, test_set = strings[:-200], strings[-200:]
    solve = TASKS[task]
    write_lines(tmp_path / "train.source", train)
    write_lines(tmp_path / "train.target", [solve(digits) for digits in train])
    (tmp_path / "run.toml").write_text(run)

    trained = attendo("train", "run.toml", "--out", "run")
    assert trained.code == 0, trained.errors
    answers = attendo(
        "generate", "run/model", given="".join(f"{digits}\n" for digits in test_set).encode()
    ).output.split()

    assert len(answers) == len(test_set)
    return sum(found == solve(digits) for found, digits in zip(answers, test_set, strict=True))


@pytest.mark.slow
def test_a_network_like_t5_learns_from_scratch(
    attendo: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    like_t5 = """\
positions = "relative"
scale_embedding = false
linear_bias = false
attention_scale = 1.0
output_scale = 0.144
norm_kind = "rms"
activation = "geglu_tanh"
[train]"""
    assert _learn(attendo, tmp_path, "reverse", RUN.replace("[train]", like_t5).replace("= 200", "= 500")) >= 190


def distinct_strings(count: int, seed: str) -> list[str]:
    """Distinct strings of 2 to 5 digits, so the test strings do not occur in the training data."""
    dice = random.Random(seed)
    strings: dict[str, None] = {}
    while len(strings) < count:
        strings["".join(dice.choice("0123456789") for _ in range(dice.randint(2, 5)))] = None
    shuffled = list(strings)
    dice.shuffle(shuffled)
    return shuffled


def write_lines(path: Path, lines: list[str]) -> None:
    path.write_text("".join(f"{line}\n" for line in lines))
