"""R3: `attendo generate --input` that is killed and called again writes the bytes of an undisturbed call."""

import random
import shutil
import time
from pathlib import Path

import pytest
from children import Children
from tiny import SOURCES, tiny_model

DISK_CALLS = 40  # about those of one call
MAX_SECONDS = 3.0  # until a kill, also on a busy machine


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
    started = time.monotonic()
    assert children.attendo(*command, tmp_path / "whole").code == 0
    seconds = min(time.monotonic() - started, MAX_SECONDS)
    dice = random.Random(workers)
    while kills:
        how = {"call": dice.randrange(1, DISK_CALLS), "how": dice.choice(["before", "half", "after"])}
        in_write = kills % 2 == 0
        child = children.start_attendo(
            *command, tmp_path / "out", before=[("die_at_disk_call", how)] if in_write else []
        )
        if not in_write:
            time.sleep(dice.uniform(0, seconds))
            child.kill()
        ended = child.wait()
        assert ended.code in (0, -9), ended.errors
        kills -= ended.code == -9
        if ended.code == 0:
            check(tmp_path / "out", tmp_path / "whole", corpus)
            shutil.rmtree(tmp_path / "out")
    ended = children.attendo(*command, tmp_path / "out")
    assert ended.code == 0, ended.errors
    check(tmp_path / "out", tmp_path / "whole", corpus)
