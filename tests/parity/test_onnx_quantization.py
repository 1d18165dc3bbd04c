"""The int8 loss of each product, and exports that keep the most sensitive products in float32."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from error_codes import has_code
from export_models import random_sentences, word_model

pytest.importorskip("onnx", reason="onnx is not installed")
pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")

from attendo.data.batch import Example, collate
from attendo.interop import export as exporting
from attendo.interop.compared_systems import OnnxSystem, TorchSystem
from attendo.interop.export import ModelMismatchError, export
from attendo.interop.onnx.folder import to_onnx
from attendo.interop.onnx.quantization import activation_ranges, quantization_sensitivity, random_examples
from attendo.interop.onnx.session import OnnxNetwork
from attendo.model.transformer import Transformer

MakeNetwork = Callable[..., Transformer]


def log_probs(network: Transformer | OnnxNetwork, examples: list[Example]) -> torch.Tensor:
    """Token by token, as in generation."""
    batch = collate(examples)
    state, columns = network.start(network.encode(batch.source_ids, batch.source_mask)), []
    for ids in batch.target_ids.split(1, dim=1):
        logits, state = network.step(ids, state)
        columns.append(logits.log_softmax(-1))
    return torch.cat(columns, dim=1)


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [{}, {"activation": "gelu", "norm": "post", "positions": "rotary"}, {"positions": "relative", "output_scale": 0.5}],
    ids=str,
)
def test_sensitivity_is_the_loss_with_one_product_in_int8(small_network: MakeNetwork, changes: dict[str, Any]) -> None:
    network = small_network(**changes).eval()
    examples = random_examples(network)[:8]
    ranges = activation_ranges(network, examples)
    found = quantization_sensitivity(network, ranges, examples)
    assert found.keys() == ranges.keys()
    with torch.no_grad():
        exact = log_probs(network, examples)
        for site in ranges:
            quantized = log_probs(OnnxNetwork.from_network(network, {site: ranges[site]}, threads=1), examples)
            assert found[site] == pytest.approx(float((exact.exp() * (exact - quantized)).sum()), rel=0.1, abs=1e-5)
    assert max(found.values()) > 5 * min(found.values()) > 0  # the products differ


@pytest.mark.slow
def test_the_most_sensitive_products_stay_in_float32(tmp_path: Path) -> None:
    model = word_model(d_model=64, d_ff=128)
    differences = []
    for share in (0.0, 0.2, 1.0):
        count = to_onnx(model, tmp_path / str(share), "int8", float32_share=share)
        facts = json.loads((tmp_path / str(share) / "manifest.json").read_text())["facts"]
        assert facts.get("exact_products", 0) == count
        systems = TorchSystem(model.network, None), OnnxSystem(tmp_path / str(share))
        ours, theirs = (system.logits([4, 5, 6], [5, 4]) for system in systems)
        assert theirs is not None
        differences.append(float((ours - theirs).abs().mean()))
    assert differences[0] > differences[1] > differences[2]
    assert differences[2] < 1e-5  # no product is quantized


@pytest.mark.slow
def test_int8_keeps_products_in_float32_to_meet_the_bounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = word_model(d_model=64, d_ff=128)
    sentences = random_sentences(model, 6)
    wide = replace(exporting.BOUNDS["int8"], same_tokens=0.0, mean_difference=1.0, agreement=0.0)
    monkeypatch.setitem(exporting.BOUNDS, "int8", wide)
    plain = export(model, tmp_path / "plain", "onnx", "int8", sentences)
    assert plain.mean_difference is not None
    assert not any(note.code == "products_kept_in_float32" for note in plain.notes)

    monkeypatch.setitem(exporting.BOUNDS, "int8", replace(wide, mean_difference=0.9 * plain.mean_difference))
    better = export(model, tmp_path / "better", "onnx", "int8", sentences)
    assert better.mean_difference is not None
    assert better.mean_difference <= 0.9 * plain.mean_difference
    notes = {note.code: note.values for note in better.notes}
    assert notes["products_kept_in_float32"]["count"] > 0
    assert has_code("logit_difference_too_large", kind="mean")(notes["all_int8_failed"]["reasons"].errors[0])

    monkeypatch.setitem(exporting.BOUNDS, "int8", replace(wide, mean_difference=1e-9))
    with pytest.raises(ModelMismatchError, check=has_code("converted_model_differs")):
        export(model, tmp_path / "worse", "onnx", "int8", sentences)
    assert not (tmp_path / "worse").exists()
