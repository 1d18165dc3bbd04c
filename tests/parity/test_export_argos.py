"""Argos packages have the layout that Argos Translate reads."""

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
import torch
from error_codes import has_code
from export_models import random_sentences, random_texts, subword_model, word_model

from attendo.errors import ModelError, UsageError
from attendo.interop.argos import LanguagePair
from attendo.interop.export import export
from attendo.text import BOS, PAD
from attendo.text_model import TextModel

ctranslate2 = pytest.importorskip("ctranslate2")

ENGLISH_GERMAN = LanguagePair("en", "de", "English", "German")


def test_a_package_translates_as_argos_calls_it(tmp_path: Path) -> None:
    model, file = subword_model(separate=True), tmp_path / "en_de.argosmodel"
    assert model.network.output.bias is not None
    with torch.no_grad():
        model.network.output.bias[[PAD, BOS]] = 3.0  # tokens that Argos does not forbid
    assert _export(model, file).passed
    assert [each.name for each in tmp_path.iterdir()] == ["en_de.argosmodel"]
    with zipfile.ZipFile(file) as package:
        package.extractall(tmp_path / "installed")
    (installed,) = (tmp_path / "installed").iterdir()  # one folder, named like the package
    assert installed.name == "translate-en_de-1_0"
    metadata = json.loads((installed / "metadata.json").read_text("utf-8"))
    assert (metadata["from_code"], metadata["to_code"]) == ("en", "de")
    assert {"package_version", "argos_version", "from_name", "to_name"} <= metadata.keys()
    assert (installed / "README.md").read_text("utf-8").startswith("# English to German")

    tokenizer = sentencepiece.SentencePieceProcessor(model_file=str(installed / "sentencepiece.model"))
    translator = ctranslate2.Translator(str(installed / "model"), intra_threads=1)
    texts = random_texts()
    translations = translator.translate_batch(
        [tokenizer.encode(text, out_type=str) for text in texts],
        beam_size=4,
        length_penalty=0.2,
        max_decoding_length=12,
    )
    ours = model.generate(texts, preset="ctranslate2", beam=4, length_penalty=0.2, max_length=12)
    assert [_join(each.hypotheses[0]) for each in translations] == [
        _join(_vocabulary_names(model, each.ids)) for each in ours
    ]


@pytest.mark.slow
def test_packages_of_a_model_are_equal_except_the_certificate(tmp_path: Path) -> None:
    contents: list[dict[str, bytes]] = []
    for name in ("one.argosmodel", "two.argosmodel"):
        _export(subword_model(), tmp_path / name)
        with zipfile.ZipFile(tmp_path / name) as package:
            assert package.testzip() is None
            contents.append({each: package.read(each) for each in package.namelist() if "certificate" not in each})
    assert contents[0] == contents[1]
    assert "translate-en_de-1_0/model/model.bin" in contents[0]


def test_unsupported_models_and_names_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(ModelError, check=has_code("argos_tokenizer_not_sentencepiece", side="source", kind="words")):
        _export(word_model(), tmp_path / "a.argosmodel")
    with pytest.raises(UsageError, check=has_code("argos_file_name_invalid", suffix=".argosmodel", name="folder")):
        _export(subword_model(), tmp_path / "folder")
    with pytest.raises(UsageError, check=has_code("language_code_invalid", language_code="../x")):
        LanguagePair("../x", "de")
    with pytest.raises(UsageError, check=has_code("export_languages_mismatch")):
        export(subword_model(), tmp_path / "a.argosmodel", "argos")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_only_an_earlier_package_is_replaced(tmp_path: Path) -> None:
    file = tmp_path / "a.argosmodel"
    file.write_text("precious")
    with pytest.raises(UsageError, check=has_code("output_not_exported_package")):
        _export(subword_model(), file)
    assert file.read_text() == "precious"
    file.unlink()
    _export(subword_model(), file)
    before = file.read_bytes()
    _export(subword_model(seed=2), file)
    assert file.read_bytes() != before


def _export(model: TextModel, file: Path) -> Any:
    return export(model, file, "argos", "float32", random_sentences(model, 8), ENGLISH_GERMAN)


def _vocabulary_names(model: TextModel, ids: Any) -> list[str]:
    from attendo.interop.huggingface.vocabulary import vocabulary_names

    return [vocabulary_names(model.target_tokenizer)[each] for each in ids]


def _join(tokens: list[str]) -> str:
    return "".join(tokens).replace("▁", " ")
