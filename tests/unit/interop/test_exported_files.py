"""An export is written completely or not at all, and replaces only an earlier export."""

import json
import zipfile
from pathlib import Path

import pytest
import torch
from error_codes import has_code
from full_disk import room_for
from late_import import needs
from tiny import tiny_model

from attendo import atomic_files
from attendo.atomic_files import DiskFullError
from attendo.errors import AttendoError, ModelError, UsageError
from attendo.interop.certify import CertificateSentences
from attendo.interop.export import ExportFormat, export
from attendo.interop.exported_files import new_export
from attendo.model_folder import save_model, write_manifest

pytestmark = needs("ctranslate2")


def test_an_export_appears_complete(tmp_path: Path) -> None:
    with new_export(tmp_path / "deep" / "out") as folder:
        (folder / "inner").mkdir()
        (folder / "inner" / "file").write_text("x")
        assert not (tmp_path / "deep" / "out").exists()
    assert [each.name for each in (tmp_path / "deep").iterdir()] == ["out"]
    assert (tmp_path / "deep" / "out" / "inner" / "file").read_text() == "x"


def test_an_error_keeps_the_earlier_export(tmp_path: Path) -> None:
    _write(tmp_path / "out", "old")
    with pytest.raises(ZeroDivisionError), new_export(tmp_path / "out"):
        raise ZeroDivisionError
    assert [each.name for each in tmp_path.iterdir()] == ["out"]
    assert (tmp_path / "out" / "file").read_text() == "old"


def test_an_earlier_export_is_replaced(tmp_path: Path) -> None:
    _write(tmp_path / "out", "old")
    _write(tmp_path / "out", "new")
    assert [each.name for each in tmp_path.iterdir()] == ["out"]
    assert (tmp_path / "out" / "file").read_text() == "new"


