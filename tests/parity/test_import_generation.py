"""Decoding defaults of imported folders: answers equal those of `generate`, or a note names the difference."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from error_codes import has_code, message
from foreign_models import random_model, written
from foreign_tokenizers import some_lines, write_bart, write_m2m100, write_marian

from attendo.errors import ModelError
from attendo.interop.huggingface.imported import ImportedModel
from attendo.interop.import_model import from_folder

transformers = pytest.importorskip("transformers")

TEXTS = some_lines(0, 8)
Folder = Callable[..., Path]


def not_imported(name: str, value: object) -> str:
    return message("setting_not_imported", name=name, value=value)


@pytest.fixture(scope="module")
def marian(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    """A Marian folder with its generation_config.json."""
    folder = tmp_path_factory.mktemp("marian")
    size = len(write_marian(folder, languages=True))
    written(random_model("marian", vocab_size=size, pad_token_id=size - 1, decoder_start_token_id=size - 1), folder)

    def make(**generation: Any) -> Path:
        defaults = {"pad_token_id": size - 1, "decoder_start_token_id": size - 1, "eos_token_id": 0, "max_length": 20}
        path = folder / "generation_config.json"
        path.write_text(json.dumps({**defaults, "bad_words_ids": [[size - 1]], **generation}), "utf-8")
        return folder

    return make


def generate_in_transformers(folder: Path, found: ImportedModel) -> list[tuple[int, ...]]:
    """The answers of transformers with the defaults of the folder, in our ids."""
    network = transformers.MarianMTModel.from_pretrained(folder)
    pad, tokenizer = found.target.rows[0], found.source_tokenizer
    assert tokenizer is not None
    answers = []
    for text in TEXTS:
        ids = found.source.to_theirs([*tokenizer.encode(text), 3])
        row = network.generate(input_ids=torch.tensor([ids]))[0].tolist()
        answers.append(tuple(found.target.to_ours(each for each in row[1:] if each not in (0, pad))))
    return answers


@pytest.mark.short(1)
@pytest.mark.parametrize(
    "settings",
    [
        {"num_beams": 4},
        {"repetition_penalty": 1.5},
        {"num_beams": 4, "repetition_penalty": 1.5},
        {"num_beams": 4, "max_new_tokens": 5},
        {"num_beams": 2, "min_new_tokens": 9},
        {"num_beams": 2, "max_length": 9, "min_length": 6},
        {"num_beams": 4, "renormalize_logits": True, "no_repeat_ngram_size": 1},
        {"suppress_tokens": [1]},
        {"forced_eos_token_id": 0, "max_length": 6},
    ],
    ids=str,
)
def test_answers_equal_those_of_generate(marian: Folder, settings: dict[str, Any]) -> None:
    folder = marian(**settings)
    found = from_folder(folder)
    assert [result.ids for result in found.build_text_model().generate(TEXTS)] == generate_in_transformers(
        folder, found
    )
    assert not any(note.code == "setting_not_imported" for note in found.notes)


@pytest.mark.slow
def test_a_forced_symbol_becomes_the_target_prefix(marian: Folder) -> None:
    folder = marian(forced_bos_token_id=2, num_beams=2)
    found = from_folder(folder)
    assert found.generation["target_prefix"] == [">>de<<"]
    answers = [result.ids for result in found.build_text_model().generate(TEXTS)]
    assert answers == generate_in_transformers(folder, found)
    assert {ids[0] for ids in answers} == set(found.target.to_ours([2]))


@pytest.mark.parametrize(
    ("settings", "notes"),
    [
        ({"suppress_tokens": [40, 41, 1]}, [not_imported("suppress_tokens", [40, 41])]),
        ({"bad_words_ids": [[9], [20, 21], [0]]}, [not_imported("bad_words_ids", [[9], [20, 21]])]),
        ({"begin_suppress_tokens": [7]}, [not_imported("begin_suppress_tokens", [7])]),
        ({"encoder_no_repeat_ngram_size": 2}, [not_imported("encoder_no_repeat_ngram_size", 2)]),
        ({"encoder_no_repeat_ngram_size": 0, "encoder_repetition_penalty": 1.0, "num_beam_groups": 1}, []),
        ({"sequence_bias": [[[5], 1.0]]}, [not_imported("sequence_bias", [[[5], 1.0]])]),
        ({"do_sample": True, "num_beams": 3, "epsilon_cutoff": 0.0}, [not_imported("num_beams", 3)]),
        ({"num_beams": 4, "forced_eos_token_id": 5}, [not_imported("forced_eos_token_id", 5)]),
        (
            {"num_beams": 4, "forced_eos_token_id": 0},
            [message("forced_eos_has_log_probability", name="forced_eos_token_id")],
        ),
    ],
    ids=str,
)
def test_settings_without_counterpart_are_noted(marian: Folder, settings: dict[str, Any], notes: list[str]) -> None:
    found = from_folder(marian(**settings))
    assert [str(note) for note in found.notes if note.code != "sentencepiece_pieces_unknown"] == notes


def test_forced_bos_without_a_tokenizer_is_noted(marian: Folder) -> None:
    found = from_folder(marian(forced_bos_token_id=40), with_tokenizers=False)
    assert not_imported("forced_bos_token_id", 40) in map(str, found.notes)


def test_top_k_defaults_to_50_when_sampling(marian: Folder) -> None:
    assert from_folder(marian(do_sample=True, temperature=0.7)).generation["top_k"] == 50
    assert "top_k" not in from_folder(marian(do_sample=True, top_k=0)).generation


def test_config_json_applies_only_without_generation_config(marian: Folder, tmp_path: Path) -> None:
    """transformers does the same, since version 5 at the latest."""
    for path in marian().iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    config = json.loads((tmp_path / "config.json").read_text("utf-8"))
    (tmp_path / "config.json").write_text(json.dumps({**config, "num_beams": 3}), "utf-8")
    assert "beam" not in from_folder(tmp_path).generation
    (tmp_path / "generation_config.json").unlink()
    assert from_folder(tmp_path).generation["beam"] == 3


@pytest.mark.parametrize(("kind", "write", "more"), [("bart", write_bart, 0), ("m2m_100", write_m2m100, 108)])
def test_a_forced_text_token_is_rejected(
    tmp_path: Path, kind: str, write: Callable[[Path], dict[str, int]], more: int
) -> None:
    size = len(write(tmp_path)) + more
    written(random_model(kind, vocab_size=size), tmp_path, forced_bos_token_id=20)
    with pytest.raises(ModelError, check=has_code("json_field_invalid", field="forced_bos_token_id", value="20")):
        from_folder(tmp_path)
    if kind == "m2m_100":  # the target language replaces the token
        assert from_folder(tmp_path, target_language="fr").generation["target_prefix"] == ["__fr__"]
