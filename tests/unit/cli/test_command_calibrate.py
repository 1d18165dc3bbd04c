"""`attendo calibrate` and `attendo generate --check`."""

import json
from pathlib import Path

import pytest
from error_codes import fragment
from tiny import SOURCES, Command, write_pairs

from attendo.demo_task import BuiltinTask
from attendo.model_folder import CALIBRATION
from attendo.text_model import load


@pytest.fixture
def files(tmp_path: Path) -> list[str | Path]:
    pairs = BuiltinTask().heldout(210)
    source, reference = tmp_path / "valid.en", tmp_path / "valid.zh"
    source.write_text("".join(f"{pair.source}\n" for pair in pairs), "utf-8")
    reference.write_text("".join(f"{pair.target}\n" for pair in pairs), "utf-8")
    return ["--source", source, "--reference", reference]


def test_limits_are_stored_in_the_model_folder(attendo: Command, model_folder: Path, files: list[str | Path]) -> None:
    before = {path.name: path.read_bytes() for path in model_folder.iterdir()}
    done = attendo("calibrate", model_folder, *files)
    assert done.code == 0
    assert "wrong language" in done.output
    assert str(model_folder / CALIBRATION) in done.errors
    after = {path.name: path.read_bytes() for path in model_folder.iterdir()}
    assert {name for name in after if before.get(name) != after[name]} == {CALIBRATION, "manifest.json"}
    limits = load(model_folder, "cpu").fault_limits
    assert limits.scores
    found = json.loads(attendo("calibrate", model_folder, *files, "--json").output)
    assert found["pairs"] == limits.pairs
    assert found["limits"]["loop"] == pytest.approx(limits.loop)
    assert found["limits"]["low_probability"] == pytest.approx(limits.least_z)


def test_few_pairs_are_rejected(attendo: Command, model_folder: Path, tmp_path: Path) -> None:
    source, target = write_pairs(tmp_path, times=2)
    done = attendo("calibrate", model_folder, "--source", source, "--reference", target)
    assert done.code == 2
    assert fragment("too_few_calibration_pairs", count=8, least=200) in done.error


def test_faults_are_reported_beside_the_output(attendo: Command, model_folder: Path) -> None:
    texts = "".join(f"{text}\n" for text in SOURCES).encode()
    plain = attendo("generate", model_folder, given=texts)
    checked = attendo("generate", model_folder, "--check", "report", given=texts)
    assert (checked.code, checked.output) == (0, plain.output)
    assert set(plain.errors.splitlines()) <= set(checked.errors.splitlines())
    rows = attendo("generate", model_folder, "--check", "report", "--json", given=texts).output.splitlines()
    faults = [each for row in rows for each in json.loads(row)["faults"]]
    assert faults
    for each in faults:
        assert each.keys() == {"kind", "value", "limit", "where", "evidence"}
        if each["kind"] != "truncated":
            assert each["evidence"] in checked.errors


def test_repairs_are_reported(attendo: Command, model_folder: Path) -> None:
    texts = "".join(f"{text}\n" for text in SOURCES).encode()
    done = attendo("generate", model_folder, "--check", "repair", "--json", given=texts)
    repairs = [each for row in done.output.splitlines() for each in json.loads(row).get("repairs", [])]
    assert repairs
    assert {each["by"] for each in repairs} <= {"rules", "candidates", "split"}
    assert done.errors.count("generated again") == sum(each["kept"] for each in repairs)


def test_faults_are_named_in_chinese(attendo: Command, model_folder: Path) -> None:
    texts = "".join(f"{text}\n" for text in SOURCES).encode()
    done = attendo("generate", model_folder, "--check", "report", "--lang", "zh", given=texts)
    assert done.code == 0
    assert "循环" in done.errors or "长度异常" in done.errors