def test_an_empty_folder_is_used(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    _write(tmp_path / "out", "new")
    assert (tmp_path / "out" / "file").read_text() == "new"


def test_a_failed_move_restores_the_earlier_export(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _write(tmp_path / "out", "old")
    move = atomic_files.move

    def fail_for_the_new(path: Path, destination: Path) -> None:
        if path.name.startswith(atomic_files.TEMPORARY_PREFIX):
            raise OSError(5, "Input/output error")
        move(path, destination)

    monkeypatch.setattr(atomic_files, "move", fail_for_the_new)
    with pytest.raises(OSError, match="Input/output error"):
        _write(tmp_path / "out", "new")
    assert [each.name for each in tmp_path.iterdir()] == ["out"]
    assert (tmp_path / "out" / "file").read_text() == "old"


@pytest.mark.parametrize("kind", ["file", "folder", "damaged", "model", "checkpoint"])
def test_other_files_and_folders_are_never_replaced(tmp_path: Path, kind: str) -> None:
    out = tmp_path / "out"
    if kind == "file":
        out.write_text("precious")
    elif kind == "model":
        save_model(out, tiny_model().stored_model)
    elif kind == "checkpoint":
        out.mkdir()
        write_manifest(out, "attendo.checkpoint", 1)
    else:
        out.mkdir()
        (out / "manifest.json").write_text("{" if kind == "damaged" else json.dumps({"format": "other"}))
    before = sorted(path.name for path in tmp_path.rglob("*"))
    with pytest.raises(UsageError, check=has_code("output_not_exported_model")):
        _write(out, "new")
    assert sorted(path.name for path in tmp_path.rglob("*")) == before


def test_a_folder_created_meanwhile_is_not_replaced(tmp_path: Path) -> None:
    precious = tmp_path / "out" / "precious"
    with pytest.raises(UsageError, check=has_code("output_not_exported_model")), new_export(tmp_path / "out"):
        precious.mkdir(parents=True)
    assert [each.name for each in tmp_path.rglob("*")] == ["out", "precious"]


@pytest.mark.parametrize("packed", [False, True])
def test_a_second_export_to_the_same_path_is_rejected(tmp_path: Path, packed: bool) -> None:
    with new_export(tmp_path / "out", packed) as folder:
        (folder / "out").write_text("first")
        with (
            pytest.raises(UsageError, check=has_code("path_being_written", path=tmp_path / "out")),
            new_export(tmp_path / "out", packed),
        ):
            raise AssertionError("never here")
        assert (folder / "out").read_text() == "first"
        with new_export(tmp_path / "other", packed) as other:  # another path is free
            (other / "other").write_text("second")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["other", "out"]


def test_leftovers_of_a_killed_export_are_removed(tmp_path: Path) -> None:
    (tmp_path / ".tmp-out").mkdir()
    (tmp_path / ".tmp-out" / "stale").write_text("x")
    (tmp_path / ".tmp-out.lock").write_text("")
    _write(tmp_path / "out", "new")
    assert sorted(each.name for each in tmp_path.rglob("*")) == ["file", "manifest.json", "out"]


def test_new_parent_folders_of_a_failed_export_are_removed(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    with pytest.raises(ZeroDivisionError), new_export(tmp_path / "mine" / "new" / "deep" / "out"):
        raise ZeroDivisionError
    assert [each.name for each in tmp_path.rglob("*")] == ["mine"]


def test_a_signal_during_the_move_restores_the_earlier_export(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _write(tmp_path / "out", "old")
    move = atomic_files.move

    def stop(path: Path, destination: Path) -> None:
        if path.name.startswith(atomic_files.TEMPORARY_PREFIX):
            raise SystemExit(143)
        move(path, destination)

    monkeypatch.setattr(atomic_files, "move", stop)
    with pytest.raises(SystemExit):
        _write(tmp_path / "out", "new")
    assert [each.name for each in tmp_path.iterdir()] == ["out"]
    assert (tmp_path / "out" / "file").read_text() == "old"


@pytest.mark.parametrize("content", ["metadata.json", "certificate.json"])
def test_packages_of_other_programs_are_not_replaced(tmp_path: Path, content: str) -> None:
    path = tmp_path / "a.argosmodel"
    with zipfile.ZipFile(path, "w") as package:
        package.writestr(f"translate-en_de-1_0/{content}", "{}")
    if content == "certificate.json":
        with new_export(path, packed=True) as folder:
            (folder / path.name).write_text("new")
        assert path.read_text() == "new"
    else:
        with pytest.raises(UsageError, check=has_code("output_not_exported_package")), new_export(path, packed=True):
            raise AssertionError("never here")


def test_a_package_is_one_file(tmp_path: Path) -> None:
    with new_export(tmp_path / "a.zip", packed=True) as folder:
        with zipfile.ZipFile(folder / "a.zip", "w") as package:
            package.writestr("x", "y")
        (folder / "tree").mkdir()
    assert [each.name for each in tmp_path.iterdir()] == ["a.zip"]


@pytest.mark.short(1)
@pytest.mark.parametrize("to", ["ctranslate2", "hf"])
def test_a_full_disk_raises_and_leaves_no_files(tmp_path: Path, to: ExportFormat) -> None:
    if to == "hf":
        pytest.importorskip("transformers")
    model = tiny_model(norm="post", position_layout="halves")
    with room_for(4096), pytest.raises(AttendoError) as raised:
        export(model, tmp_path / "out", to, "float32", CertificateSentences([[4]]))
    assert isinstance(raised.value, DiskFullError) or "cannot be written" in str(raised.value)
    assert list(tmp_path.iterdir()) == []


def test_an_ensemble_is_rejected(tmp_path: Path) -> None:
    ensemble = tiny_model().ensemble([tiny_model()])
    with pytest.raises(UsageError, check=has_code("ensemble_export_unsupported", count=2)):
        export(ensemble, tmp_path / "out", "ctranslate2")


def _write(out: Path, content: str) -> None:
    with new_export(out) as folder:
        (folder / "file").write_text(content)
        write_manifest(folder, "attendo.export", 1)


def test_nan_weights_raise_with_the_parameter_name(tmp_path: Path) -> None:
    model = tiny_model()
    with torch.no_grad():
        model.network.output.weight[4, 0] = float("nan")
    with pytest.raises(ModelError, check=has_code("weights_not_finite", parameters="target.tokens.weight")):
        export(model, tmp_path / "out", "ctranslate2", sentences=CertificateSentences([[4]]))
    assert not any(tmp_path.iterdir())
