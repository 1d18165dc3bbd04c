"""`attendo import`: converts a transformers folder to a model folder, or writes nothing."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from error_codes import fragment, message
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
    """200 sentences take seconds per test."""
    collect = import_model.collect_sentences

    def collect_few(model: TextModel, texts: list[str] | None, min_count: int) -> object:
        return collect(model, texts, min_count=6)

    monkeypatch.setattr(import_model, "collect_sentences", collect_few)


def test_the_imported_model_generates_and_has_a_certificate(attendo: Command, marian: Path, tmp_path: Path) -> None:
    out = tmp_path / "model"
    done = attendo("import", marian, out)
    assert done.code == 0, done.errors
    assert done.output.splitlines()[-1] == "passed"
    assert "mean logit difference" in done.output
    assert f"marian model written to {out}" in done.errors
    assert json.loads((out / "certificate.json").read_text("utf-8"))["passed"] is True
    assert "certificate.json" in json.loads((out / "manifest.json").read_text("utf-8"))["files"]
    model = package.load(out)
    assert model.generation.beam == 2
    assert model.generate([some_lines(0, 1)[0]], max_length=4)[0].ids
    generated = attendo("generate", out, given=f"{some_lines(0, 1)[0]}\n\n".encode())
    assert generated.code == 0
    assert generated.output.count("\n") == 2


@pytest.mark.slow
def test_given_sentences_are_used_for_the_proof(attendo: Command, marian: Path, tmp_path: Path) -> None:
    proof = tmp_path / "proof"
    proof.write_text("\n".join(some_lines(2, 9)), "utf-8")
    done = attendo("import", marian, tmp_path / "model", "--proof", proof, "--json")
    assert done.code == 0
    assert json.loads(done.output)["sentences"] == 9


def test_no_proof_skips_the_certificate(
    attendo: Command, marian: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(import_model, "TransformersSystem", None)
    done = attendo("import", marian, tmp_path / "model", "--no-proof")
    assert (done.code, done.output) == (0, "")
    assert not (tmp_path / "model" / "certificate.json").exists()
    assert package.load(tmp_path / "model").generation.beam == 2


def test_a_failed_proof_writes_nothing(
    attendo: Command, marian: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build = ImportedModel.build_text_model

    def build_damaged(self: ImportedModel) -> TextModel:
        with torch.no_grad():
            self.network.decoder_norm, self.network.encoder[0].feed_forward.contract.bias[0] = torch.nn.Identity(), 9.0
        return build(self)

    monkeypatch.setattr(ImportedModel, "build_text_model", build_damaged)
    done = attendo("import", marian, tmp_path / "model")
    assert done.code == 4
    assert "FAILED: the mean logit difference is" in done.output
    assert fragment("converted_model_differs") in done.errors
    assert list(tmp_path.iterdir()) == []


def test_an_existing_output_folder_is_not_overwritten(attendo: Command, marian: Path, tmp_path: Path) -> None:
    done = attendo("import", marian, tmp_path)
    assert done.code == 2
    assert fragment("output_path_exists") in done.error


def test_an_invalid_source_folder_leaves_no_output(attendo: Command, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    done = attendo("import", tmp_path / "empty", tmp_path / "model")
    assert done.code == 4
    assert fragment("transformers_config_missing", files="nothing") in done.error
    assert not (tmp_path / "model").exists()


def test_no_proof_conflicts_with_proof_options(attendo: Command, marian: Path, tmp_path: Path) -> None:
    done = attendo("import", marian, tmp_path / "model", "--no-proof", "--json")
    assert done.code == 2
    assert fragment("proof_options_with_no_proof") in done.error


@pytest.mark.slow
def test_an_unnamed_target_language_is_noted(attendo: Command, tmp_path: Path) -> None:
    folder = tmp_path / "m2m100"
    folder.mkdir()
    written(random_model("m2m_100", vocab_size=len(write_m2m100(folder)) + 108), folder)
    done = attendo("import", folder, tmp_path / "model", "--source-language", "en")
    assert done.code == 0, done.errors
    assert message("language_unknown", side="target") in done.output
    assert package.load(tmp_path / "model").generation.source_prefix == ("__en__",)


@pytest.mark.slow
def test_unsupported_settings_are_noted(attendo: Command, marian: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(marian, tmp_path / "marian")
    path = folder / "generation_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text("utf-8")), "suppress_tokens": [40, 41]}), "utf-8")
    done = attendo("import", folder, tmp_path / "model")
    assert done.code == 0, done.errors
    note = message("setting_not_imported", name="suppress_tokens", value=[40, 41])
    assert note in done.output.splitlines()
    assert note in json.loads((tmp_path / "model" / "certificate.json").read_text("utf-8"))["notes"]
    assert note in attendo("import", folder, tmp_path / "another", "--no-proof").errors.splitlines()


@pytest.mark.slow
def test_tokenizer_ids_match_transformers(attendo: Command, marian: Path, tmp_path: Path) -> None:
    done = attendo("import", marian, tmp_path / "model")
    assert message("texts_have_same_ids", same=6, count=6, name="MarianTokenizer") in done.output.splitlines()


@pytest.mark.slow
def test_a_tokenizer_with_other_ids_is_rejected(attendo: Command, tmp_path: Path) -> None:
    """In BART, a word added to the vocabulary later is a single id."""
    folder = tmp_path / "bart"
    folder.mkdir()
    vocabulary = write_bart(folder)
    written(random_model("bart", vocab_size=len(vocabulary)), folder)
    word = {"content": "zebra", "special": False, "lstrip": False, "rstrip": False, "single_word": False}
    added = {"tokenizer_class": "BartTokenizer", "added_tokens_decoder": {"9": {**word, "normalized": True}}}
    (folder / "tokenizer_config.json").write_text(json.dumps(added), "utf-8")
    proof = tmp_path / "proof"
    proof.write_text("ab\na zebra\n", "utf-8")
    done = attendo("import", folder, tmp_path / "model", "--proof", proof)
    assert done.code == 4
    comparison = fragment("texts_have_other_ids", same=1, count=2)  # the class has several names
    assert message("tokenizer_differs", comparison=comparison) in done.errors, done.errors
    assert not (tmp_path / "model").exists()


@pytest.mark.slow
def test_a_tokenizer_that_transformers_cannot_load_is_noted(
    attendo: Command, marian: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*given: object, **named: object) -> None:
        raise OSError("no tokenizer\nhere")

    monkeypatch.setattr("transformers.MarianTokenizer.from_pretrained", broken)
    done = attendo("import", marian, tmp_path / "model")
    assert done.code == 0
    assert message("tokenizer_not_compared", reason="no tokenizer") in done.output


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"max_position_embeddings": 8}, "max_position_embeddings must be at least 14"),
        ({"init_std": "x"}, fragment("transformers_load_failed")),
    ],
)
def test_a_proof_that_cannot_run_is_an_error(
    attendo: Command, marian: Path, tmp_path: Path, change: dict[str, object], message: str
) -> None:
    folder = shutil.copytree(marian, tmp_path / "marian")
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text("utf-8")), **change}), "utf-8")
    done = attendo("import", folder, tmp_path / "model")
    assert done.code == 4
    assert message in done.error
    assert attendo("import", folder, tmp_path / "model", "--no-proof").code == 0
