"""`attendo import`: a folder of transformers becomes a model folder, or nothing does."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from error_codes import fragment
from foreign_models import random_model, written
from foreign_tokenizers import some_lines, write_bart, write_m2m100, write_marian
from late_import import needs
from tiny import Command

import attendo as package
from attendo.interop import import_model
from attendo.interop.huggingface.imported import ImportedModel
from attendo.text_model import TextModel

pytestmark = needs("transformers")


@pytest.fixture(scope="module")
def marian(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("marian")
    last = len(write_marian(folder)) - 1
    model = random_model("marian", vocab_size=last + 1, pad_token_id=last, decoder_start_token_id=last)
    return written(model, folder, num_beams=2)


@pytest.fixture(autouse=True)
def few_sentences(monkeypatch: pytest.MonkeyPatch) -> None:
    """200 would take seconds each time."""
    few = import_model.collect_sentences

    def sentences_of(model: TextModel, texts: list[str] | None) -> object:
        return few(model, texts, min_count=6)

    monkeypatch.setattr(import_model, "collect_sentences", sentences_of)


def test_the_folder_answers_and_holds_the_certificate(attendo: Command, marian: Path, tmp_path: Path) -> None:
    out = tmp_path / "model"
    told = attendo("import", marian, out)
    assert told.code == 0, told.errors
    assert told.output.splitlines()[-1] == "passed"
    assert "mean logit difference" in told.output
    assert f"marian model written to {out}" in told.errors
    assert json.loads((out / "certificate.json").read_text("utf-8"))["passed"] is True
    assert "certificate.json" in json.loads((out / "manifest.json").read_text("utf-8"))["files"]
    model = package.load(out)
    assert model.generation.beam == 2
    assert model.generate([some_lines(0, 1)[0]], max_length=4)[0].ids
    said = attendo("generate", out, given=f"{some_lines(0, 1)[0]}\n\n".encode())
    assert said.code == 0
    assert said.output.count("\n") == 2


@pytest.mark.slow
def test_given_sentences_are_compared(attendo: Command, marian: Path, tmp_path: Path) -> None:
    proof = tmp_path / "proof"
    proof.write_text("\n".join(some_lines(2, 9)), "utf-8")
    told = attendo("import", marian, tmp_path / "model", "--proof", proof, "--json")
    assert told.code == 0
    assert json.loads(told.output)["sentences"] == 9


def test_without_a_proof(attendo: Command, marian: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(import_model, "TransformersSystem", None)
    told = attendo("import", marian, tmp_path / "model", "--no-proof")
    assert (told.code, told.output) == (0, "")
    assert not (tmp_path / "model" / "certificate.json").exists()
    assert package.load(tmp_path / "model").generation.beam == 2


def test_what_is_not_the_same_is_not_written(
    attendo: Command, marian: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = ImportedModel.build_text_model

    def spoilt(self: ImportedModel) -> TextModel:
        with torch.no_grad():
            self.network.decoder_norm, self.network.encoder[0].feed_forward.contract.bias[0] = torch.nn.Identity(), 9.0
        return model(self)

    monkeypatch.setattr(ImportedModel, "build_text_model", spoilt)
    told = attendo("import", marian, tmp_path / "model")
    assert told.code == 4
    assert "FAILED: the mean difference of logits is" in told.output
    assert fragment("converted_model_differs") in told.errors
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_is_taken_is_left_alone(attendo: Command, marian: Path, tmp_path: Path) -> None:
    told = attendo("import", marian, tmp_path)
    assert told.code == 2
    assert fragment("output_path_exists") in told.error


def test_a_folder_that_is_none_leaves_nothing(attendo: Command, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    told = attendo("import", tmp_path / "empty", tmp_path / "model")
    assert told.code == 4
    assert fragment("transformers_config_missing", files="nothing") in told.error
    assert not (tmp_path / "model").exists()


def test_no_proof_and_a_proof_exclude_each_other(attendo: Command, marian: Path, tmp_path: Path) -> None:
    told = attendo("import", marian, tmp_path / "model", "--no-proof", "--json")
    assert told.code == 2
    assert fragment("proof_options_with_no_proof") in told.error


@pytest.mark.slow
def test_languages_are_named_or_asked_for(attendo: Command, tmp_path: Path) -> None:
    folder = tmp_path / "m2m100"
    folder.mkdir()
    written(random_model("m2m_100", vocab_size=len(write_m2m100(folder)) + 108), folder)
    told = attendo("import", folder, tmp_path / "model", "--source-language", "en")
    assert told.code == 0, told.errors
    assert "that of the target is not told: name it with --target-language" in told.output
    assert package.load(tmp_path / "model").generation.source_prefix == ("__en__",)


@pytest.mark.slow
def test_what_is_left_behind_is_told(attendo: Command, marian: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(marian, tmp_path / "marian")
    path = folder / "generation_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text("utf-8")), "suppress_tokens": [40, 41]}), "utf-8")
    told = attendo("import", folder, tmp_path / "model")
    assert told.code == 0, told.errors
    note = "not taken over: suppress_tokens [40, 41]"
    assert note in told.output.splitlines()
    assert note in json.loads((tmp_path / "model" / "certificate.json").read_text("utf-8"))["notes"]
    assert note in attendo("import", folder, tmp_path / "another", "--no-proof").errors.splitlines()


@pytest.mark.slow
def test_texts_are_cut_as_there(attendo: Command, marian: Path, tmp_path: Path) -> None:
    told = attendo("import", marian, tmp_path / "model")
    assert "6 of 6 texts have the same ids as by MarianTokenizer" in told.output.splitlines()


@pytest.mark.slow
def test_a_tokenizer_that_cuts_otherwise_is_refused(attendo: Command, tmp_path: Path) -> None:
    """A word that was added to BART's vocabulary later is one id there."""
    folder = tmp_path / "bart"
    folder.mkdir()
    vocabulary = write_bart(folder)
    written(random_model("bart", vocab_size=len(vocabulary)), folder)
    word = {"content": "zebra", "special": False, "lstrip": False, "rstrip": False, "single_word": False}
    added = {"tokenizer_class": "BartTokenizer", "added_tokens_decoder": {"9": {**word, "normalized": True}}}
    (folder / "tokenizer_config.json").write_text(json.dumps(added), "utf-8")
    proof = tmp_path / "proof"
    proof.write_text("ab\na zebra\n", "utf-8")
    told = attendo("import", folder, tmp_path / "model", "--proof", proof)
    assert told.code == 4
    assert "the tokenizer is another one: 1 of 2 texts have the same ids" in told.errors, told.errors
    assert not (tmp_path / "model").exists()


@pytest.mark.slow
def test_a_tokenizer_that_transformers_cannot_load_is_told(
    attendo: Command, marian: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*given: object, **named: object) -> None:
        raise OSError("no tokenizer\nhere")

    monkeypatch.setattr("transformers.MarianTokenizer.from_pretrained", broken)
    told = attendo("import", marian, tmp_path / "model")
    assert told.code == 0
    assert "the tokenizer was not compared: that of transformers cannot be had (no tokenizer)" in told.output


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"max_position_embeddings": 8}, "max_position_embeddings must be at least 14"),
        ({"init_std": "x"}, fragment("transformers_load_failed")),
    ],
)
def test_a_proof_that_cannot_be_is_told(
    attendo: Command, marian: Path, tmp_path: Path, change: dict[str, object], message: str
) -> None:
    folder = shutil.copytree(marian, tmp_path / "marian")
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text("utf-8")), **change}), "utf-8")
    told = attendo("import", folder, tmp_path / "model")
    assert told.code == 4
    assert message in told.error
    assert attendo("import", folder, tmp_path / "model", "--no-proof").code == 0
