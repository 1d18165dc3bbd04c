"""int8 products are exact on every processor, also on those that add pairs of them in 16 bits."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from error_codes import has_code
from export_models import word_model
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("onnx", reason="onnx is not installed")
pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")

from onnxruntime import InferenceSession

from attendo.errors import ModelError
from attendo.interop.exported_files import MANIFEST_FORMAT, MANIFEST_VERSION
from attendo.interop.onnx import folder
from attendo.interop.onnx.folder import open_onnx, to_onnx
from attendo.interop.onnx.graph_builder import GraphBuilder, int8_scales
from attendo.model_folder import write_manifest


@given(
    rows=st.integers(1, 8),
    columns=st.integers(1, 33),
    seed=st.integers(0, 2**31),
    alike=st.booleans(),
    size=st.sampled_from([1e-20, 1.0, 1e20]),
)
def test_pairs_of_products_fit_into_16_bits(rows: int, columns: int, seed: int, alike: bool, size: float) -> None:
    matrix = torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed)) * size
    if alike:  # one sign and nearly one size, so every pair is large
        matrix = size + 1e-3 * matrix
    quantized = (matrix / int8_scales(matrix)).round()
    assert quantized.abs().max() <= 127
    pairs = torch.nn.functional.pad(quantized, (0, columns % 2)).unflatten(1, (-1, 2)).sum(-1)
    assert 255 * pairs.abs().max() < 2**15
    least = 63 if alike or columns == 1 else 43  # pairs limit how many of the 127 steps are used
    assert quantized.abs().amax(1).min() >= least


def test_pairs_between_two_steps_are_not_both_rounded_up() -> None:
    """The largest pair of each row: both values end in .5, or as near to it as float32 allows."""
    larger = torch.arange(64, 128, dtype=torch.float64) + 0.5
    scales = torch.rand(64, 2_000, generator=torch.Generator().manual_seed(1), dtype=torch.float64) + 0.01
    pairs = (torch.stack((128 - larger, larger), dim=1)[:, None] * scales[..., None]).float().flatten(0, 1)
    quantized = (pairs / int8_scales(pairs)).round()
    assert quantized.abs().max() <= 127
    assert 255 * quantized.sum(1).max() < 2**15


def test_a_zero_matrix_stays_zero() -> None:
    assert not (torch.zeros(2, 4) / int8_scales(torch.zeros(2, 4))).any()


@pytest.mark.parametrize("never_negative", [False, True])
@pytest.mark.parametrize("kind", ["alike", "alternating", "one in two", "two in four", "random"])
def test_the_runtime_is_exact_for_the_largest_values(kind: str, never_negative: bool) -> None:
    """Alternating signs and every second weight may use all of int8. Only neighbours of one sign may not."""
    patterns = {"alike": [1, 1, 1, 1], "alternating": [1, -1, 1, -1], "one in two": [1, 0, 1, 0]}
    patterns |= {"two in four": [0, 1, 1, 0], "random": None}
    pattern, width = patterns[kind], 512
    random = torch.randn(24, width, generator=torch.Generator().manual_seed(1))
    weight = random if pattern is None else torch.tensor(pattern, dtype=torch.float32).repeat(24, width // 4)
    graph = GraphBuilder({"x": 1.0})
    product = graph.linear(graph.input("x", "float", ["M", width]), "x", weight, None, never_negative)
    graph.output("y", "float", ["M", 24], product)
    session = InferenceSession(graph.model().SerializeToString(), providers=["CPUExecutionProvider"])
    step = int8_scales(weight)
    if kind in ("alternating", "one in two", "two in four"):
        assert float(step.max()) == pytest.approx(1 / 127)
    for x in (torch.ones(16, width), -torch.ones(16, width), torch.rand(16, width, generator=torch.Generator())):
        most = 255 if never_negative else 127
        quantized_x = (x.clamp(min=0) if never_negative else x).mul(most).round() / most
        exact = quantized_x.double() @ ((weight / step).round() * step).T.double()
        (found,) = session.run(None, {"x": x.numpy()})
        np.testing.assert_allclose(found, exact.numpy(), rtol=1e-5, atol=1e-3)


def test_int8_of_an_earlier_version_is_rejected_if_it_overflows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    to_onnx(word_model(), tmp_path / "model", "int8")
    manifest = tmp_path / "model" / "manifest.json"
    facts = json.loads(manifest.read_text("utf-8"))["facts"]
    manifest.unlink()
    assert facts.pop("pairs_fit_16_bits") is True
    write_manifest(tmp_path / "model", MANIFEST_FORMAT, MANIFEST_VERSION, facts)
    for overflows in (False, True):
        monkeypatch.setattr(folder, "int8_saturates", lambda value=overflows: value)
        if overflows:
            with pytest.raises(ModelError, check=has_code("onnx_int8_overflow")):
                open_onnx(tmp_path / "model")
        else:
            assert open_onnx(tmp_path / "model").precision == "int8"
