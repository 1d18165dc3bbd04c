"""Imported models are exported to their system or to another one, with tokenizers and prefixes."""

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from error_codes import has_code
from export_models import WORDS, random_sentences, word_model
from foreign_models import random_model, written
from foreign_tokenizers import some_lines, write_bart, write_marian

from attendo.errors import ModelError
from attendo.interop.argos import LanguagePair
from attendo.interop.certify import collect_sentences
from attendo.interop.export import export
from attendo.interop.huggingface.model_classes import BART
from attendo.interop.import_model import from_folder
from attendo.text import Words
from attendo.text_model import TextModel

transformers = pytest.importorskip("transformers")
pytest.importorskip("ctranslate2")

TEXTS = some_lines(count=6)


@pytest.fixture(scope="module")
def marian(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in the format of OPUS-MT."""
    folder = tmp_path_factory.mktemp("marian")
    vocabulary = write_marian(folder)
    pad = vocabulary["<pad>"]
    model = random_model(
        "marian", vocab_size=len(vocabulary), pad_token_id=pad, decoder_start_token_id=pad, eos_token_id=0
    )
    return written(model, folder)


@pytest.mark.slow
def test_marian_round_trip_keeps_the_answers(marian: Path, tmp_path: Path) -> None:
    model = from_folder(marian).build_text_model()
    export(model, tmp_path / "back", "hf", "float32", random_sentences(model, 6))
    assert generate_marian(tmp_path / "back") == generate_marian(marian)
    assert len(set(generate_marian(marian))) > 3


@pytest.mark.slow
@pytest.mark.parametrize("tied", [True, False])
def test_bart_round_trip_keeps_ids_and_answers(tmp_path: Path, tied: bool) -> None:
    size = len(write_bart(tmp_path))
    bart = written(random_model("bart", vocab_size=size, tie_word_embeddings=tied), tmp_path)
    model = from_folder(bart).build_text_model()
    certificate = export(model, tmp_path / "back", "hf", "float32", random_sentences(model, 6))
    assert has_code("loaded_by_class", name="BartForConditionalGeneration")(certificate.notes[0])
    before, after = (transformers.AutoTokenizer.from_pretrained(folder) for folder in (bart, tmp_path / "back"))
    assert after(TEXTS).input_ids == before(TEXTS).input_ids
    assert generate_bart(tmp_path / "back") == generate_bart(bart)
    assert len(set(generate_bart(bart))) > 3


def test_bart_lists_all_incompatibilities() -> None:
    changes = {"norm": "pre", "activation": "swiglu", "position_offset": 0}
    found = BART.incompatibilities(word_model(positions="learned", **changes).network.config)
    expected = [
        has_code("setting_differs", name="norm", value="pre", expected="post"),
        has_code("final_norm_unsupported"),
        has_code("embedding_norm_missing"),
        has_code("setting_differs", name="position_offset", value=0, expected=2),
        has_code("gated_activation_unsupported", activation="swiglu"),
    ]
    assert all(check(reason) for check, reason in zip(expected, found, strict=True))


@pytest.mark.slow
def test_imported_marian_exports_to_ctranslate2_and_argos(marian: Path, tmp_path: Path) -> None:
    model = from_folder(marian).build_text_model()
    sentences = random_sentences(model, 6)
    assert export(model, tmp_path / "ct2", "ctranslate2", "float32", sentences).notes == ()
    package = tmp_path / "a.argosmodel"
    assert export(model, package, "argos", "float32", sentences, LanguagePair("en", "de")).passed


def test_prefixes_are_exported_if_the_format_supports_them(tmp_path: Path) -> None:
    model = _with_prefixes()
    sentences = collect_sentences(model, [" ".join(WORDS[:3]), WORDS[7]], min_count=8)
    assert all(source[0] == 4 for source in sentences.sources)
    certificate = export(model, tmp_path / "ct2", "ctranslate2", "float32", sentences)
    assert [each.same_answers for each in certificate.searches] == [8, 8]
    with pytest.raises(
        ModelError,
        check=has_code(
            "transformers_network_unsupported",
            model="a Pegasus model",
            reasons=has_code("source_prefix_unsupported", prefix="<en>"),
        ),
    ):
        export(model, tmp_path / "hf", "hf", "float32", sentences)
    assert [each.name for each in tmp_path.iterdir()] == ["ct2"]


def test_sources_leave_room_for_their_answers(tmp_path: Path) -> None:
    model = word_model(positions="learned", max_length=24)
    sentences = collect_sentences(model, [" ".join(WORDS), WORDS[0]], min_count=6)
    assert max(map(len, sentences.sources)) <= 8
    assert export(model, tmp_path / "out", "ctranslate2", "float32", sentences).sentences == 6


def _with_prefixes() -> TextModel:
    words = Words.build([" ".join(WORDS)], symbols=["<en>", "<de>"])
    model = word_model(words=words)
    generation = {**model.stored_model.generation, "source_prefix": ["<en>"], "target_prefix": ["<de>"]}
    return TextModel(replace(model.stored_model, generation=generation))


def generate_bart(folder: Path) -> list[str]:
    model: Any = transformers.BartForConditionalGeneration.from_pretrained(folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    settings = model.generation_config
    settings.forced_eos_token_id, settings.suppress_tokens = None, [model.config.pad_token_id]
    inputs = tokenizer(TEXTS, return_tensors="pt", padding=True)
    outputs = model.generate(**inputs, max_new_tokens=12, min_new_tokens=4, max_length=None, num_beams=4)
    return tokenizer.batch_decode(outputs, skip_special_tokens=True)


def generate_marian(folder: Path) -> list[str]:
    model: Any = transformers.MarianMTModel.from_pretrained(folder)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the tokenizer recommends another package
        tokenizer = transformers.MarianTokenizer.from_pretrained(folder)
    inputs = tokenizer(TEXTS, return_tensors="pt", padding=True)
    forbidden = [[model.config.pad_token_id]]
    for setting in ("suppress_tokens", "forced_eos_token_id"):
        setattr(model.generation_config, setting, None)
    outputs = model.generate(**inputs, max_new_tokens=12, max_length=None, num_beams=4, bad_words_ids=forbidden)
    return tokenizer.batch_decode(outputs, skip_special_tokens=True)
