"""R3: `attendo backtranslate` that is killed and called again writes the bytes of an undisturbed call."""

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
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Text of several windows, with blank lines."""
    path, dice = tmp_path_factory.mktemp("text") / "mono.de", random.Random(1)
    path.write_text("".join(f"{dice.choice([*SOURCES, '', ' '])} {dice.randrange(9)}\n" for _ in range(5000)))
    return path


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model") / "model"
    tiny_model(num_encoder_layers=1, num_decoder_layers=1).save(folder)
    return folder


def results(folder: Path) -> list[bytes]:
    return [(folder / f"{side}.txt").read_bytes() for side in ("source", "target")]


@pytest.mark.parametrize(
    ("method", "workers", "kills"),
    [
        ("sample", 1, 5),
        *(pytest.param(*each, marks=pytest.mark.slow) for each in (("noised-beam", 1, 40), ("sample", 2, 6))),
    ],
)
def test_R3_killed_backtranslation_continues_with_equal_bytes(
    children: Children, model: Path, text: Path, tmp_path: Path, method: str, workers: int, kills: int
) -> None:
    command = ("backtranslate", model, "--text", text, "--method", method, "--workers", str(workers), "--out")
    started = time.monotonic()
    assert children.attendo(*command, tmp_path / "whole").code == 0
    seconds, expected = min(time.monotonic() - started, MAX_SECONDS * workers), results(tmp_path / "whole")
    assert expected[0].count(b"\n") == expected[1].count(b"\n") > 4000
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
            assert results(tmp_path / "out") == expected
            shutil.rmtree(tmp_path / "out")
    ended = children.attendo(*command, tmp_path / "out")
    assert ended.code == 0, ended.errors
    assert results(tmp_path / "out") == expected
