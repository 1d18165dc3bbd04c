"""A folder of transformers is loaded as it is: imported in memory, with a cached certificate."""

import json
import os
import shutil
import warnings
from pathlib import Path

import pytest
import torch
from error_codes import has_code, message
from foreign_families import make_folder
from foreign_tokenizers import some_lines
from marian_folders import FOLDER, load_marian, write_zip
from tiny import Command

import attendo as package
from attendo.errors import ModelError
from attendo.interop import foreign_folder
from attendo.interop.foreign_folder import ForeignFolderWarning
from attendo.interop.import_model import from_folder
from attendo.text_model import TextModel

pytest.importorskip("transformers")
TEXTS = some_lines(1, 3)
IGNORED = pytest.mark.filterwarnings("ignore::attendo.interop.foreign_folder.ForeignFolderWarning")


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_folder("pegasus", tmp_path_factory.mktemp("foreign") / "m")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(foreign_folder, "_SENTENCES", 3)
    return tmp_path / "cache" / "attendo" / "certificates"


def load(folder: Path) -> tuple[TextModel, list[str]]:
    """The model and its warnings."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        model = package.load(folder, "cpu")
    assert {each.category for each in found} == {ForeignFolderWarning}
    return model, [str(each.message) for each in found]


def test_it_is_the_imported_model(original: Path, cache: Path) -> None:
    before = {path.name: path.read_bytes() for path in original.iterdir()}
    model, messages = load(original)
    expected = from_folder(original).build_text_model()
    assert [each.ids for each in model.generate(TEXTS)] == [each.ids for each in expected.generate(TEXTS)]
    assert messages[0].startswith(f"{original} is a pegasus model, imported in memory: 3 of 3 answers")
    assert {path.name: path.read_bytes() for path in original.iterdir()} == before  # nothing is written beside it
    (stored,) = cache.iterdir()
    content = json.loads(stored.read_text("utf-8"))
    assert content["certificate"]["passed"] is True
    assert content["same_answers"] == 3


def test_the_certificate_is_made_once_for_the_same_files(
    original: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    _, first = load(original)
    monkeypatch.setattr(foreign_folder, "certify_import", None)  # would fail
    _, second = load(original)
    assert first == second
    copied = tmp_path / "copied"
    shutil.copytree(original, copied)
    _, third = load(copied)  # the same contents elsewhere
    assert third[0].replace(str(copied), str(original)) == first[0]
    (stored,) = cache.iterdir()
    stored.write_text("{", "utf-8")
    with pytest.raises(TypeError):  # a damaged file is no certificate
        load(original)


def test_a_changed_original_is_compared_and_read_again(original: Path, cache: Path, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    folder = tmp_path / "m"
    shutil.copytree(original, folder)
    model, _ = load(folder)
    path = folder / "model.safetensors"
    status, weights = path.stat(), load_file(path)
    changed = {name: weight if "embed_positions" in name else weight * 0.9 for name, weight in weights.items()}
    save_file(changed, path, {"format": "pt"})
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))  # size and time do not show the change
    assert path.stat().st_size == status.st_size
    again, _ = load(folder)
    assert len(list(cache.iterdir())) == 2
    one, other = (each.network.state_dict()["output.weight"] for each in (model, again))
    assert torch.allclose(one * 0.9, other)


def test_a_read_only_folder_without_a_cache_is_loaded(
    original: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache: Path
) -> None:
    (tmp_path / "file").write_text("x")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))  # cannot be made
    original.chmod(0o555)
    try:
        model, messages = load(original)
    finally:
        original.chmod(0o755)
    assert "imported in memory" in messages[0]
    assert model.generate(TEXTS)


def test_a_wrong_network_is_refused(original: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def damage(folder: Path) -> object:
        imported = from_folder(folder)
        with torch.no_grad():
            imported.network.decoder[0].feed_forward.contract.weight[0] += 1
        return imported

    monkeypatch.setattr(foreign_folder, "read_import", damage)
    with pytest.raises(ModelError, check=has_code("foreign_folder_differs")):
        package.load(original)
    assert not cache.exists()


def test_without_transformers_it_is_not_compared(original: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(foreign_folder, "find_missing_system", lambda imported: "transformers")
    _, messages = load(original)
    assert "not compared with the original, because transformers is not installed" in messages[0]


def test_a_model_of_marian_is_loaded_from_its_folder_and_its_zip_file(cache: Path, tmp_path: Path) -> None:
    path = write_zip("tied_all", tmp_path / "m.zip")
    expected = load_marian("tied_all").build_text_model().generate([">>deu<< the old cat"])[0]
    for each in (path, FOLDER / "tied_all"):
        model, messages = load(each)
        assert messages[0].startswith(f"{each} is a native Marian model, imported in memory")
        assert model.generate([">>deu<< the old cat"])[0].ids == expected.ids


def test_remarks_of_the_import_are_warnings(cache: Path, tmp_path: Path) -> None:
    folder = make_folder("mvp", tmp_path / "m")
    path = folder / "generation_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text("utf-8")), "encoder_no_repeat_ngram_size": 3}), "utf-8")
    _, messages = load(folder)
    assert messages[1:] == ["not imported: encoder_no_repeat_ngram_size 3"]


def test_other_folders_are_refused_as_before(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "led"}', "utf-8")
    with pytest.raises(ModelError, check=has_code("model_type_refused", kind="led")):
        package.load(tmp_path)


def test_commands_read_the_folder(attendo: Command, original: Path, cache: Path, tmp_path: Path) -> None:
    with pytest.warns(ForeignFolderWarning, match="is a pegasus model, imported in memory"):
        result = attendo("generate", original, "--max-length", "5", given="\n".join(TEXTS).encode())
    assert result.code == 0, result.errors
    assert len(result.output.splitlines()) == 3
    files = [_write(tmp_path / name, TEXTS) for name in ("s", "t")]
    with pytest.warns(ForeignFolderWarning):
        result = attendo("score", original, "--source", files[0], "--target", files[1])
    assert result.code == 0, result.errors + result.output


def test_heads_and_describe_read_the_folder(attendo: Command, original: Path, cache: Path, tmp_path: Path) -> None:
    with pytest.warns(ForeignFolderWarning, match="is a pegasus model, imported in memory"):
        result = attendo("describe", original)
    assert result.code == 0, result.errors
    assert f"{from_folder(original).network.config.target_vocab_size}" in result.output
    with pytest.warns(ForeignFolderWarning):
        result = attendo("heads", original, _write(tmp_path / "s", TEXTS))
    assert result.code == 0, result.errors
    assert "encoder.0.self" in result.output
    result = attendo("heads", original, _write(tmp_path / "s", TEXTS), "--store")
    assert result.code == 4
    assert result.error == message("transformers_model_not_imported", folder=original, kind="pegasus")


@IGNORED
def test_describe_reads_a_zip_file_in_the_current_folder(
    attendo: Command, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_zip("tied_all", tmp_path / "m.zip")
    monkeypatch.chdir(tmp_path)
    result = attendo("describe", "m.zip")
    assert result.code == 0, result.errors


@IGNORED
def test_finetune_starts_from_the_folder_and_continues(
    attendo: Command, original: Path, cache: Path, tmp_path: Path
) -> None:
    files = [_write(tmp_path / name, some_lines(seed, 60)) for seed, name in enumerate("st")]
    settings = ["--set", "data.max_bad_ratio=1", "--set", "train.steps=2", "--set", "train.batch_tokens=64"]
    result = attendo(
        *("finetune", original, "--source", files[0], "--target", files[1]), *("--out", tmp_path / "run", *settings)
    )
    assert result.code == 0, result.errors
    model, start = package.load(tmp_path / "run" / "model"), from_folder(original)
    assert model.source_tokenizer == start.source_tokenizer
    assert model.network.config == start.network.config
    result = attendo("train", "--resume", tmp_path / "run", "--override", "--set", "train.steps=3")
    assert result.code == 0, result.errors


@IGNORED
def test_distill_translates_with_the_folder_and_notices_a_change(
    attendo: Command, original: Path, cache: Path, tmp_path: Path
) -> None:
    source, folder = _write(tmp_path / "s", TEXTS), tmp_path / "teacher"
    shutil.copytree(original, folder)
    words = ["distill", folder, "--source", source, "--target", source, "--out", tmp_path / "d", "--folds", "1"]
    result = attendo(*words)
    assert result.code == 0, result.errors
    expected = [each.text for each in from_folder(folder).build_text_model().generate(TEXTS, beam=5)]
    assert (tmp_path / "d" / "target.txt").read_text("utf-8").splitlines() == expected
    path = folder / "generation_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text("utf-8")), "num_beams": 2}), "utf-8")
    result = attendo(*words)
    assert result.code == 2
    assert "model generation_config.json" in result.error


@pytest.mark.slow
def test_verify_reads_the_folder(attendo: Command, original: Path, cache: Path, tmp_path: Path) -> None:
    with pytest.warns(ForeignFolderWarning):
        result = attendo("verify", original, "--source", _write(tmp_path / "s", TEXTS))
    assert result.code == 0, result.errors + result.output


def _write(path: Path, lines: list[str]) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines), "utf-8")
    return path
