"""Exports to ONNX by `export`."""

from pathlib import Path

import pytest
from error_codes import has_code
from export_models import random_sentences, word_model

from attendo.errors import UsageError
from attendo.interop.export import export

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_the_certificate_passes_and_is_in_the_folder(tmp_path: Path, norm: str) -> None:
    model = word_model(norm=norm)
    certificate = export(model, tmp_path / "out", "onnx", "float32", random_sentences(model, 6))
    assert certificate.mean_difference is not None
    assert certificate.mean_difference < 1e-5
    assert [each.same_answers for each in certificate.searches] == [6, 6]
    assert {"encoder.onnx", "step.onnx", "certificate.json"} <= {path.name for path in (tmp_path / "out").iterdir()}


def test_float16_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(UsageError, check=has_code("onnx_float16_unsupported")):
        export(word_model(), tmp_path / "out", "onnx", "float16")
    assert list(tmp_path.iterdir()) == []
