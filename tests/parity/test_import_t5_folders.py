"""Complete T5 folders: the certificate, the answers with the defaults of the original, and the memory of an import."""

from pathlib import Path

import pytest
from foreign_t5 import T5_FOLDERS, make_t5_folder
from foreign_tokenizers import some_lines

from attendo import load
from attendo.interop import import_model as import_module
from attendo.interop.import_model import from_folder, import_model

pytest.importorskip("transformers")


@pytest.fixture
def few_sentences(monkeypatch: pytest.MonkeyPatch) -> None:
    collect = import_module.collect_sentences
    monkeypatch.setattr(
        import_module, "collect_sentences", lambda model, texts, min_count: collect(model, texts, min_count=4)
    )


@pytest.mark.usefixtures("few_sentences")
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in ("flan", "codet5") else pytest.mark.slow) for name in T5_FOLDERS]
)
def test_an_import_is_certified_on_long_pairs_too(tmp_path: Path, name: str) -> None:
    found = from_folder(make_t5_folder(name, tmp_path / "original", num_layers=1, num_decoder_layers=1))
    passed = import_model(found, tmp_path / "out", some_lines(2, 3))
    assert passed is not None
    assert passed.passed
    codes = {note.code for note in passed.notes}
    assert "long_pairs_compared" in codes
    assert codes & {"texts_have_same_ids", "texts_differ_by_sentencepiece"}
    model, texts = load(tmp_path / "out"), some_lines(1, 3)
    assert [each.ids for each in model.generate(texts, max_length=5)] == [
        each.ids for each in found.build_text_model().generate(texts, max_length=5)
    ]
