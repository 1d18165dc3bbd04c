"""R6: whatever befalls a file of a checkpoint is noticed before a tensor is used, and the one before it serves."""

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from children import Children
from error_codes import fragment, has_code
from small_run import STEPS, begin, outcome, run_config, train_to_the_end
from snapshots import equal, snapshot

from attendo.errors import ModelError
from attendo.train import checkpoint
from attendo.train.checkpoint import Checkpoints

FILES = ("model.safetensors", "optimizer.safetensors", "random.safetensors", "state.json", "manifest.json")
# Of each file; `make test` tries some.
FLIPS = pytest.mark.parametrize("flips", [20, pytest.param(200, marks=pytest.mark.slow)])
CUTS = pytest.mark.parametrize("cuts", [10, pytest.param(50, marks=pytest.mark.slow)])


@pytest.fixture
def checkpoints(tmp_path: Path) -> Checkpoints:
    kept = Checkpoints(tmp_path / "checkpoints")
    for step in (10, 20):
        kept.save(snapshot(step))
    return kept


@pytest.fixture
def unread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fails where tensors of the newer checkpoint are read."""
    read = checkpoint.read_tensors

    def refusing(path: Path) -> object:
        assert path.parent.name != "step-00000020", f"tensors of {path} were used"
        return read(path)

    monkeypatch.setattr(checkpoint, "read_tensors", refusing)


@pytest.mark.usefixtures("unread")
@pytest.mark.parametrize("name", FILES)
@FLIPS
def test_R6_one_bit_anywhere_is_noticed(checkpoints: Checkpoints, name: str, flips: int) -> None:
    path, chance = checkpoints.path(20) / name, random.Random(name)
    whole = path.read_bytes()
    for _ in range(flips):
        place, bit = chance.randrange(len(whole)), 1 << chance.randrange(8)
        path.write_bytes(whole[:place] + bytes([whole[place] ^ bit]) + whole[place + 1 :])
        assert_the_older_one_serves(checkpoints)
    path.write_bytes(whole)


@pytest.mark.usefixtures("unread")
@pytest.mark.parametrize("name", FILES)
@CUTS
def test_R6_a_file_cut_short_or_grown_is_noticed(checkpoints: Checkpoints, name: str, cuts: int) -> None:
    path, chance = checkpoints.path(20) / name, random.Random(name)
    whole = path.read_bytes()
    # The last byte of the manifest is the end of its line, and says nothing.
    lengths = [0, 1, len(whole) - 2, *(chance.randrange(len(whole) - 1) for _ in range(cuts - 3))]
    for content in (*(whole[:length] for length in lengths), whole + b"}", whole + whole, bytes(len(whole))):
        path.write_bytes(content)
        assert_the_older_one_serves(checkpoints)


def missing(folder: Path, name: str) -> None:
    (folder / name).unlink()


def a_folder(folder: Path, name: str) -> None:
    (folder / name).unlink()
    (folder / name).mkdir()


def a_link(folder: Path, name: str) -> None:
    (folder / name).rename(folder.parent / "elsewhere")
    (folder / name).symlink_to(folder.parent / "elsewhere")


def from_the_older_one(folder: Path, name: str) -> None:
    shutil.copy(folder.with_name("step-00000010") / name, folder / name)


def swapped(folder: Path, name: str) -> None:
    other = folder / FILES[FILES.index(name) - 1]
    (folder / name).rename(folder / "third")
    other.rename(folder / name)
    (folder / "third").rename(other)


@pytest.mark.usefixtures("unread")
@pytest.mark.parametrize(
    ("name", "damage"),
    [
        *((name, damage) for name in FILES for damage in (missing, a_folder, from_the_older_one, swapped)),
        *((name, a_link) for name in FILES if name != "manifest.json"),
    ],
)
def test_R6_a_file_that_is_missing_or_another_is_noticed(
    checkpoints: Checkpoints, name: str, damage: Callable[[Path, str], None]
) -> None:
    damage(checkpoints.path(20), name)
    assert_the_older_one_serves(checkpoints)


@pytest.mark.usefixtures("unread")
def test_R6_a_whole_checkpoint_under_the_name_of_another_step_is_noticed(checkpoints: Checkpoints) -> None:
    shutil.rmtree(checkpoints.path(20))
    shutil.copytree(checkpoints.path(10), checkpoints.path(20))
    assert_the_older_one_serves(checkpoints, fragment("checkpoint_manifest_mismatch"))


def test_R6_where_all_are_damaged_every_reason_is_named_in_one_line(checkpoints: Checkpoints) -> None:
    for step in (10, 20):
        (checkpoints.path(step) / "model.safetensors").write_bytes(b"")
    with pytest.raises(ModelError, check=has_code("all_checkpoints_damaged")) as caught:
        checkpoints.load_newest()
    assert "\n" not in str(caught.value)


@pytest.mark.slow
def test_R6_the_command_line_passes_over_a_damaged_checkpoint_and_says_why(
    children: Children, prepared: Path, tmp_path: Path
) -> None:
    run = begin(run_config({"prepared": prepared}, model={"dropout": 0.2}), tmp_path / "run")
    expected = outcome(train_to_the_end(run).folder)
    newest = run.checkpoints.path(STEPS)
    flip(newest / "optimizer.safetensors")
    resumed = children.attendo("train", "--resume", run.folder)
    assert resumed.code == 0
    assert f"warning: passed over: {newest / 'optimizer.safetensors'} is damaged: its checksum" in resumed.errors
    assert f"going on from step {run.checkpoints.steps()[-2]}\n" in resumed.errors
    assert outcome(run.folder) == expected

    for step in run.checkpoints.steps():
        flip(run.checkpoints.path(step) / "state.json")
    failed = children.attendo("train", "--resume", run.folder)
    assert failed.code == 4
    assert failed.error.startswith(fragment("all_checkpoints_damaged", folder=run.folder / "checkpoints"))


def assert_the_older_one_serves(checkpoints: Checkpoints, reason: str = "") -> None:
    found = checkpoints.load_newest()
    assert found is not None
    assert equal(found.snapshot, snapshot(10))
    (told,) = found.skipped_reasons
    assert str(checkpoints.path(20)) in told
    assert reason in told


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
