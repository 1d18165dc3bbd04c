"""What came from another system goes back to it, or on to a third, with its tokenizers and its prefixes."""

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from error_codes import has_code
from exported import WORDS, some_sentences, wordy
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
    """A folder as OPUS-MT has them."""
    folder = tmp_path_factory.mktemp("marian")
    vocabulary = write_marian(folder)
    pad = vocabulary["<pad>"]
    model = random_model(
        "marian", vocab_size=len(vocabulary), pad_token_id=pad, decoder_start_token_id=pad, eos_token_id=0
    )
    return written(model, folder)


@pytest.mark.slow
def test_marian_comes_back_with_the_same_texts_for_the_same_texts(marian: Path, tmp_path: Path) -> None:
    model = from_folder(marian).build_text_model()
    export(model, tmp_path / "back", "hf", "float32", some_sentences(model, 6))
    assert _told(tmp_path / "back") == _told(marian)
    assert len(set(_told(marian))) > 3


@pytest.mark.slow
@pytest.mark.parametrize("tied", [True, False])
def test_bart_comes_back_with_the_same_texts_for_the_same_texts(tmp_path: Path, tied: bool) -> None:
    size = len(write_bart(tmp_path))
    bart = written(random_model("bart", vocab_size=size, tie_word_embeddings=tied), tmp_path)
    model = from_folder(bart).build_text_model()
    certificate = export(model, tmp_path / "back", "hf", "float32", some_sentences(model, 6))
    assert certificate.notes[0].startswith("BartForConditionalGeneration loads it")
    before, behind = (transformers.AutoTokenizer.from_pretrained(folder) for folder in (bart, tmp_path / "back"))
    assert behind(TEXTS).input_ids == before(TEXTS).input_ids
    assert _told_by_bart(tmp_path / "back") == _told_by_bart(bart)
    assert len(set(_told_by_bart(bart))) > 3


def test_what_bart_cannot_hold_is_told_in_full() -> None:
    changes = {"norm": "pre", "activation": "swiglu", "position_offset": 0}
    reasons = ["norm is pre, not post", "it has a norm behind each stack", "it has no norm on the embedding"]
    told = [*reasons, "position_offset is 0, not 2", "activation is swiglu, which has a gate"]
    assert BART.incompatibilities(wordy(positions="learned", **changes).network.config) == told


@pytest.mark.slow
def test_marian_goes_on_to_ctranslate2_and_argos(marian: Path, tmp_path: Path) -> None:
    model = from_folder(marian).build_text_model()
    sentences = some_sentences(model, 6)
    assert export(model, tmp_path / "ct2", "ctranslate2", "float32", sentences).notes == ()
    package = tmp_path / "a.argosmodel"
    assert export(model, package, "argos", "float32", sentences, LanguagePair("en", "de")).passed


def test_prefixes_go_along_where_a_format_has_a_place_for_them(tmp_path: Path) -> None:
    model = _with_prefixes()
    sentences = collect_sentences(model, [" ".join(WORDS[:3]), WORDS[7]], min_count=8)
    assert all(source[0] == 4 for source in sentences.sources)
    certificate = export(model, tmp_path / "ct2", "ctranslate2", "float32", sentences)
    assert [each.same_answers for each in certificate.searches] == [8, 8]
    with pytest.raises(
        ModelError,
        check=has_code(
            "transformers_network_unsupported", model="a Pegasus model", reasons="it puts <en> before every source"
        ),
    ):
        export(model, tmp_path / "hf", "hf", "float32", sentences)
    assert [each.name for each in tmp_path.iterdir()] == ["ct2"]


def test_sources_leave_room_for_their_answers(tmp_path: Path) -> None:
    model = wordy(positions="learned", max_length=24)
    sentences = collect_sentences(model, [" ".join(WORDS), WORDS[0]], min_count=6)
    assert max(map(len, sentences.sources)) <= 8
    assert export(model, tmp_path / "out", "ctranslate2", "float32", sentences).sentences == 6


def _with_prefixes() -> TextModel:
    words = Words.build([" ".join(WORDS)], symbols=["<en>", "<de>"])
    model = wordy(words=words)
    generation = {**model.stored_model.generation, "source_prefix": ["<en>"], "target_prefix": ["<de>"]}
    return TextModel(replace(model.stored_model, generation=generation))


def _told_by_bart(folder: Path) -> list[str]:
    model: Any = transformers.BartForConditionalGeneration.from_pretrained(folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    settings = model.generation_config
    settings.forced_eos_token_id, settings.suppress_tokens = None, [model.config.pad_token_id]
    given = tokenizer(TEXTS, return_tensors="pt", padding=True)
    said = model.generate(**given, max_new_tokens=12, min_new_tokens=4, max_length=None, num_beams=4)
    return tokenizer.batch_decode(said, skip_special_tokens=True)


def _told(folder: Path) -> list[str]:
    model: Any = transformers.MarianMTModel.from_pretrained(folder)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it recommends another package
        tokenizer = transformers.MarianTokenizer.from_pretrained(folder)
    given = tokenizer(TEXTS, return_tensors="pt", padding=True)
    never = [[model.config.pad_token_id]]
    for setting in ("suppress_tokens", "forced_eos_token_id"):
        setattr(model.generation_config, setting, None)
    said = model.generate(**given, max_new_tokens=12, max_length=None, num_beams=4, bad_words_ids=never)
    return tokenizer.batch_decode(said, skip_special_tokens=True)
