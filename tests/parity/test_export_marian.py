"""Exports to transformers: from_pretrained loads the folder, and answers and tokenization are the same."""

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from error_codes import has_code, message
from export_models import MARIAN, WORDS, random_sentences, random_texts, subword_model, word_model

from attendo.errors import ModelError, UsageError
from attendo.interop.certificate import Certificate
from attendo.interop.export import ModelMismatchError, export
from attendo.interop.exported_files import ExportPrecision
from attendo.interop.huggingface.model_classes import HFModelClass
from attendo.text import BOS, EOS, PAD, Words
from attendo.text_model import TextModel

transformers = pytest.importorskip("transformers")


@pytest.mark.short(1)
@pytest.mark.parametrize(
    "changes", [{"tie": "output", "activation": "gelu"}, {"tie": "all", "activation": "silu"}], ids=str
)
def test_the_certificate_passes(tmp_path: Path, changes: dict[str, Any], capfd: pytest.CaptureFixture[str]) -> None:
    certificate = _export(word_model(**MARIAN, **changes), tmp_path / "out")
    assert certificate.mean_difference is not None
    assert certificate.mean_difference < 1e-5
    assert [each.same_answers for each in certificate.searches] == [certificate.sentences] * 2
    assert capfd.readouterr().err == ""  # transformers prints no progress bars


@pytest.mark.slow
@pytest.mark.parametrize("changes", [{"tie": "none"}, {"tie": "output", "activation": "gelu"}], ids=str)
def test_pre_norm_models_export_as_pegasus(tmp_path: Path, changes: dict[str, Any]) -> None:
    certificate = _export(word_model(norm="pre", **changes), tmp_path / "out")
    assert certificate.mean_difference is not None
    assert certificate.mean_difference < 1e-5
    assert [each.same_answers for each in certificate.searches] == [certificate.sentences] * 2
    loaded = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "out")
    assert isinstance(loaded, transformers.PegasusForConditionalGeneration)


def test_interleaved_sinusoids_are_reordered(tmp_path: Path) -> None:
    certificate = _export(word_model(norm="post", position_layout="interleaved", tie="all"), tmp_path / "out")
    assert certificate.mean_difference is not None
    assert certificate.mean_difference < 1e-5


@pytest.mark.slow
def test_float16_passes(tmp_path: Path) -> None:
    certificate = _export(word_model(**MARIAN), tmp_path / "out", "float16")
    assert certificate.mean_difference is not None
    assert 1e-5 < certificate.mean_difference < 1e-2
    assert transformers.MarianMTModel.from_pretrained(tmp_path / "out").dtype == torch.float16


@pytest.mark.short(1)
@pytest.mark.parametrize(
    "changes",
    [{"norm": "post", "tie": "all"}, {"norm": "post", "separate": True}, {"norm": "pre", "tie": "all"}],
    ids=str,
)
def test_transformers_alone_translates_text(tmp_path: Path, changes: dict[str, Any]) -> None:
    model = subword_model(**changes)
    _export(model, tmp_path / "out")
    theirs = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "out")
    tokenizer = _tokenizer(tmp_path / "out")
    assert isinstance(tokenizer, transformers.MarianTokenizer)
    settings = theirs.generation_config
    assert (settings.max_length, settings.num_beams, settings.decoder_start_token_id) == (512, 1, BOS)
    assert settings.suppress_tokens == [PAD, BOS]
    settings.max_length = None
    texts = random_texts()
    for text in texts:
        assert tokenizer(text).input_ids == [*model.source_tokenizer.encode(text), EOS]
        assert tokenizer(text_target=text).input_ids == [*model.target_tokenizer.encode(text), EOS]
    inputs = tokenizer(texts, return_tensors="pt", padding=True)
    output = theirs.generate(**inputs, max_new_tokens=12, num_beams=1)
    ours = model.generate(texts, preset="hf", beam=1, max_length=12)
    assert [[each for each in row if each not in (PAD, BOS, EOS)] for row in output.tolist()] == [
        list(each.ids) for each in ours
    ]
    # MarianTokenizer strips white space at both ends.
    assert [text.strip() for text in tokenizer.batch_decode(output, skip_special_tokens=True)] == [
        each.text.strip() for each in ours
    ]


