"""D4: `attendo generate` as a filter for any input."""

import random
import re
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import torch
from children import Children, Ended
from error_codes import fragment
from tiny import SIZES, SOURCES, TARGETS, tiny_model

from attendo.model.config import ModelConfig
from attendo.model.transformer import Transformer
from attendo.model_folder import StoredModel
from attendo.text import SentencePiece
from attendo.text_model import TextModel

HOSTILE = (
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


def hostile_lines(count: int) -> Iterator[str]:
    """All hostile lines, then random mixtures of them with words."""
    dice = random.Random(4)
    words = " ".join(SOURCES).split()
    short = [line for line in HOSTILE if len(line) < 100]
    for number in range(count):
        if number < len(HOSTILE):
            yield HOSTILE[number]
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
    """A model that often generates the byte tokens of line feed and carriage return."""
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
    """Runs `attendo generate` with these bytes on standard input."""
    return lambda model, given, *options: children.attendo("generate", model, *options, given=given)


@pytest.mark.parametrize(
    ("kind", "count"),
    [
        ("pieces_model", 1000),
        *(pytest.param(each, 10_000, marks=pytest.mark.slow) for each in ("words_model", "pieces_model")),
    ],
)
def test_D4_every_hostile_line_gives_one_output_line(
    kind: str, count: int, run: Callable[..., Ended], request: pytest.FixtureRequest
) -> None:
    folder, lines = request.getfixturevalue(kind), list(hostile_lines(count))
    given = "".join(f"{line}\n" for line in lines).encode()
    done = run(folder, given, "--max-length", "3")
    assert done.code == 0, done.errors[-500:]
    output = done.output.decode("utf-8")
    answers = output.removesuffix("\n").split("\n")
    assert len(answers) == count
    assert len(output.splitlines()) == count
    assert "\r" not in output
    assert all(answer == "" for answer, line in zip(answers, lines, strict=True) if not line.strip())
    assert {re.match(r"line \d+: (cut at|not in)", line) is not None for line in done.errors.splitlines()} <= {True}
    some = random.Random(1).sample(range(count), 40)
    again = run(folder, "".join(f"{lines[n]}\n" for n in some).encode(), "--max-length", "3")
    assert again.output.decode().removesuffix("\n").split("\n") == [answers[n] for n in some]


def test_D4_invalid_utf8_raises_with_the_line_or_is_replaced(words_model: Path, run: Callable[..., Ended]) -> None:
    given = b"the cat\n\xed\xa0\x80 lone surrogate\nthe cat\n\xff\xfe\n"
    failed = run(words_model, given)
    assert failed.code == 3
    assert failed.output.count(b"\n") == 1  # earlier lines are answered
    assert failed.error.startswith(fragment("stdin_line_not_utf8", line=2))
    done = run(words_model, given, "--errors", "replace")
    assert done.code == 0
    assert done.output.count(b"\n") == 4
    assert "line 4: not in the vocabulary" in done.errors


def test_D4_closed_output_pipe_ends_quietly(children: Children, words_model: Path) -> None:
    running = children.start_attendo("generate", words_model, "--max-length", "3", given=None)
    with running.given.open("wb", buffering=0) as given:
        with running.output.open("rb") as output:
            given.write(b"the cat sat\n" * 20)
            assert output.readline()
        with suppress(BrokenPipeError):
            given.write(b"the dog ran\n" * 5000)
    ended = running.wait()
    assert ended.code == 0
    assert [line for line in ended.errors.splitlines() if not line.startswith("line ")] == []


def test_D4_an_interrupt_exits_with_130(children: Children, words_model: Path) -> None:
    running = children.start_attendo("generate", words_model, given=None)
    with running.given.open("wb", buffering=0) as given, running.output.open("rb") as output:
        given.write(b"the cat sat\n" * 17)
        assert output.readline()  # the first block is answered before the second is full
        running.kill(signal.SIGINT)
        assert running.wait().code == 130
