"""Round trips of M2M100, NLLB and mBART keep weights, ids, languages, settings and answers."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from error_codes import has_code, message
from export_models import WORDS, random_sentences, word_model
from foreign_models import random_model, written
from foreign_tokenizers import some_lines, strange_texts, write_m2m100, write_mbart, write_nllb

from attendo.errors import ModelError
from attendo.interop.certificate import Certificate
from attendo.interop.export import export
from attendo.interop.huggingface.model_classes import M2M100, MBART
from attendo.interop.huggingface.write_folder import write_transformers
from attendo.interop.huggingface.write_tokenizers import (
    fairseq_permutation,
    has_language_prefix,
    write_multilingual_tokenizer,
)
from attendo.interop.import_model import from_folder
from attendo.text import BOS, Words
from attendo.text.imported_sentencepiece import ImportedSentencePiece
from attendo.text_model import TextModel

transformers = pytest.importorskip("transformers")

TEXTS = some_lines(count=6)
UNTIED: dict[str, Any] = {"tie_word_embeddings": False, "activation_function": "silu"}

Folder = tuple[Path, Any]  # the folder and its model


@pytest.fixture
def make_folder(tmp_path: Path) -> Callable[..., Folder]:
    """A function that writes a folder whose network has a few rows more than tokens."""

    def make(name: str, **changes: Any) -> Folder:
        """Answers begin with a language token. Its id is counted from the last token."""
        kind, write, ids_from_end = {
            "m2m100": ("m2m_100", lambda folder: len(write_m2m100(folder)) + 100, 80),
            "nllb": ("m2m_100", write_nllb, 1),
            "published nllb": ("m2m_100", partial(write_nllb, as_published=True), 2),
            "mbart": ("mbart", write_mbart, 20),
        }[name]
        folder = tmp_path / name
        folder.mkdir()
        count = write(folder)
        model = random_model(kind, vocab_size=count + 3, **changes)
        return written(model, folder, forced_bos_token_id=count - ids_from_end), model

    return make


@pytest.mark.short(1)
@pytest.mark.parametrize(
    ("name", "changes", "languages"),
    [
        ("m2m100", {}, ("en", None)),
        ("m2m100", {**UNTIED, "scale_embedding": False}, ("en", None)),
        ("nllb", {"activation_function": "gelu"}, (None, None)),
        ("published nllb", {}, (None, None)),
        ("mbart", {}, (None, None)),
        ("mbart", {**UNTIED, "scale_embedding": True}, (None, None)),
    ],
    ids=str,
)
def test_a_round_trip_keeps_the_model(
    make_folder: Callable[..., Folder],
    tmp_path: Path,
    name: str,
    changes: dict[str, Any],
    languages: tuple[str | None, str | None],
) -> None:
    first, before = make_folder(name, **changes)
    found = from_folder(first, True, *languages)
    certificate = _export(found.build_text_model(), tmp_path / "back")
    assert has_code("loaded_by_class", name=type(before).__name__)(certificate.notes[0])
    assert not any(note.code == "tokenizers_not_exported" for note in certificate.notes)

    after = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "back")
    unused = {"model.shared.weight"} if before.config.tie_word_embeddings is False else set()
    _assert_same_weights(after.state_dict(), before.state_dict(), unused)
    for setting in ("forced_bos_token_id", "bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id"):
        expected = getattr(transformers.GenerationConfig.from_pretrained(first), setting)
        assert getattr(after.generation_config, setting) == expected, setting
    tokenizers = [_tokenizer(folder, languages[0]) for folder in (first, tmp_path / "back")]
    for text in strange_texts():
        assert tokenizers[0](text).input_ids == tokenizers[1](text).input_ids, text
    answers = [_generate(folder, tokenizers[1], beam=4) for folder in (first, tmp_path / "back")]
    assert answers[0] == answers[1]
    assert len({tuple(row) for row in answers[0]}) > 3

    again = from_folder(tmp_path / "back")
    assert again.target.rows == found.target.rows
    assert again.target_tokenizer == found.target_tokenizer
    for prefix in ("source_prefix", "target_prefix"):
        assert again.generation[prefix] == found.generation[prefix]
    _assert_same_weights(again.network.state_dict(), found.network.state_dict())


@pytest.mark.parametrize("name", ["nllb", "mbart"])
def test_a_tokenizer_from_one_file_round_trips(make_folder: Callable[..., Folder], tmp_path: Path, name: str) -> None:
    first, _ = make_folder(name)
    (first / "sentencepiece.bpe.model").unlink()
    model = from_folder(first).build_text_model()
    assert write_multilingual_tokenizer(model, tmp_path, fairseq_permutation(model)) is None
    before, after = _tokenizer(first), _tokenizer(tmp_path)
    for text in strange_texts(7):
        assert after(text).input_ids == before(text).input_ids, text


def test_an_unlisted_mask_token_keeps_its_id(make_folder: Callable[..., Folder], tmp_path: Path) -> None:
    first, _ = make_folder("published nllb")
    expected = _tokenizer(first).get_vocab()
    (first / "tokenizer.json").unlink()
    (first / "special_tokens_map.json").write_text('{"additional_special_tokens": ["eng_Latn", "fra_Latn"]}', "utf-8")
    model = from_folder(first).build_text_model()
    assert "<mask>" not in model.source_tokenizer.symbols
    assert write_multilingual_tokenizer(model, tmp_path, fairseq_permutation(model)) is None
    assert _tokenizer(tmp_path).get_vocab() == expected


def test_the_language_can_be_chosen_after_the_export(make_folder: Callable[..., Folder], tmp_path: Path) -> None:
    first, network = make_folder("m2m100")
    found = from_folder(written(network, first))
    assert found.missing_languages == ("source", "target")
    model = found.build_text_model()
    assert has_language_prefix(model)
    assert write_multilingual_tokenizer(model, tmp_path, fairseq_permutation(model)) is None
    assert _tokenizer(tmp_path, "de")(TEXTS[0]).input_ids == _tokenizer(first, "de")(TEXTS[0]).input_ids


@pytest.mark.slow
def test_a_changed_start_token_gets_its_own_id(make_folder: Callable[..., Folder], tmp_path: Path) -> None:
    """This is the case after further training."""
    first, before = make_folder("mbart")
    model = from_folder(first).build_text_model()
    with torch.no_grad():
        model.network.target.tokens.weight[BOS] += 0.3
    certificate = _export(model, tmp_path / "back")
    assert [each.same_answers for each in certificate.searches] == [certificate.sentences] * 2
    settings = transformers.GenerationConfig.from_pretrained(tmp_path / "back")
    assert settings.decoder_start_token_id == before.config.vocab_size
    assert settings.suppress_tokens == [1, before.config.vocab_size]


def test_an_output_bias_is_rejected_for_m2m100(make_folder: Callable[..., Folder], tmp_path: Path) -> None:
    model = from_folder(make_folder("nllb")[0]).build_text_model()
    with torch.no_grad():
        model.network.output.bias[20] = 0.1
    with pytest.raises(
        ModelError,
        check=has_code(
            "transformers_network_unsupported", model="an M2M100 model", reasons="it has a bias on the logits"
        ),
    ):
        _export(model, tmp_path / "back")
    assert not (tmp_path / "back").exists()


def test_a_tokenizer_with_swapped_languages_is_not_exported(make_folder: Callable[..., Folder], tmp_path: Path) -> None:
    model = from_folder(make_folder("m2m100")[0], source_language="en").build_text_model()
    tokenizer = model.source_tokenizer
    assert isinstance(tokenizer, ImportedSentencePiece)
    swapped = {"__de__": "__fr__", "__fr__": "__de__"}
    names, symbols = ([swapped.get(each, each) for each in row] for row in (tokenizer.entries, tokenizer.symbols))
    other = replace(tokenizer, entries=tuple(names), symbols=tuple(symbols))
    stored = replace(model.stored_model, source_tokenizer=other, target_tokenizer=other)
    *_, left, sources = write_transformers(TextModel(stored), tmp_path, "float32")
    fault = has_code("tokens_have_other_ids", name="M2M100Tokenizer", count=2, total=261, piece="__fr__")
    assert has_code("tokenizers_not_exported", reason=fault)(left)
    assert has_code("sources_need_prefix_ids", ids=[179])(sources)
    names = {path.name for path in tmp_path.iterdir() if path.is_file()}
    assert names == {"config.json", "generation_config.json", "model.safetensors"}


def test_a_tokenizer_that_splits_differently_is_not_exported(tmp_path: Path) -> None:
    """MBart50Tokenizer adds a space before every text."""
    (folder := tmp_path / "mbart").mkdir()
    count = write_mbart(folder, add_dummy_prefix=False)
    model = from_folder(written(random_model("mbart", vocab_size=count), folder)).build_text_model()
    reason = write_multilingual_tokenizer(model, tmp_path, fairseq_permutation(model))
    assert has_code("texts_have_other_ids", name="MBart50Tokenizer")(reason)
    assert [path.name for path in tmp_path.iterdir()] == ["mbart"]


@pytest.mark.slow
def test_a_native_network_exports_as_m2m100(tmp_path: Path) -> None:
    """Positions start after the id of the pad token, for any id."""
    for offset in (2, 7):
        words = Words.build([" ".join(WORDS)])
        model = word_model(words=words, position_layout="fairseq", position_offset=offset, output_bias=True)
        with torch.no_grad():
            model.network.output.bias.zero_()
        certificate = _export(model, tmp_path / str(offset))
        assert certificate.largest_difference < 1e-4
        assert [each.same_answers for each in certificate.searches] == [certificate.sentences] * 2
        reason = has_code("tokenizer_kind_differs", name="NllbTokenizer", needed="foreign_pieces", kind="words")
        assert has_code("tokenizers_not_exported", reason=reason)(certificate.notes[-1])
        config = transformers.AutoConfig.from_pretrained(tmp_path / str(offset))
        assert config.pad_token_id == offset - 1


def test_m2m100_and_mbart_list_all_incompatibilities() -> None:
    config = word_model(norm="post", embedding_norm=True, norm_kind="rms").network.config
    assert [str(each) for each in M2M100.incompatibilities(config)] == [
        differing("norm", "post", "pre"),
        message("final_norm_missing"),
        message("embedding_norm_unsupported"),
        message("position_offset_not_after_token", offset=0),
        differing("position_layout", "interleaved", "fairseq"),
        differing("norm_kind", "rms", "layer"),
    ]
    assert [str(each) for each in MBART.incompatibilities(config)] == [
        differing("norm", "post", "pre"),
        message("final_norm_missing"),
        differing("positions", "sinusoidal", "learned"),
        differing("position_offset", 0, 2),
        differing("norm_kind", "rms", "layer"),
    ]


def differing(name: str, value: object, expected: object) -> str:
    return message("setting_differs", name=name, value=value, expected=expected)


def _export(model: TextModel, out: Path) -> Certificate:
    return export(model, out, "hf", "float32", random_sentences(model, 6))


def _tokenizer(folder: Path, language: str | None = None) -> Any:
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    if language is not None:
        tokenizer.src_lang = language
    return tokenizer


def _generate(folder: Path, tokenizer: Any, beam: int) -> Sequence[Sequence[int]]:
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder)
    model.generation_config.suppress_tokens = [1]
    inputs = tokenizer(TEXTS, return_tensors="pt", padding=True)
    settings = {"max_new_tokens": 10, "min_new_tokens": 4, "max_length": None, "forced_eos_token_id": None}
    return [row for width in (1, beam) for row in model.generate(**inputs, num_beams=width, **settings).tolist()]


def _assert_same_weights(ours: dict[str, Any], theirs: dict[str, Any], unused: Collection[str] = ()) -> None:
    assert ours.keys() == theirs.keys()
    for name in ours.keys() - {*unused}:
        assert torch.equal(ours[name], theirs[name]), name