def test_a_word_tokenizer_is_not_exported_and_noted(tmp_path: Path) -> None:
    certificate = _export(word_model(**MARIAN), tmp_path / "out")
    reason = message(
        "tokenizer_kind_differs", name="MarianTokenizer", needed="sentencepiece", side="source", kind="words"
    )
    assert has_code("tokenizers_not_exported", reason=reason)(certificate.notes[-1])
    assert not list((tmp_path / "out").glob("*.spm"))


def test_a_different_weight_raises_and_leaves_no_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, other = word_model(**MARIAN), word_model(**MARIAN)
    with torch.no_grad():
        other.network.decoder[0].get_submodule("cross_attention.output").get_parameter("bias")[0] += 0.5
    build = HFModelClass.build
    monkeypatch.setattr(HFModelClass, "build", lambda kind, network, *more: build(kind, other.network, *more))
    with pytest.raises(ModelMismatchError, check=has_code("converted_model_differs")):
        _export(model, tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_unsupported_models_raise_and_leave_no_files(tmp_path: Path) -> None:
    with pytest.raises(
        ModelError,
        check=has_code(
            "transformers_network_unsupported", model="a MarianMTModel", reasons="norm_kind is rms, not layer"
        ),
    ):
        _export(word_model(**MARIAN, norm_kind="rms"), tmp_path / "out")
    words = Words.build([" ".join(WORDS)], symbols=("<a>", "<b>"))
    prefixes = {"source_prefix": ["<a>"], "target_prefix": ["<a>", "<b>"]}
    several = _with_generation(word_model(words=words, norm="post", positions="learned"), prefixes)
    reasons = [
        message("source_prefix_unsupported", prefix="<a>"),
        message("target_prefix_too_long", prefix="<a> <b>"),
        message("setting_differs", name="positions", value="learned", expected="sinusoidal"),
    ]
    with pytest.raises(
        ModelError,
        check=has_code("transformers_network_unsupported", model="a MarianMTModel", reasons="; ".join(reasons)),
    ):
        _export(several, tmp_path / "out")
    with pytest.raises(ModelError, check=has_code("transformers_network_unsupported", model="a Pegasus model")):
        _export(subword_model(separate=True, norm="pre"), tmp_path / "out")
    with pytest.raises(UsageError, check=has_code("hf_int8_unsupported")):
        _export(word_model(**MARIAN), tmp_path / "out", "int8")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_the_class_that_loads_it_is_noted(tmp_path: Path) -> None:
    note = _export(word_model(**MARIAN), tmp_path / "post").notes[0]
    assert has_code("loaded_by_class", name="MarianMTModel")(note)
    note = _export(word_model(norm="pre"), tmp_path / "pre").notes[0]
    assert has_code("loaded_by_pegasus_class", name="PegasusForConditionalGeneration")(note)


def test_the_target_prefix_is_exported(tmp_path: Path) -> None:
    settings = {"max_length_factor": 0.0, "max_length_extra": 12, "at_limit": "any"}
    model = _with_generation(
        subword_model(**MARIAN, tie="all", symbols=("<de>",)), {"target_prefix": ["<de>"], **settings}
    )
    _export(model, tmp_path / "out")
    theirs = transformers.MarianMTModel.from_pretrained(tmp_path / "out")
    tokenizer, texts = _tokenizer(tmp_path / "out"), random_texts(8)
    begin_id = theirs.generation_config.forced_bos_token_id
    assert model.target_tokenizer.pieces([begin_id]) == ["<de>"]
    output = theirs.generate(**tokenizer(texts, return_tensors="pt", padding=True)).tolist()
    ours = [list(each.ids) for each in model.generate(texts)]
    assert [[each for each in row if each not in (PAD, BOS, EOS)] for row in output] == ours


def _with_generation(model: TextModel, generation: dict[str, Any]) -> TextModel:
    return TextModel(replace(model.stored_model, generation=generation))


def _export(model: TextModel, out: Path, precision: ExportPrecision = "float32") -> Certificate:
    sentences = random_sentences(model, 6)
    return export(model, out, "hf", precision, sentences)


def _tokenizer(folder: Path) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the tokenizer recommends another package
        return transformers.AutoTokenizer.from_pretrained(folder)
