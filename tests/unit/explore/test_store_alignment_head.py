"""Storing the best alignment head changes one entry of scores.json and keeps the rest of the folder."""

import json
from pathlib import Path

import pytest
from error_codes import has_code

from attendo import atomic_files
from attendo.errors import ModelError
from attendo.explore.alignment_head import store_alignment_head
from attendo.explore.head_stats import HeadReport, HeadStats
from attendo.model_folder import load_model
from attendo.text_model import load
from attendo.text_model.alignment import AlignmentHead


def report(layer: int = 1, head: int = 0, gold_links: int = 5) -> HeadReport:
    numbers = (0.5,) * 6
    worse = HeadStats("decoder.0.cross", 1, *numbers, agreement=0.1, error_rate=0.9)
    best = HeadStats(f"decoder.{layer}.cross", head, *numbers, agreement=0.8, error_rate=0.25)
    return HeadReport((worse, best), 1, 1, 1, gold_links)


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_the_head_is_loaded_with_the_model(model_folder: Path) -> None:
    before = content(model_folder)
    assert store_alignment_head(model_folder, report()) == {"layer": 1, "head": 0, "error_rate": 0.25}
    loaded = load(model_folder, "cpu")
    assert loaded.scores == {"exact_match": 0.25, "alignment_head": {"layer": 1, "head": 0, "error_rate": 0.25}}
    assert AlignmentHead.from_scores(loaded.scores, loaded.network.config) == AlignmentHead(1, 0)
    after = content(model_folder)
    assert before.keys() == after.keys()
    changed = {name for name in before if before[name] != after[name]}
    assert changed == {"scores.json", "manifest.json"}
    assert [path.name for path in model_folder.parent.iterdir()] == [model_folder.name]


def test_a_stored_head_can_be_replaced(model_folder: Path) -> None:
    store_alignment_head(model_folder, report())
    store_alignment_head(model_folder, report(layer=0, gold_links=0))
    assert load(model_folder, "cpu").scores["alignment_head"] == {"layer": 0, "head": 0, "agreement": 0.8}


def test_other_files_stay_and_are_not_in_the_manifest(model_folder: Path) -> None:
    (model_folder / "notes.txt").write_text("mine")
    (model_folder / "more").mkdir()
    (model_folder / "more" / "a.txt").write_text("too")
    store_alignment_head(model_folder, report())
    assert content(model_folder)["notes.txt"] == b"mine"
    assert content(model_folder)["more/a.txt"] == b"too"
    assert "notes.txt" not in json.loads((model_folder / "manifest.json").read_text())["files"]
    load_model(model_folder)


def test_a_damaged_folder_is_rejected_and_unchanged(model_folder: Path) -> None:
    path = model_folder / "weights.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    before = content(model_folder)
    with pytest.raises(ModelError, check=has_code("file_checksum_mismatch")):
        store_alignment_head(model_folder, report())
    assert content(model_folder) == before


@pytest.mark.parametrize("verb", ["sync", "move"])
def test_a_failed_write_keeps_the_model(model_folder: Path, monkeypatch: pytest.MonkeyPatch, verb: str) -> None:
    before, real = content(model_folder), getattr(atomic_files, verb)

    def fail(*args: object) -> None:
        if any(f".tmp-{model_folder.name}" in str(each) for each in args):
            raise OSError(28, "No space left on device")
        real(*args)

    monkeypatch.setattr(atomic_files, verb, fail)
    with pytest.raises((OSError, atomic_files.DiskFullError)):
        store_alignment_head(model_folder, report())
    monkeypatch.undo()
    assert content(model_folder) == before
    load_model(model_folder)


def test_an_interrupt_between_the_moves_keeps_the_old_model(
    model_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, before = atomic_files.move, content(model_folder)

    def interrupt(path: Path, destination: Path) -> None:
        if path != model_folder:
            raise KeyboardInterrupt  # also when the old folder is moved back
        real(path, destination)

    monkeypatch.setattr(atomic_files, "move", interrupt)
    with pytest.raises(KeyboardInterrupt):
        store_alignment_head(model_folder, report())
    monkeypatch.undo()
    assert not model_folder.exists()
    load_model(model_folder)
    assert content(model_folder) == before
