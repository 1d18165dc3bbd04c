"""`attendo generate`: one line out for one line in, whatever the line."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny import SIZES, SOURCES, TARGETS, Command, tiny_model

from attendo.model.config import ModelConfig
from attendo.model.transformer import Transformer
from attendo.store import StoredModel, save_model
from attendo.text import SentencePiece
from attendo.text_model import TextModel

PROGRAM = "from attendo.cli.main import main; main()"

LINES = [
    "I love NLP",
    "",
    "   ",
    "\t",
    "😀 the cat 👩‍👩‍👧",
    "the\x00cat",
    "unknown words here",
    "a" * 3000,
    "the\u2028cat\u2029sat\x85\x0b\x0c",
    "<s> </s> <pad> <unk>",
    "the\rcat",
    "\ufeffthe cat",
    "é e\u0301",
    "▁the ▁cat",
    " the  cat ",
    "",
]


def text(lines: list[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()


def test_there_is_one_line_out_for_one_line_in(attendo: Command, model_folder: Path) -> None:
    done = attendo("generate", model_folder, given=text(LINES))
    assert done.code == 0
    assert done.output.endswith("\n")
    answers = done.output.removesuffix("\n").split("\n")
    assert len(answers) == len(LINES)
    assert [answer == "" for answer, line in zip(answers, LINES, strict=True) if not line] == [True, True]


def test_answers_are_those_of_the_library_in_order(attendo: Command, model_folder: Path) -> None:
    expected = [result.text for result in tiny_model().generate(SOURCES)]
    done = attendo("generate", model_folder, given=text(list(SOURCES)))
    assert done.output.splitlines() == expected
    assert attendo("translate", model_folder, given=text(list(SOURCES))).output == done.output


@pytest.mark.parametrize(
    ("options", "settings"),
    [
        (["--beam", "3"], {"beam": 3}),
        (["--beam", "3", "--length-penalty", "0"], {"beam": 3, "length_penalty": 0.0}),
        (["--beam", "1"], {}),
    ],
)
def test_a_beam_is_that_of_the_library(
    attendo: Command, model_folder: Path, options: list[str], settings: dict[str, Any]
) -> None:
    lines = [*SOURCES, *SOURCES[::-1]]
    expected = [result.text for result in tiny_model().generate(lines, **settings)]
    assert attendo("generate", model_folder, *options, given=text(lines)).output.splitlines() == expected


def test_unless_given_the_beam_is_that_of_the_model(attendo: Command, tmp_path: Path) -> None:
    stored = tiny_model().stored
    stored.generation.update(beam=4)
    save_model(tmp_path / "model", stored)
    done = attendo("generate", tmp_path / "model", given=text(list(SOURCES)))
    wide = [result.text for result in tiny_model().generate(SOURCES, beam=4)]
    greedy = [result.text for result in tiny_model().generate(SOURCES)]
    assert done.output.splitlines() == wide != greedy


def test_subwords_keep_one_line_out_for_one_line_in(attendo: Command, tmp_path: Path) -> None:
    pieces = SentencePiece.train([*SOURCES, *TARGETS] * 4, 330)
    network = Transformer(ModelConfig(**SIZES, vocab_size=pieces.vocab_size), torch.Generator().manual_seed(1))
    TextModel(StoredModel(network, pieces, pieces)).save(tmp_path / "model")
    lines = [line for line in LINES if len(line) < 100]
    done = attendo("generate", tmp_path / "model", "--max-length", "30", given=text(lines))
    assert done.code == 0
    assert done.output.count("\n") == len(lines)


def test_the_last_line_needs_no_line_feed_and_no_lines_give_no_lines(attendo: Command, model_folder: Path) -> None:
    assert attendo("generate", model_folder, given=b"the cat\nthe cat").output.count("\n") == 2
    assert attendo("generate", model_folder, given=b"").output == ""
    assert attendo("generate", model_folder, given=b"\n\n").output == "\n\n"
    assert attendo("generate", model_folder, given=b"\r\n").output == "\n"


def test_more_lines_than_are_read_at_once_stay_in_order(
    attendo: Command, model_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [*SOURCES, "", *SOURCES[::-1]] * 3
    whole = attendo("generate", model_folder, given=text(lines))
    monkeypatch.setattr("attendo.cli.generate.LINES_AT_ONCE", 4)
    assert attendo("generate", model_folder, given=text(lines)).output == whole.output


def test_unknown_words_and_cut_answers_are_told_with_their_line(attendo: Command, model_folder: Path) -> None:
    done = attendo("generate", model_folder, "--max-length", "2", given=b"the cat\n\na zebra sat\n")
    assert "line 3: not in the vocabulary: 'zebra'\n" in done.errors
    assert "line 1: not" not in done.errors
    assert "line 1: cut at 2 tokens; see --max-length\n" in done.errors
    assert "line 2" not in done.errors


def test_a_line_that_is_not_utf_8_is_named(attendo: Command, model_folder: Path) -> None:
    failed = attendo("generate", model_folder, given=b"the cat\nGr\xfc\xdfe\n")
    assert failed.code == 3
    assert "attendo: standard input line 2 is not UTF-8" in failed.errors


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_answers_are_utf_8_in_every_locale(model_folder: Path, encoding: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, "generate", str(model_folder)],
        input=text(list(SOURCES)),
        capture_output=True,
        env={**os.environ, "PYTHONIOENCODING": encoding},
        check=False,
    )
    assert done.returncode == 0
    assert done.stdout.decode("utf-8").splitlines() == [result.text for result in tiny_model().generate(SOURCES)]


def test_an_interrupt_ends_quietly_with_exit_code_130(model_folder: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, "generate", str(model_folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as running:
        assert running.stdin is not None
        assert running.stdout is not None
        assert running.stderr is not None
        running.stdin.write(text(["the cat"] * 2000))
        running.stdin.flush()
        running.stdout.readline()  # it has answered, and now waits for the second thousand to be full
        running.send_signal(signal.SIGINT)
        running.stdin.close()
        running.stdout.read()
        errors = [line for line in running.stderr.read().decode().splitlines() if "cut at" not in line]
    assert running.returncode == 130
    assert errors in ([], ["attendo: interrupted"])
