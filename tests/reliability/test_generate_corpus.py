"""R3: `attendo generate --input` that is killed and called again writes the bytes of an undisturbed call."""

import random
from pathlib import Path

import pytest
from children import Children
from repeated_kills import kill_and_continue
from tiny import SOURCES, tiny_model

DISK_CALLS = 40  # about those of one call


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Shards of several windows, with blank lines."""
    folder, dice = tmp_path_factory.mktemp("corpus"), random.Random(1)
    for number, lines in enumerate((2100, 10, 2049)):
        text = "".join(f"{dice.choice([*SOURCES, '', ' '])} {dice.randrange(9)}\n" for _ in range(lines))
        (folder / f"{number}.txt").write_text(text)
    return folder


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model") / "model"
    tiny_model(num_encoder_layers=1, num_decoder_layers=1).save(folder)
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def check(folder: Path, whole: Path, corpus: Path) -> None:
    assert contents(folder) == contents(whole)
    for path in corpus.iterdir():
        assert (folder / path.name).read_text().count("\n") == path.read_text().count("\n")


@pytest.mark.parametrize(
    ("workers", "kills"), [(1, 6), *(pytest.param(*each, marks=pytest.mark.slow) for each in ((1, 60), (2, 6)))]
)
def test_R3_killed_generation_continues_without_losing_or_doubling_a_line(
    children: Children, model: Path, corpus: Path, tmp_path: Path, workers: int, kills: int
) -> None:
    command = ("generate", model, "--input", corpus, "--workers", str(workers), "--max-length", "3", "--output")
    kill_and_continue(
        children, command, tmp_path, kills, DISK_CALLS, workers, lambda out, whole: check(out, whole, corpus)
    )
