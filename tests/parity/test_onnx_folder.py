"""A folder for ONNX Runtime is complete, checked when it is loaded, and certified equal to the model."""

import json
import sys
from pathlib import Path

import pytest
import torch
from error_codes import has_code
from tiny import SOURCES, TARGETS, tiny_model

from attendo.data.batch import Example
from attendo.decode.config import GenerationConfig
from attendo.decode.engines import CachedEngine
from attendo.decode.requests import DecodeRequest
from attendo.errors import ModelError, UsageError
from attendo.interop.certificate import Bounds
from attendo.interop.certify import certify, random_sources
from attendo.interop.compared_systems import OnnxSystem, TorchSystem
from attendo.interop.onnx import folder
from attendo.interop.onnx.folder import open_onnx, to_onnx
from attendo.model_folder import StoredModel
from attendo.text_model import TextModel
from attendo.text_model.generation import make_rules, make_strategy

pytest.importorskip("onnx", reason="onnx is not installed")
pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")


@pytest.mark.parametrize("joint", [False, True])
def test_a_folder_has_all_files(tmp_path: Path, joint: bool) -> None:
    model = tiny_model(joint=joint)
    to_onnx(model, tmp_path / "out")
    tokenizers = ["joint"] if joint else ["source", "target"]
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert {"encoder.onnx", "step.onnx", "config.json", "generation.json", "manifest.json"} <= names
    assert {f"{name}.tokenizer.json" for name in tokenizers} <= names
    opened = open_onnx(tmp_path / "out")
    assert opened.precision == "fp32"
    assert opened.network.config == model.network.config
    assert opened.source_tokenizer == model.source_tokenizer
    assert opened.target_tokenizer == model.target_tokenizer
    assert opened.generation == {"max_length_extra": 7}


@pytest.mark.slow
def test_fp32_is_certified(tmp_path: Path) -> None:
    model = tiny_model()
    to_onnx(model, tmp_path / "out", "fp32")
    certificate = certify(
        TorchSystem(model.network, None), OnnxSystem(tmp_path / "out"), random_sources(9, 20), Bounds(same_tokens=1.0)
    )
    assert certificate.reasons == ()
    assert certificate.largest_difference is not None
    assert certificate.largest_difference < 1e-4
    assert all(each.score_difference is not None and each.score_difference < 1e-3 for each in certificate.searches)


def test_int8_is_certified_and_smaller(tmp_path: Path) -> None:
    model = tiny_model(d_model=64, d_ff=128)
    for precision in ("fp32", "int8"):
        to_onnx(model, tmp_path / precision, precision)  # type: ignore[arg-type]
    system = OnnxSystem(tmp_path / "int8")
    assert system.name.endswith("in int8")
    bounds = Bounds(same_tokens=0.6, mean_difference=0.1)
    assert certify(TorchSystem(model.network, None), system, random_sources(9, 10), bounds).reasons == ()
    ours, theirs = TorchSystem(model.network, None).logits([4, 5], [6]), system.logits([4, 5], [6])
    assert 0 < (ours - theirs).abs().max() < 0.1 * ours.abs().max()
    assert (tmp_path / "int8" / "step.onnx").stat().st_size < 0.6 * (tmp_path / "fp32" / "step.onnx").stat().st_size


def test_int8_is_calibrated_on_the_sample_or_the_given_pairs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calibrations: list[list[Example]] = []
    monkeypatch.setattr(
        "attendo.interop.onnx.quantization.activation_ranges",
        lambda network, examples: calibrations.append(list(examples)),
    )
    model = tiny_model()
    pairs = list(zip(SOURCES, TARGETS, strict=True))
    stored = StoredModel(model.network, model.source_tokenizer, model.target_tokenizer, sample=pairs)
    to_onnx(TextModel(stored), tmp_path / "sample", "int8")
    to_onnx(TextModel(stored), tmp_path / "given", "int8", [Example([5], [6])])
    to_onnx(model, tmp_path / "neither", "int8")
    assert [each.source for each in calibrations[0]] == model.source_tokenizer.encode_many(SOURCES)
    assert [each.target for each in calibrations[0]] == model.target_tokenizer.encode_many(TARGETS)
    assert calibrations[1] == [Example([5], [6])]
    assert len(calibrations[2]) == 64


def test_weights_of_a_large_graph_are_a_separate_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder, "_MAX_FILE_BYTES", 1000)
    model = tiny_model()
    to_onnx(model, tmp_path / "out")
    assert (tmp_path / "out" / "step.weights").stat().st_size > 1000
    assert "step.weights" in json.loads((tmp_path / "out" / "manifest.json").read_text())["files"]
    ours, theirs = (
        TorchSystem(model.network, None).logits([4, 5], [6]),
        OnnxSystem(tmp_path / "out").logits([4, 5], [6]),
    )
    torch.testing.assert_close(theirs, ours, atol=1e-4, rtol=0.0)


def test_our_engine_runs_an_onnx_network(tmp_path: Path) -> None:
    model = tiny_model()
    to_onnx(model, tmp_path / "out")
    network, config = open_onnx(tmp_path / "out").network, GenerationConfig(beam=3)
    requests = [
        DecodeRequest(0, (4, 5), 6),
        DecodeRequest(1, (6,), 0),
        DecodeRequest(2, (), 3),
        DecodeRequest(3, (5, 4, 6), 40),
    ]
    answers = [
        {
            request.request_id: (found.ids.tolist(), found.cut.tolist())
            for some in CachedEngine(each, 64).generate(requests, make_strategy(config, 1), make_rules(config))
            for request, found in some.split()
        }
        for each in (model.network, network)
    ]
    assert answers[0] == answers[1]
    assert list(CachedEngine(network, 64).generate([], make_strategy(config, 1), make_rules(config))) == []


def test_a_folder_that_is_not_empty_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(UsageError, check=has_code("output_folder_not_empty")):
        to_onnx(tiny_model(), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_a_damaged_folder_is_rejected(tmp_path: Path) -> None:
    to_onnx(tiny_model(), tmp_path / "out")
    graph = tmp_path / "out" / "step.onnx"
    graph.write_bytes(graph.read_bytes()[:-1] + b"x")
    with pytest.raises(ModelError, check=has_code("file_checksum_mismatch", path=graph)):
        open_onnx(tmp_path / "out")
    graph.unlink()
    with pytest.raises(ModelError, match=r"step\.onnx", check=has_code("folder_file_missing")):
        open_onnx(tmp_path / "out")


def test_an_invalid_graph_file_is_rejected(tmp_path: Path) -> None:
    from attendo.interop.onnx.session import OnnxNetwork

    path = tmp_path / "encoder.onnx"
    path.write_bytes(b"no graph")
    with pytest.raises(ModelError, check=has_code("onnx_load_failed")):
        OnnxNetwork(path, path, tiny_model().network.config)


def test_a_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(
        UsageError, check=has_code("package_missing", purpose="an export to onnx", package="onnx", extra="export")
    ):
        to_onnx(tiny_model(), tmp_path / "out")
    assert not (tmp_path / "out").exists()
