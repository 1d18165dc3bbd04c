"""Models as Firefox has them: Marian's binary weight files, integers, compressed files and no decoder.yml."""

import gzip
import struct
from pathlib import Path
from typing import Any

import pytest
import torch
from marian_folders import FOLDER
from typer.testing import CliRunner

from attendo.cli.main import app
from attendo.errors import ModelError
from attendo.interop.marian.imported import ImportedMarian
from attendo.interop.marian.read_model import is_marian, read_marian

STUDENT = FOLDER / "student"
SOURCES = ["the old cat sees a dog", ">>rev<< a red house", "the child walks home today"]


def make_firefox_folder(folder: Path, weights: str, compressed: bool = True, two_vocabularies: bool = False) -> Path:
    folder.mkdir(exist_ok=True)
    vocabularies = ("srcvocab.ende.spm", "trgvocab.ende.spm") if two_vocabularies else ("vocab.ende.spm",)
    model = (STUDENT / weights).read_bytes()
    contents = {"model.ende.intgemm.alphas.bin": model, "lex.50.50.ende.s2t.bin": b"a shortlist"}
    contents |= dict.fromkeys(vocabularies, (STUDENT / "joint.spm").read_bytes())
    for name, content in contents.items():
        if compressed:
            (folder / f"{name}.gz").write_bytes(gzip.compress(content))
        else:
            (folder / name).write_bytes(content)
    return folder


def weights(imported: ImportedMarian) -> dict[str, torch.Tensor]:
    return {name: each.detach() for name, each in imported.network.named_parameters()}


@pytest.mark.parametrize("compressed", [True, False])
def test_float32_weights_are_those_of_the_npz_file(tmp_path: Path, compressed: bool) -> None:
    folder = make_firefox_folder(tmp_path, "float32.bin", compressed)
    assert is_marian(folder)
    found, expected = weights(read_marian(folder)), weights(read_marian(STUDENT))
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in expected)


@pytest.mark.parametrize(("name", "bits"), [("intgemm8.bin", 8), ("intgemm16.bin", 16)])
def test_integers_differ_by_half_a_step(tmp_path: Path, name: str, bits: int) -> None:
    found = weights(read_marian(make_firefox_folder(tmp_path, name)))
    differences = []
    for key, expected in weights(read_marian(STUDENT)).items():
        error = float((found[key] - expected).abs().max())
        if key.endswith("weight") and "normalise" not in key and "tokens" not in key:
            parts = (
                expected.chunk(3) if "project" in key else (expected,)
            )  # queries, keys and values are three matrices
            # intgemm8 clips at the largest number. intgemm16 multiplies by 1024.
            step = max(float(each.abs().max()) for each in parts) / 127 if bits == 8 else 1 / 1024
            assert error <= 0.501 * step
            differences.append(error)
        else:
            assert error == 0
    assert min(differences) > 0


def test_a_folder_of_firefox_translations_has_its_decoding(tmp_path: Path) -> None:
    imported = read_marian(make_firefox_folder(tmp_path / "one", "intgemm8.bin"))
    assert imported.network.config.autoregression == "ssru"
    model = imported.build_text_model()
    assert (model.generation.beam, model.generation.max_length_factor, model.generation.allow_unk) == (1, 2.0, False)
    two = read_marian(make_firefox_folder(tmp_path / "two", "intgemm8.bin", two_vocabularies=True)).build_text_model()
    texts = [each.text for each in model.generate(SOURCES)]
    assert texts == [each.text for each in two.generate(SOURCES)]
    assert len(set(texts)) == 3


def test_translations_of_8_bits_are_nearly_those_of_float32(tmp_path: Path) -> None:
    models = [
        read_marian(make_firefox_folder(tmp_path / name, f"{name}.bin")).build_text_model()
        for name in ("float32", "intgemm8", "intgemm16")
    ]
    first, *others = ([each.score for each in model.generate(SOURCES)] for model in models)
    assert all(scores == pytest.approx(first, abs=0.05) and scores != first for scores in others)


def test_the_command_line_imports_and_translates(tmp_path: Path) -> None:
    folder, out = make_firefox_folder(tmp_path / "model", "intgemm8.bin"), tmp_path / "out"
    imported = CliRunner().invoke(app, ["import", str(folder), str(out), "--no-proof"])
    assert imported.exit_code == 0, imported.stderr
    found = CliRunner().invoke(app, ["generate", str(out)], input="the old cat sees a dog\n")
    assert found.exit_code == 0
    assert found.stdout.strip() == read_marian(folder).build_text_model().generate(SOURCES[:1])[0].text


def change(content: bytes, offset: int, form: str, value: int) -> bytes:
    return content[:offset] + struct.pack(form, value) + content[offset + struct.calcsize(form) :]


FIRST = 16  # offset of the first tensor's fields


@pytest.mark.parametrize(
    ("make", "code", "reason"),
    [
        (lambda each: change(each, 0, "<Q", 2), "bin_file_invalid", "bin_encrypted"),
        (lambda each: change(each, 0, "<Q", 7), "bin_file_invalid", "bin_not_marian"),
        (lambda each: change(each, 8, "<Q", 2**60), "bin_file_invalid", "bin_tensor_count"),
        (lambda each: change(each, FIRST, "<Q", 2**60), "bin_file_invalid", "bin_not_marian"),
        (lambda each: change(each, FIRST + 16, "<Q", 2**60), "bin_file_invalid", "bin_not_marian"),
        (lambda each: change(each, FIRST + 24, "<Q", 2**60), "weight_tensor_invalid", "tensor_size_differs"),
        (lambda each: change(each, FIRST + 8, "<Q", 0x12001), "weight_tensor_invalid", "bin_type_unsupported"),
        (lambda each: change(each, FIRST + 8, "<Q", 0x999), "weight_tensor_invalid", "bin_type_unsupported"),
    ],
)
def test_damaged_headers_are_named(tmp_path: Path, make: Any, code: str, reason: str) -> None:
    folder = make_firefox_folder(tmp_path, "intgemm8.bin", compressed=False)
    path = folder / "model.ende.intgemm.alphas.bin"
    path.write_bytes(make(path.read_bytes()))
    with pytest.raises(ModelError) as raised:
        read_marian(folder)
    assert (raised.value.code, raised.value.values["reason"].code) == (code, reason)
    assert str(path) in str(raised.value)


@pytest.mark.parametrize("length", [0, 7, 40, 3000, 20_000])
@pytest.mark.parametrize("compressed", [True, False])
def test_cut_files_are_named(tmp_path: Path, length: int, compressed: bool) -> None:
    folder = make_firefox_folder(tmp_path, "intgemm8.bin", compressed)
    path = folder / f"model.ende.intgemm.alphas.bin{'.gz' * compressed}"
    path.write_bytes(path.read_bytes()[: length // (4 if compressed else 1)])
    with pytest.raises(ModelError) as raised:
        read_marian(folder)
    assert raised.value.code == "model_file_unreadable"
    assert path.name in str(raised.value)


def test_a_compressed_vocabulary_that_grows_is_refused(tmp_path: Path) -> None:
    folder = make_firefox_folder(tmp_path, "intgemm8.bin")
    (folder / "vocab.ende.spm.gz").write_bytes(gzip.compress(bytes(70 * 1024**2), 9))
    with pytest.raises(ModelError) as raised:
        read_marian(folder)
    assert raised.value.code == "model_file_too_large"
