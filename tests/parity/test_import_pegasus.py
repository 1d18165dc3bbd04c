"""Pre-norm models are exported as Pegasus, and can be imported again."""

from pathlib import Path

import pytest
import torch
from error_codes import has_code
from export_models import random_sentences, random_texts, subword_model
from foreign_models import assert_passed, certificate

from attendo.errors import ModelError
from attendo.interop.export import export
from attendo.interop.import_model import from_folder

pytest.importorskip("transformers")


@pytest.mark.slow
@pytest.mark.parametrize("tie", ["none", "all"])
def test_an_exported_model_is_imported_again(tmp_path: Path, tie: str) -> None:
    model = subword_model(norm="pre", position_layout="halves", tie=tie)
    export(model, tmp_path / "exported", "hf", sentences=random_sentences(model))
    found = from_folder(tmp_path / "exported")
    assert found.network.config.norm == "pre"
    assert not any(note.code == "setting_not_imported" for note in found.notes)
    for name, weight in model.network.state_dict().items():
        assert torch.equal(found.network.state_dict()[name], weight), name
    texts = [*random_texts(12), "größer  ﬁ 猫", "unbekannt: ✗"]
    ours = model.generate(texts, preset="hf", beam=2, max_length=9)
    again = found.build_text_model().generate(texts, preset="hf", beam=2, max_length=9)
    assert [each.ids for each in again] == [each.ids for each in ours]
    assert [each.text for each in again] == [each.text for each in ours]
    assert_passed(certificate(found, count=20))


@pytest.mark.slow
def test_pegasus_without_vocab_json_is_rejected(tmp_path: Path) -> None:
    model = subword_model(norm="pre", position_layout="halves")
    export(model, tmp_path / "exported", "hf", sentences=random_sentences(model))
    (tmp_path / "exported" / "vocab.json").unlink()
    with pytest.raises(ModelError, check=has_code("required_file_missing", file="vocab.json", kind="pegasus")):
        from_folder(tmp_path / "exported")
