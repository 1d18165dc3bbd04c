"""Every solution of the exercises passes its check. Every skeleton and wrong answer fails with a helpful message."""

import importlib
import subprocess
import sys
from types import ModuleType

import build
import check
import frame
import pytest
import torch
from exercises.checks import CHECKS

PAGES = sorted(CHECKS)


def english(text: str, _: str) -> str:
    return text


def chinese(_: str, text: str) -> str:
    return text


def test_every_page_has_its_exercises() -> None:
    for name in frame.names():
        assert [each["name"] for each in frame.frame_of(name)["exercise"]] == [
            each.__name__ for each in CHECKS[int(name[:2])]
        ]


@pytest.mark.parametrize("page", PAGES)
def test_solutions_pass(page: int) -> None:
    answers = importlib.import_module(f"exercises.solutions.page_{page:02}")
    for each in CHECKS[page]:
        assert check.find_problem(each, answers, "", english) == ""


@pytest.mark.parametrize("page", PAGES)
def test_skeletons_fail_and_name_their_file(page: int) -> None:
    answers = importlib.import_module(f"exercises.page_{page:02}")
    place = f"exercises/page_{page:02}.py"
    for each in CHECKS[page]:
        assert place in check.find_problem(each, answers, place, english)
        assert place in check.find_problem(each, answers, place, chinese)


@pytest.mark.parametrize("page", PAGES)
def test_answers_that_return_something_else_fail_with_a_message(page: int) -> None:
    for each in CHECKS[page]:
        for result in (None, 0, torch.zeros(2, 2), (torch.zeros(1), torch.zeros(1))):
            answers = ModuleType("answers")
            setattr(answers, each.__name__, lambda *_, result=result: result)
            for say in (english, chinese):
                assert len(check.find_problem(each, answers, "", say)) > 10


def test_unscaled_attention_is_told_about_the_scale() -> None:
    answers = ModuleType("answers")

    def attention(queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        weights = (queries @ keys.mT).softmax(-1)
        return weights, weights @ values

    answers.attention = attention  # type: ignore[attr-defined]
    assert "√d_k" in check.find_problem(CHECKS[3][0], answers, "", english)


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["3", "--lang", "en"], 1, "page 3"),
        (["3", "4", "--lang", "zh"], 1, "还没有写"),
        (["--solutions"], 0, "page 15"),
        (["99"], 2, "pages are 1 to 15"),
    ],
)
def test_command_reports_and_exits(arguments: list[str], code: int, words: str) -> None:
    done = subprocess.run(
        [sys.executable, "check.py", *arguments],
        cwd=build.HERE / "code",
        env={"LANG": "C", "PYTHONUTF8": "1"},
        capture_output=True,
        check=False,
        encoding="utf-8",
    )
    assert done.returncode == code
    assert words in done.stdout + done.stderr
