"""The speed comparison of families runs networks with the options of each, and the systems agree."""

import json
import sys

import pytest

from benchmarks import families_speed


@pytest.mark.parametrize("family", ["flan", "nllb"])
def test_a_family_is_compared_with_transformers(
    family: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("transformers")
    sizes = {"d_model": 32, "num_heads": 2, "d_ff": 24} | ({"d_key": 16, "d_value": 16} if family == "flan" else {})
    monkeypatch.setitem(families_speed.FAMILIES, family, families_speed.FAMILIES[family] | sizes)
    options = ["--layers", "1", "--vocabulary", "50", "--tokens", "4", "--batch", "2", "--beam", "1", "--rounds", "1"]
    monkeypatch.setattr(
        sys, "argv", ["", "--families", family, "--rivals", "transformers", "--precision", "fp32", *options]
    )
    families_speed.main()
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()[1:]]
    assert [(row["system"], row["same"]) for row in rows] == [("attendo fp32", None), ("transformers fp32", 1.0)]
