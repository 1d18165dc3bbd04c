"""D4: `attendo generate` as a filter, whatever comes in."""

import random
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from children import Children, Ended
from tiny import SIZES, SOURCES, TARGETS, tiny_model

from attendo.model.config import ModelConfig
from attendo.model.transformer import Transformer
from attendo.store import StoredModel
from attendo.text import SentencePiece
from attendo.text_model import TextModel

LINES = 10_000
MAIN = [sys.executable, "-c", "from attendo.cli.main import main; main()"]
STRANGE = (
    *(
        "",
        " ",
        "   ",
        "\t",
        "\t \u3000",
        "\x00",
        "\x00\x00 a",
        "\x1b[31mred\x1b[0m",
        "\x07\x08\x7f",
        "\u200b",
        "\ufeff",
    ),
    *(
        "😀",
        "👩‍👩‍👧‍👦 the cat",
        "🇩🇪🇨🇳",
        "é e\u0301",
        "שלום עולם",
        "مرحبا بالعالم",
        "\u202eabc\u202c",
        "\ufffd",
        "\U0010ffff",
    ),
    *(
        "the\u2028cat",
        "the\u2029cat",
        "the\x85cat",
        "the\x0bcat",
        "the\x0ccat",
        "the\rcat",
        "\r",
        "<s> </s> <pad> <unk>",
    ),
    *(
        "<0x0A>",
        "<0x0A><0x0D>",
        "|||",
        "a ||| b",
        "▁the",
        "$(rm)",
        "'\"`",
        "a" * 5000,
        "the cat sat " * 416,
        "猫" * 300,
    ),
)


def hostile_lines() -> Iterator[str]:
    """All strange ones, then mixtures of them with words, no two alike but by chance."""
    dice = random.Random(4)
    words = " ".join(SOURCES).split()
    short = [line for line in STRANGE if len(line) < 100]
    for number in range(LINES):
        if number < len(STRANGE):
            yield STRANGE[number]
        elif number % 500 == 0:
            yield " ".join(dice.choices([*words, *short], k=700))[:5000]
        else:
            yield dice.choice(["", " "]).join(dice.choices([*words, *short], k=dice.randint(0, 6)))


@pytest.fixture(scope="module")
def words_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("words") / "model"
    tiny_model(num_encoder_layers=1, num_decoder_layers=1).save(folder)
    return folder


@pytest.fixture(scope="module")
def pieces_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One that is fond of saying the byte of a line feed."""
    pieces = SentencePiece.train([*SOURCES, *TARGETS] * 4, 330)
    config = ModelConfig(**{**SIZES, "num_encoder_layers": 1, "num_decoder_layers": 1}, vocab_size=330, tie="none")
    network = Transformer(config.replace(vocab_size=pieces.vocab_size), torch.Generator().manual_seed(1))
    labels = pieces.pieces(range(pieces.vocab_size))
    with torch.no_grad():
        for name in ("<0x0A>", "<0x0D>"):
            network.output.weight[labels.index(name)] *= 6
    folder = tmp_path_factory.mktemp("pieces") / "model"
    TextModel(StoredModel(network, pieces, pieces)).save(folder)
    return folder


@pytest.fixture
def run(children: Children) -> Callable[..., Ended]:
    """`attendo generate` with these bytes on standard input."""
    return lambda model, given, *options: children.attendo("generate", model, *options, given=given)


@pytest.mark.parametrize("kind", [pytest.param("words_model", marks=pytest.mark.slow), "pieces_model"])
def test_D4_10000_hostile_lines_give_10000_lines_in_order(
    kind: str, run: Callable[..., Ended], request: pytest.FixtureRequest
) -> None:
    folder, lines = request.getfixturevalue(kind), list(hostile_lines())
    given = "".join(f"{line}\n" for line in lines).encode()
    done = run(folder, given, "--max-length", "3")
    assert done.code == 0, done.errors[-500:]
    output = done.output.decode("utf-8")
    answers = output.removesuffix("\n").split("\n")
    assert len(answers) == LINES
    assert len(output.splitlines()) == LINES
    assert "\r" not in output
    assert all(answer == "" for answer, line in zip(answers, lines, strict=True) if not line.strip())
    assert {re.match(r"line \d+: (cut at|not in)", line) is not None for line in done.errors.splitlines()} <= {True}
    some = random.Random(1).sample(range(LINES), 40)
    again = run(folder, "".join(f"{lines[n]}\n" for n in some).encode(), "--max-length", "3")
    assert again.output.decode().removesuffix("\n").split("\n") == [answers[n] for n in some]


def test_D4_bytes_that_are_no_text_are_an_error_that_names_the_line_or_are_replaced(
    words_model: Path, run: Callable[..., Ended]
) -> None:
    given = b"the cat\n\xed\xa0\x80 lone surrogate\nthe cat\n\xff\xfe\n"
    failed = run(words_model, given)
    assert failed.code == 3
    assert failed.output.count(b"\n") == 1  # what stands above it is answered
    assert failed.error.startswith("standard input line 2 is not UTF-8")
    done = run(words_model, given, "--errors", "replace")
    assert done.code == 0
    assert done.output.count(b"\n") == 4
    assert "line 4: not in the vocabulary" in done.errors


def test_D4_whoever_has_seen_enough_leaves_quietly(words_model: Path) -> None:
    with subprocess.Popen(
        [*MAIN, "generate", str(words_model), "--max-length", "3"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as running:
        assert running.stdin is not None
        assert running.stdout is not None
        assert running.stderr is not None
        running.stdin.write(b"the cat sat\n" * 20)
        running.stdin.flush()
        assert running.stdout.readline()
        running.stdout.close()
        try:
            running.stdin.write(b"the dog ran\n" * 5000)
            running.stdin.close()
        except BrokenPipeError:
            pass
        errors = [line for line in running.stderr.read().decode().splitlines() if "cut at" not in line]
    assert running.returncode == 0
    assert [line for line in errors if not line.startswith("line ")] == []


def test_D4_an_interrupt_exits_with_130(words_model: Path) -> None:
    with subprocess.Popen(
        [*MAIN, "generate", str(words_model)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as running:
        assert running.stdin is not None
        assert running.stdout is not None
        running.stdin.write(b"the cat sat\n" * 17)
        running.stdin.flush()
        assert running.stdout.readline()  # the first block is answered before the second is full
        running.send_signal(signal.SIGINT)
        running.communicate()
    assert running.returncode == 130
