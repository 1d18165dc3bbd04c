"""R6: any damage to a checkpoint is found before a tensor is read, and the previous checkpoint is used."""

import random
import re
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
# Per file; `make test` tries fewer.
FLIPS = pytest.mark.parametrize("flips", [20, pytest.param(200, marks=pytest.mark.slow)])
CUTS = pytest.mark.parametrize("cuts", [10, pytest.param(50, marks=pytest.mark.slow)])


@pytest.fixture
def checkpoints(tmp_path: Path) -> Checkpoints:
    saved = Checkpoints(tmp_path / "checkpoints")
    for step in (10, 20):
        saved.save(snapshot(step))
    return saved


@pytest.fixture
def forbid_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fails if tensors of the newer checkpoint are read."""
    read = checkpoint.read_tensors

    def checked_read(path: Path) -> object:
        assert path.parent.name != "step-00000020", f"tensors of {path} were used"
        return read(path)

    monkeypatch.setattr(checkpoint, "read_tensors", checked_read)


@pytest.mark.usefixtures("forbid_reading")
@pytest.mark.parametrize("name", FILES)
@FLIPS
def test_R6_one_flipped_bit_is_detected(checkpoints: Checkpoints, name: str, flips: int) -> None:
    path, chance = checkpoints.path(20) / name, random.Random(name)
    original = path.read_bytes()
    for _ in range(flips):
        offset, bit = chance.randrange(len(original)), 1 << chance.randrange(8)
        path.write_bytes(original[:offset] + bytes([original[offset] ^ bit]) + original[offset + 1 :])
        assert_older_checkpoint_is_used(checkpoints)
    path.write_bytes(original)


@pytest.mark.usefixtures("forbid_reading")
@pytest.mark.parametrize("name", FILES)
@CUTS
def test_R6_truncated_or_extended_file_is_detected(checkpoints: Checkpoints, name: str, cuts: int) -> None:
    path, chance = checkpoints.path(20) / name, random.Random(name)
    original = path.read_bytes()
    # The last byte of the manifest is a line feed, which carries no information.
    lengths = [0, 1, len(original) - 2, *(chance.randrange(len(original) - 1) for _ in range(cuts - 3))]
    for content in (
        *(original[:length] for length in lengths),
        original + b"}",
        original + original,
        bytes(len(original)),
    ):
        path.write_bytes(content)
        assert_older_checkpoint_is_used(checkpoints)


def remove_file(folder: Path, name: str) -> None:
    (folder / name).unlink()


def replace_by_folder(folder: Path, name: str) -> None:
    (folder / name).unlink()
    (folder / name).mkdir()


def replace_by_link(folder: Path, name: str) -> None:
    (folder / name).rename(folder.parent / "elsewhere")
    (folder / name).symlink_to(folder.parent / "elsewhere")


def copy_from_older(folder: Path, name: str) -> None:
    shutil.copy(folder.with_name("step-00000010") / name, folder / name)


def swap_files(folder: Path, name: str) -> None:
    other = folder / FILES[FILES.index(name) - 1]
    (folder / name).rename(folder / "third")
    other.rename(folder / name)
    (folder / "third").rename(other)


@pytest.mark.usefixtures("forbid_reading")
@pytest.mark.parametrize(
    ("name", "damage"),
    [
        *((name, damage) for name in FILES for damage in (remove_file, replace_by_folder, copy_from_older, swap_files)),
        *((name, replace_by_link) for name in FILES if name != "manifest.json"),
    ],
)
def test_R6_missing_or_replaced_file_is_detected(
    checkpoints: Checkpoints, name: str, damage: Callable[[Path, str], None]
) -> None:
    damage(checkpoints.path(20), name)
    assert_older_checkpoint_is_used(checkpoints)


@pytest.mark.usefixtures("forbid_reading")
def test_R6_checkpoint_of_another_step_is_detected(checkpoints: Checkpoints) -> None:
    shutil.rmtree(checkpoints.path(20))
    shutil.copytree(checkpoints.path(10), checkpoints.path(20))
    assert_older_checkpoint_is_used(checkpoints, fragment("checkpoint_manifest_mismatch"))


def test_R6_error_lists_all_damaged_checkpoints_in_one_line(checkpoints: Checkpoints) -> None:
    for step in (10, 20):
        (checkpoints.path(step) / "model.safetensors").write_bytes(b"")
    with pytest.raises(ModelError, check=has_code("all_checkpoints_damaged")) as caught:
        checkpoints.load_newest()
    assert re.fullmatch(r".*step-00000020.*step-00000010.*", str(caught.value))  # a dot matches no line break


@pytest.mark.slow
def test_R6_command_line_skips_a_damaged_checkpoint_with_a_warning(
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


def assert_older_checkpoint_is_used(checkpoints: Checkpoints, reason: str = "") -> None:
    found = checkpoints.load_newest()
    assert found is not None
    assert equal(found.snapshot, snapshot(10))
    (reason_found,) = found.skipped_reasons
    assert str(checkpoints.path(20)) in reason_found
    assert reason in reason_found


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
