"""Stored decoding settings are exported with a model, or the certificate notes the difference."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from error_codes import ErrorCheck, has_code, message
from export_models import MARIAN, random_sentences, word_model

from attendo.data.batch import collate_sources
from attendo.errors import ModelError
from attendo.interop.certificate import Certificate
from attendo.interop.export import ExportFormat, export
from attendo.text import BOS, EOS, PAD
from attendo.text_model import TextModel

SOURCES = ["w01 w40 w17", "w03", "w55 w02 w02 w31 w08", "w20 w21 w22 w23", "w11 w44"]
FIXED: dict[str, Any] = {"max_length_factor": 0.0, "max_length_extra": 9, "at_limit": "any"}


ALL = "onnx, textbook, cached, fast"


@pytest.mark.short(1)
@pytest.mark.parametrize(
    "stored",
    [
        {"repetition_penalty": 1.7, "repetition_of": "logits"},
        {"no_repeat_ngram_size": 1, "allow_unk": False},
        {"min_length_extra": 5},
        {"at_limit": "force_eos", "max_length_extra": 4},
        {"at_limit": "truncate", "max_length_extra": 4},
        {"beam": 3, "length_penalty": 2.0, "min_length_extra": 3},
        {"beam": 3, "length_penalty": 0.3, "stop": "first", "repetition_penalty": 1.7},
        {"beam": 3, "normalise": "none", "stop": "exhaustive"},
        {"beam": 4, "renormalise": True, "no_repeat_ngram_size": 1},
    ],
    ids=str,
)
def test_transformers_defaults_give_the_same_answers(tmp_path: Path, stored: dict[str, Any]) -> None:
    transformers = pytest.importorskip("transformers")
    model = _with_generation(word_model(**MARIAN), {**FIXED, **stored})
    assert not any(note.code == "setting_not_exported" for note in _export(model, tmp_path / "out", "hf").notes)
    theirs = transformers.MarianMTModel.from_pretrained(tmp_path / "out")
    assert _generate(theirs) == [result.text for result in model.generate(SOURCES)]


def test_sampling_settings_are_exported(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    stored = {"sample": True, "top_k": 7, "top_p": 0.9, "min_p": 0.1, "typical_p": 0.8, "temperature": 0.5, "beam": 4}
    certificate = _export(_with_generation(word_model(**MARIAN), stored), tmp_path / "out", "hf")
    config = json.loads((tmp_path / "out" / "generation_config.json").read_text("utf-8"))
    assert (config["do_sample"], config["num_beams"], config["temperature"]) == (True, 1, 0.5)
    assert (config["top_k"], config["top_p"], config["min_p"], config["typical_p"]) == (7, 0.9, 0.1, 0.8)
    assert message("setting_not_exported", name="seed", value=1, instead=message("hf_samples_with_torch")) in map(
        str, certificate.notes
    )


@pytest.mark.parametrize(
    ("stored", "name", "value", "instead"),
    [
        ({"max_length_factor": 1.5}, "max_length_factor", 1.5, has_code("hf_has_fixed_max_length", limit=511)),
        ({"beam": 2, "normalise": "gnmt"}, "normalise", "gnmt", has_code("hf_ranks_by_average")),
        ({"beam": 2, "word_penalty": 0.2}, "word_penalty", 0.2, has_code("hf_has_no_penalty")),
        ({"beam": 2, "coverage_penalty": 0.2}, "coverage_penalty", 0.2, has_code("hf_has_no_penalty")),
        ({"beam": 2, "stop": "leader"}, "stop", "leader", has_code("hf_stops_as_settled")),
        ({"beam": 4, "beam_groups": 2}, "beam_groups", 2, has_code("hf_runs_one_beam")),
        ({"beam": 2, "at_limit": "force_eos"}, "at_limit", "force_eos", has_code("hf_forces_eos_at_no_cost")),
        (
            {"repetition_penalty": 1.5},
            "repetition_of",
            "log_probabilities",
            has_code("hf_penalises", values="logits"),
        ),
        ({"beam": 2, "mbr": "chrf"}, "mbr", "chrf", has_code("hf_returns_best_of_one_search")),
    ],
)
def test_settings_without_counterpart_are_noted(
    stored: dict[str, Any], name: str, value: object, instead: ErrorCheck
) -> None:
    from attendo.interop.huggingface.generation import export_generation
    from attendo.interop.huggingface.vocabulary import identity_permutation

    _, notes = export_generation(_with_generation(word_model(), stored).generation, 1024, identity_permutation(60))
    note = next(each for each in notes if each.values["name"] == name)
    assert has_code("setting_not_exported", value=value, instead=instead)(note)


def test_token_ids_are_mapped_to_transformers() -> None:
    from attendo.interop.huggingface.generation import export_generation
    from attendo.interop.huggingface.vocabulary import build_permutation

    stored = {**FIXED, "at_limit": "force_eos", "allow_unk": False}
    order = build_permutation(60, pad=1, unk=7, start=5, eos=5)
    settings, _ = export_generation(_with_generation(word_model(), stored).generation, 1024, order)
    assert (settings["forced_eos_token_id"], settings["bad_words_ids"]) == (5, [[7]])


@pytest.mark.parametrize(
    ("stored", "note"),
    [
        ({}, None),
        ({"at_limit": "force_eos"}, "at_limit is any, not force_eos"),
        ({"beam": 3}, "stop is first, not settled; renormalise is True, not False; at_limit is any, not truncate"),
        (
            {"beam": 3, "length_penalty": 0.0, "at_limit": "force_eos"},
            "stop is leader, not settled; renormalise is True",
        ),
        ({"repetition_penalty": 1.4}, "repetition_of is logits, not log_probabilities"),
        ({"engine": "fast", "batch_tokens": 99, "at_limit": "any"}, None),
    ],
    ids=str,
)
def test_ctranslate2_differences_are_noted(stored: dict[str, Any], note: str | None) -> None:
    from attendo.interop.backends import describe_ctranslate2_changes

    notes = describe_ctranslate2_changes(stored)
    assert notes == [] if note is None else note in " ".join(map(str, notes))


def test_the_certificate_notes_ctranslate2_differences(tmp_path: Path) -> None:
    pytest.importorskip("ctranslate2")
    certificate = _export(_with_generation(word_model(), {"beam": 2}), tmp_path / "out", "ctranslate2")
    change = has_code("setting_differs", name="stop", value="first")
    assert has_code("ctranslate2_changes_settings", changes=change)(certificate.notes[0])


@pytest.mark.parametrize(
    ("to", "stored", "unsupported", "engines"),
    [
        ("ctranslate2", {"beam": 4, "normalise": "gnmt"}, "normalise gnmt", ALL),
        ("ctranslate2", {"sample": True}, "sample", ALL),
        ("ctranslate2", {"mbr": "chrf"}, "sample", ALL),
        ("ctranslate2", {"beam": 4, "word_penalty": 0.2}, "word_penalty 0.2", ALL),
        ("ctranslate2", {"beam": 4, "coverage_penalty": 0.2}, "coverage_penalty 0.2", "cached, fast"),
        ("ctranslate2", {"coverage_penalty": 0.2}, "coverage_penalty 0.2", "cached, fast"),
        ("onnx", {"beam": 4, "coverage_penalty": 0.2}, "coverage_penalty", "cached, fast"),
    ],
    ids=str,
)
def test_unsupported_settings_raise_and_leave_no_files(
    tmp_path: Path, to: ExportFormat, stored: dict[str, Any], unsupported: str, engines: str
) -> None:
    pytest.importorskip(to)
    reason = has_code("engine_option_alternatives", options=unsupported, engines=engines)
    error = has_code(
        "stored_settings_unsupported", error=has_code("engine_option_unsupported", engine=to, reasons=reason)
    )
    with pytest.raises(ModelError, check=error):
        _export(_with_generation(word_model(), stored), tmp_path / "out", to)
    assert list(tmp_path.iterdir()) == []


def _generate(theirs: Any) -> list[str]:
    """The answers of `generate()` called with the sources alone."""
    tokenizer = word_model().source_tokenizer
    ids, mask = collate_sources([tokenizer.encode(text) for text in SOURCES])
    with torch.no_grad():
        rows = theirs.generate(input_ids=ids, attention_mask=mask).tolist()
    return [tokenizer.decode([each for each in row if each not in (PAD, BOS, EOS)]) for row in rows]


def _export(model: TextModel, out: Path, to: ExportFormat) -> Certificate:
    return export(model, out, to, sentences=random_sentences(model, 3))


def _with_generation(model: TextModel, generation: dict[str, Any]) -> TextModel:
    return TextModel(replace(model.stored_model, generation=generation))
