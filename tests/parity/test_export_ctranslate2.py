"""Exports to CTranslate2: the certificate passes for every supported network, and the folder is complete."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from error_codes import has_code
from export_models import needs_exact_int8, random_sentences, random_texts, subword_model, word_model

from attendo.errors import ModelError
from attendo.interop.certificate import Certificate
from attendo.interop.compared_systems import TorchSystem
from attendo.interop.ctranslate2 import folder as ctranslate2_folder
from attendo.interop.export import ModelMismatchError, export
from attendo.interop.exported_files import ExportPrecision
from attendo.interop.huggingface.vocabulary import vocabulary_names
from attendo.text_model import TextModel

ctranslate2 = pytest.importorskip("ctranslate2")

# Every norm and every activation; `make test-all` runs all combinations.
SHORT = (("pre", "relu"), ("pre", "swiglu"), ("post", "gelu"), ("post", "silu"))
NETWORKS: list[Any] = [
    pytest.param(
        {"norm": norm, "activation": activation}, marks=[] if (norm, activation) in SHORT else [pytest.mark.slow]
    )
    for norm in ("pre", "post")
    for activation in ("relu", "gelu", "silu", "swiglu")
] + [
    {"tie": "output", "norm_kind": "rms"},
    {"tie": "all", "norm": "post", "final_norm": True},
    {"norm_kind": "rms", "norm": "post", "activation": "swiglu", "positions": "rotary"},
    {"positions": "learned", "max_length": 128, "embedding_norm": True},
    {"position_layout": "halves", "position_offset": 2, "scale_embedding": False},
    {"d_key": 4, "d_value": 8, "num_decoder_layers": 2},
]


@pytest.mark.short(3)
@pytest.mark.parametrize("changes", NETWORKS, ids=str)
def test_the_certificate_passes(tmp_path: Path, changes: dict[str, Any]) -> None:
    certificate = _export(word_model(**changes), tmp_path / "out", "float32")
    assert certificate.passed
    assert certificate.mean_difference is not None
    assert certificate.mean_difference < 1e-5
    assert [each.same_answers for each in certificate.searches] == [certificate.sentences] * 2
    assert all(each.score_difference is not None and each.score_difference < 1e-3 for each in certificate.searches)


@pytest.mark.parametrize(
    "changes", [{}, {"norm": "post"}, {"norm": "post", "tie": "all"}, {"positions": "rotary"}], ids=str
)
def test_compared_answers_differ_in_tokens_and_length(changes: dict[str, Any]) -> None:
    model = word_model(**changes)
    sources = random_sentences(model, 40).sources
    answers = TorchSystem(model.network, "ctranslate2").generate(sources, beam=4, max_length=16)
    assert len({answer.ids for answer in answers}) > 8
    assert len({len(answer.ids) for answer in answers}) > 2


@pytest.mark.short(1)
@pytest.mark.parametrize("changes", [{}, {"norm": "post", "tie": "all"}, {"activation": "swiglu"}], ids=str)
def test_float16_passes_and_runs_as_float32_on_cpu(
    tmp_path: Path, changes: dict[str, Any], capfd: pytest.CaptureFixture[str]
) -> None:
    certificate = _export(word_model(**changes), tmp_path / "out", "float16")
    assert certificate.theirs.endswith("in float32")
    assert certificate.mean_difference is not None
    assert 1e-5 < certificate.mean_difference < 1e-2
    assert capfd.readouterr().err == ""  # CTranslate2 logs no warning


@pytest.mark.short(1)
@needs_exact_int8
@pytest.mark.parametrize(
    "changes", [{}, {"norm": "post"}, {"norm": "post", "activation": "swiglu", "tie": "all"}], ids=str
)
def test_int8_passes_and_states_its_loss(tmp_path: Path, changes: dict[str, Any]) -> None:
    certificate = _export(word_model(**changes), tmp_path / "out", "int8")
    assert certificate.theirs.endswith("in int8_float32")
    assert certificate.mean_difference is not None
    assert certificate.mean_difference > 1e-3
    assert min(each.same_tokens for each in certificate.searches) >= 0.6


def test_int8_notes_an_overflow_without_vnni(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for overflows, notes in ((True, 1), (False, 0)):
        monkeypatch.setattr(ctranslate2_folder, "int8_saturates", lambda value=overflows: value)
        (tmp_path / str(overflows)).mkdir()
        found = ctranslate2_folder.write_ctranslate2(subword_model(), tmp_path / str(overflows), "int8")
        assert sum(note.code == "ctranslate2_int8_overflow" for note in found) == notes


def test_a_different_weight_raises_and_leaves_no_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, other = word_model(), word_model()
    with torch.no_grad():
        other.network.encoder[0].get_submodule("feed_forward.contract").get_parameter("weight")[0, 0] += 1.0
    write = ctranslate2_folder.to_ctranslate2
    monkeypatch.setattr(ctranslate2_folder, "to_ctranslate2", lambda network, *rest: write(other.network, *rest))
    with pytest.raises(ModelMismatchError, check=has_code("converted_model_differs")) as raised:
        _export(model, tmp_path / "out", "float32")
    assert raised.value.exit_code == 4
    assert not raised.value.certificate.passed
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("separate", [False, True])
def test_the_folder_works_without_attendo(tmp_path: Path, separate: bool) -> None:
    import sentencepiece

    model, folder = subword_model(separate=separate), tmp_path / "out"
    _export(model, folder, "float32")
    vocabularies = {path.name for path in folder.glob("*_vocabulary.json")}
    assert vocabularies == (
        {"source_vocabulary.json", "target_vocabulary.json"} if separate else {"shared_vocabulary.json"}
    )
    names = json.loads(
        (folder / ("source_vocabulary.json" if separate else "shared_vocabulary.json")).read_text("utf-8")
    )
    assert names == vocabulary_names(model.source_tokenizer)
    spm = sentencepiece.SentencePieceProcessor(model_file=str(folder / ("source.spm" if separate else "joint.spm")))
    out = sentencepiece.SentencePieceProcessor(model_file=str(folder / ("target.spm" if separate else "joint.spm")))
    translator = ctranslate2.Translator(str(folder), intra_threads=1)
    texts = random_texts()
    translations = translator.translate_batch(
        [spm.encode(text, out_type=str) for text in texts],
        suppress_sequences=[["<pad>"], ["<s>"]],
        beam_size=1,
        max_decoding_length=12,
    )
    ours = model.generate(texts, preset="ctranslate2", beam=1, max_length=12)
    assert [out.decode(each.hypotheses[0]) for each in translations] == [each.text.removeprefix(" ") for each in ours]


def test_certificate_and_manifest_are_in_the_folder(tmp_path: Path) -> None:
    certificate = _export(word_model(), tmp_path / "out", "float16")
    written = json.loads((tmp_path / "out" / "certificate.json").read_text("utf-8"))
    assert written == json.loads(json.dumps(certificate.as_json()))
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text("utf-8"))
    assert manifest["facts"] == {"to": "ctranslate2", "precision": "float16", "longest": 2048}
    assert {"model.bin", "certificate.json", "joint.tokenizer.json"} <= manifest["files"].keys()


def test_a_word_tokenizer_is_noted(tmp_path: Path) -> None:
    assert _export(subword_model(), tmp_path / "pieces", "float32").notes == ()
    note = _export(word_model(), tmp_path / "words", "float32").notes[0]
    assert has_code("tokenizer_for_attendo_only", side="source", kind="words")(note)


def test_unsupported_networks_raise_and_leave_no_files(tmp_path: Path) -> None:
    model = word_model(positions="rotary", d_key=4, d_value=8)
    with pytest.raises(
        ModelError,
        check=has_code("ctranslate2_network_unsupported", reasons=has_code("rotary_keys_narrow", keys=4, values=8)),
    ):
        _export(model, tmp_path / "out", "float32")
    assert list(tmp_path.iterdir()) == []


def _export(model: TextModel, out: Path, precision: ExportPrecision) -> Certificate:
    return export(model, out, "ctranslate2", precision, random_sentences(model))
