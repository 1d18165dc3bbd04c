"""Products of bytes are exact on every processor, those included that add two of them in 16 bits."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from error_codes import has_code
from exported import wordy
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
def test_no_two_neighbours_add_up_to_more_than_16_bits_hold(
    rows: int, columns: int, seed: int, alike: bool, size: float
) -> None:
    matrix = torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed)) * size
    if alike:  # of one sign and nearly one size: every pair is a large one
        matrix = size + 1e-3 * matrix
    whole = (matrix / int8_scales(matrix)).round()
    assert whole.abs().max() <= 127
    pairs = torch.nn.functional.pad(whole, (0, columns % 2)).unflatten(1, (-1, 2)).sum(-1)
    assert 255 * pairs.abs().max() < 2**15
    least = 63 if alike or columns == 1 else 43  # of 127 steps as many are used as pairs allow
    assert whole.abs().amax(1).min() >= least


def test_pairs_that_lie_between_two_steps_are_not_both_rounded_up() -> None:
    """The largest pair of each row, both halves of which end in .5 or as near to it as numbers come."""
    larger = torch.arange(64, 128, dtype=torch.float64) + 0.5
    scales = torch.rand(64, 2_000, generator=torch.Generator().manual_seed(1), dtype=torch.float64) + 0.01
    pairs = (torch.stack((128 - larger, larger), dim=1)[:, None] * scales[..., None]).float().flatten(0, 1)
    whole = (pairs / int8_scales(pairs)).round()
    assert whole.abs().max() <= 127
    assert 255 * whole.sum(1).max() < 2**15


def test_a_matrix_of_zeros_stays_one() -> None:
    assert not (torch.zeros(2, 4) / int8_scales(torch.zeros(2, 4))).any()


@pytest.mark.parametrize("never_negative", [False, True])
@pytest.mark.parametrize("kind", ["alike", "alternating", "one in two", "two in four", "random"])
def test_the_runtime_computes_what_the_bytes_say_where_all_is_as_large_as_can_be(
    kind: str, never_negative: bool
) -> None:
    """Alternating signs and every second weight may be as large as a byte: only neighbours of one sign may not."""
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
        seen = (x.clamp(min=0) if never_negative else x).mul(most).round() / most
        exact = seen.double() @ ((weight / step).round() * step).T.double()
        (found,) = session.run(None, {"x": x.numpy()})
        np.testing.assert_allclose(found, exact.numpy(), rtol=1e-5, atol=1e-3)


def test_int8_of_an_earlier_version_is_refused_where_it_would_overflow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    to_onnx(wordy(), tmp_path / "model", "int8")
    manifest = tmp_path / "model" / "manifest.json"
    facts = json.loads(manifest.read_text("utf-8"))["facts"]
    manifest.unlink()
    assert facts.pop("pairs_fit_16_bits") is True
    write_manifest(tmp_path / "model", MANIFEST_FORMAT, MANIFEST_VERSION, facts)
    for overflows in (False, True):
        monkeypatch.setattr(folder, "int8_saturates", lambda told=overflows: told)
        if overflows:
            with pytest.raises(ModelError, check=has_code("onnx_int8_overflow")):
                open_onnx(tmp_path / "model")
        else:
            assert open_onnx(tmp_path / "model").precision == "int8"
