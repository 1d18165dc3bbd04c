"""Commands that generate or score, with an exported folder instead of a model folder."""

import json
from pathlib import Path

import pytest
from error_codes import fragment, message
from tiny import SOURCES, Command, tiny_model, write_pairs

from attendo.interop.certify import collect_sentences
from attendo.interop.export import export
from attendo.text_model import load

for needed in ("ctranslate2", "onnx", "onnxruntime"):
    pytest.importorskip(needed)

LINES = "\n".join([*SOURCES, "", SOURCES[0]]).encode()


@pytest.fixture(scope="module")
def native_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ours") / "model"
    tiny_model().save(folder)
    return folder


@pytest.fixture(scope="module", params=["onnx", "ctranslate2"])
def folder(native_folder: Path, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    out = tmp_path_factory.mktemp("exported") / str(request.param)
    model = load(native_folder, "cpu")
    export(model, out, request.param, sentences=collect_sentences(model, min_count=4))
    return out


@pytest.mark.short(1)
def test_generate_matches_the_native_model(attendo: Command, native_folder: Path, folder: Path) -> None:
    results = []
    for path, *options in ([native_folder], [folder], [folder, "--engine", folder.name]):
        results.append(attendo("generate", path, "--json", "--max-length", "4", *options, given=LINES))
    assert [each.code for each in results] == [0, 0, 0]
    texts = [[json.loads(line)["pieces"] for line in each.output.splitlines()] for each in results]
    assert texts[1] == texts[0]
    assert texts[2] == texts[0]
    assert results[1].errors == results[0].errors


def test_score_and_evaluate_match_the_native_model(
    attendo: Command, native_folder: Path, folder: Path, tmp_path: Path
) -> None:
    source, target = write_pairs(tmp_path, times=1)
    native, exported = (
        attendo("score", path, "--source", source, "--target", target) for path in (native_folder, folder)
    )
    numbers = [[float(line) for line in each.output.splitlines()] for each in (native, exported)]
    assert numbers[1] == pytest.approx(numbers[0], abs=1e-3)
    files = ["--source", source, "--reference", target]
    native, exported = (attendo("evaluate", path, *files) for path in (native_folder, folder))
    assert (exported.code, exported.output) == (0, native.output)


@pytest.mark.slow
def test_verify_compares_batch_sizes(attendo: Command, folder: Path, tmp_path: Path) -> None:
    source, _ = write_pairs(tmp_path, times=3)
    done = attendo("verify", folder, "--source", source, "--json")
    assert done.code == 0
    found = [json.loads(line) for line in done.output.splitlines()]
    paths = [f"{folder.name}, batches of {size}" for size in (1, 7)]
    searches = ["greedy", "beam 4"] + (["samples"] if folder.name == "onnx" else [])
    compared = [(path, what) for what in searches for path in paths]
    assert [(each["path"], each["what"]) for each in found] == [*compared, ("the score of an answer", "greedy")]
    shown = attendo("verify", folder, "--source", source)
    assert "answers beside those of all sentences together" in shown.output
    assert "all paths agree" in shown.output
    failed = attendo("verify", folder)
    assert failed.code == 3
    assert failed.error == message("verify_without_sentences", path=folder)


@pytest.mark.parametrize("command", ["describe", "finetune", "bench", "export"])
def test_commands_that_need_the_network_raise_an_error(
    attendo: Command, folder: Path, tmp_path: Path, command: str
) -> None:
    source, target = write_pairs(tmp_path)
    given = {
        "describe": [folder],
        "finetune": [folder, "--source", source, "--target", target, "--out", tmp_path / "run"],
        "bench": ["generate", folder],
        "export": [folder, tmp_path / "again", "--to", "hf"],
    }
    failed = attendo(command, *given[command])
    assert failed.code in (2, 4)
    if command in ("describe", "finetune"):
        assert failed.error == message("folder_is_exported_model", folder=folder, engine=folder.name)
    else:
        assert failed.error == message("exported_folder_without_network", folder=folder, runtime=folder.name)


def test_an_unsupported_engine_option_is_a_usage_error(attendo: Command, folder: Path) -> None:
    failed = attendo("generate", folder, "--alignments", given=LINES)
    assert failed.code == 2
    reason = message("engine_option_alternatives", options="--alignments", engines="textbook, cached, fast")
    assert failed.error == message("engine_option_unsupported", engine=folder.name, reasons=reason)


def test_an_external_engine_rejects_a_model_folder(attendo: Command, model_folder: Path) -> None:
    failed = attendo("generate", model_folder, "--engine", "ctranslate2", given=LINES)
    assert failed.code == 2
    assert failed.error.endswith(fragment("model_folder_not_exported", engine="ctranslate2"))
