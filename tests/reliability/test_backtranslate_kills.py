"""R3: `attendo backtranslate` that is killed and called again writes the bytes of an undisturbed call."""

import random
from pathlib import Path

import pytest
from children import Children
from repeated_kills import kill_and_continue
from tiny import SOURCES, tiny_model

DISK_CALLS = 40  # about those of one call


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

    def check(out: Path, whole: Path) -> None:
        source, target = results(out)
        assert [source, target] == results(whole)
        assert source.count(b"\n") == target.count(b"\n") > 4000

    kill_and_continue(children, command, tmp_path, kills, DISK_CALLS, workers, check)
