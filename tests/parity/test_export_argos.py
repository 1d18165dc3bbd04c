"""Argos packages: laid out as Argos Translate unpacks and reads them."""

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
import torch
from error_codes import has_code
from exported import pieces, some_sentences, some_texts, wordy

from attendo.errors import ModelError, UsageError
from attendo.interop.argos import LanguagePair
from attendo.interop.export import export
from attendo.text import BOS, PAD
from attendo.text_model import TextModel

ctranslate2 = pytest.importorskip("ctranslate2")

ENGLISH_GERMAN = LanguagePair("en", "de", "English", "German")


def test_a_package_translates_the_way_argos_calls_it(tmp_path: Path) -> None:
    model, file = pieces(apart=True), tmp_path / "en_de.argosmodel"
    assert model.network.output.bias is not None
    with torch.no_grad():
        model.network.output.bias[[PAD, BOS]] = 3.0  # which Argos does not forbid
    assert _export(model, file).passed
    assert [each.name for each in tmp_path.iterdir()] == ["en_de.argosmodel"]
    with zipfile.ZipFile(file) as package:
        package.extractall(tmp_path / "installed")
    (installed,) = (tmp_path / "installed").iterdir()  # one folder, whose name is the package's
    assert installed.name == "translate-en_de-1_0"
    metadata = json.loads((installed / "metadata.json").read_text("utf-8"))
    assert (metadata["from_code"], metadata["to_code"]) == ("en", "de")
    assert {"package_version", "argos_version", "from_name", "to_name"} <= metadata.keys()
    assert (installed / "README.md").read_text("utf-8").startswith("# English to German")

    cut = sentencepiece.SentencePieceProcessor(model_file=str(installed / "sentencepiece.model"))
    translator = ctranslate2.Translator(str(installed / "model"), intra_threads=1)
    texts = some_texts()
    told = translator.translate_batch(
        [cut.encode(text, out_type=str) for text in texts], beam_size=4, length_penalty=0.2, max_decoding_length=12
    )
    ours = model.generate(texts, preset="ctranslate2", beam=4, length_penalty=0.2, max_length=12)
    assert [_shown(each.hypotheses[0]) for each in told] == [_shown(_pieces(model, each.ids)) for each in ours]


@pytest.mark.slow
def test_the_same_model_is_the_same_file_but_for_the_times_it_took(tmp_path: Path) -> None:
    contents: list[dict[str, bytes]] = []
    for name in ("one.argosmodel", "two.argosmodel"):
        _export(pieces(), tmp_path / name)
        with zipfile.ZipFile(tmp_path / name) as package:
            assert package.testzip() is None
            contents.append({each: package.read(each) for each in package.namelist() if "certificate" not in each})
    assert contents[0] == contents[1]
    assert "translate-en_de-1_0/model/model.bin" in contents[0]


def test_what_a_package_cannot_hold_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, check=has_code("argos_tokenizer_not_sentencepiece", side="source", kind="words")):
        _export(wordy(), tmp_path / "a.argosmodel")
    with pytest.raises(UsageError, check=has_code("argos_file_name_invalid", suffix=".argosmodel", name="folder")):
        _export(pieces(), tmp_path / "folder")
    with pytest.raises(UsageError, check=has_code("language_code_invalid", language_code="../x")):
        LanguagePair("../x", "de")
    with pytest.raises(UsageError, check=has_code("export_languages_mismatch")):
        export(pieces(), tmp_path / "a.argosmodel", "argos")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_file_that_is_no_package_is_left_alone_and_a_package_replaced(tmp_path: Path) -> None:
    file = tmp_path / "a.argosmodel"
    file.write_text("precious")
    with pytest.raises(UsageError, check=has_code("output_not_exported_package")):
        _export(pieces(), file)
    assert file.read_text() == "precious"
    file.unlink()
    _export(pieces(), file)
    before = file.read_bytes()
    _export(pieces(seed=2), file)
    assert file.read_bytes() != before


def _export(model: TextModel, file: Path) -> Any:
    return export(model, file, "argos", "float32", some_sentences(model, 8), ENGLISH_GERMAN)


def _pieces(model: TextModel, ids: Any) -> list[str]:
    from attendo.interop.huggingface.vocabulary import vocabulary_names

    return [vocabulary_names(model.target_tokenizer)[each] for each in ids]


def _shown(pieces: list[str]) -> str:
    return "".join(pieces).replace("▁", " ")
