"""Tokenizers of imported models against those of transformers: the same ids and the same decoded text."""

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from error_codes import has_code
from foreign_models import random_model, written
from foreign_tokenizers import pieces_model, some_lines, strange_texts, write_bart, write_m2m100, write_marian

from attendo.errors import ModelError
from attendo.interop.huggingface.imported import ImportedModel
from attendo.interop.import_model import from_folder
from attendo.text import EOS, UNK, Tokenizer, load_tokenizer

transformers = pytest.importorskip("transformers")

Make = Callable[..., tuple[ImportedModel, dict[str, int]]]


@pytest.fixture
def make_model(tmp_path: Path) -> Make:
    def make(kind: str, write: Callable[[Path], dict[str, int]], extra: int = 0, **changes: Any) -> Any:
        vocabulary = write(tmp_path)
        size = len(vocabulary) + extra
        special_ids: dict[str, Any] = (
            {"pad_token_id": size - 1, "decoder_start_token_id": size - 1} if kind == "marian" else {}
        )
        written(random_model(kind, vocab_size=size, **special_ids), tmp_path)
        return from_folder(tmp_path, **changes), vocabulary

    return make


def without_warnings(make: Callable[..., Any], *names: str, **settings: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the tokenizer recommends sacremoses
        return make(*names, **settings)


def assert_same_ids(ours: Tokenizer, theirs: Any, order: Any, texts: list[str]) -> None:
    for text in texts:
        expected = theirs(text, add_special_tokens=False).input_ids
        assert order.to_theirs(ours.encode(text)) == expected, text


@pytest.mark.parametrize("languages", [False, True])
def test_marian_ids_and_texts_are_equal(make_model: Make, tmp_path: Path, languages: bool) -> None:
    found, _ = make_model("marian", lambda folder: write_marian(folder, languages))
    names = [str(tmp_path / name) for name in ("source.spm", "target.spm", "vocab.json")]
    theirs = without_warnings(transformers.MarianTokenizer, *names)
    source, target = found.source_tokenizer, found.target_tokenizer
    assert source is not None
    assert target is not None
    texts = [text for text in strange_texts() if text == text.strip()]
    texts += [f">>fr<< {text}" for text in some_lines(3, 4)] if languages else []
    assert_same_ids(source, theirs, found.source, texts)
    for text in strange_texts(6):
        assert (
            found.target.to_theirs(target.encode(text)) == theirs(text_target=text, add_special_tokens=False).input_ids
        )
    for text in some_lines(1, 30):
        ids = target.encode(text)
        assert target.decode(ids) == theirs.decode(found.target.to_theirs(ids), skip_special_tokens=True)
    assert any(UNK in source.encode(text) for text in texts)


def test_m2m100_ids_and_languages_are_equal(make_model: Make, tmp_path: Path) -> None:
    found, vocabulary = make_model("m2m_100", write_m2m100, extra=108, source_language="en", target_language="fr")
    theirs = transformers.M2M100Tokenizer(
        str(tmp_path / "vocab.json"), str(tmp_path / "sentencepiece.bpe.model"), src_lang="en"
    )
    ours = found.source_tokenizer
    assert ours is not None
    without_a_piece = found.source.size - 3  # a row without a piece; its number in a text is plain text
    assert_same_ids(ours, theirs, found.source, [*strange_texts(), f"<{without_a_piece}>", f"<row {without_a_piece}>"])
    assert found.generation["source_prefix"] == ["__en__"]
    assert found.generation["target_prefix"] == ["__fr__"]
    french = EOS + 1 + ours.symbols.index("__fr__")
    assert found.target.to_theirs([french]) == [theirs.get_lang_id("fr")]
    ids = ours.encode(some_lines(0, 1)[0])
    assert ours.decode([french, *ids]) == some_lines(0, 1)[0]
    assert ours.pieces([french]) == ["__fr__"]
    assert ours.vocab_size == len(vocabulary) + 108 + 1


@pytest.mark.parametrize("beam", [1, 4])
def test_m2m100_answers_begin_with_the_language(make_model: Make, tmp_path: Path, beam: int) -> None:
    """As with forced_bos_token_id, the token counts for the length and has no cost."""
    found, _ = make_model("m2m_100", write_m2m100, extra=108, source_language="en", target_language="fr")
    with torch.no_grad():  # so that answers end at different lengths
        found.network.output.bias[EOS] = 2.7
    model, texts = found.build_text_model(), some_lines(0, 12)
    results = model.generate(texts, preset="hf", beam=beam, max_length=9)
    theirs = transformers.M2M100Tokenizer(
        str(tmp_path / "vocab.json"), str(tmp_path / "sentencepiece.bpe.model"), src_lang="en"
    )
    network = transformers.M2M100ForConditionalGeneration.from_pretrained(tmp_path)
    network.lm_head.bias = torch.nn.Parameter(torch.zeros(network.config.vocab_size))
    network.lm_head.bias.data[2] = 2.7
    french = theirs.get_lang_id("fr")
    output = network.generate(
        **theirs(texts, return_tensors="pt", padding=True),
        forced_bos_token_id=french,
        max_new_tokens=9,
        num_beams=beam,
        suppress_tokens=[1],
    )
    for result, row in zip(results, output.tolist(), strict=True):
        assert found.target.to_theirs(result.ids) == [each for each in row[1:] if each not in (1, 2)]
        assert result.pieces[0] == "__fr__"
        assert "__fr__" not in result.text
    assert len({len(result.ids) for result in results}) > 1


@pytest.mark.short(1)
@pytest.mark.parametrize("in_one_file", [False, True])
def test_bart_ids_are_equal(make_model: Make, tmp_path: Path, in_one_file: bool) -> None:
    def write(folder: Path) -> dict[str, int]:
        vocabulary = write_bart(folder)
        if in_one_file:
            transformers.BartTokenizer.from_pretrained(folder).save_pretrained(folder)
            (folder / "vocab.json").unlink()
            (folder / "merges.txt").unlink()
        return vocabulary

    found, _ = make_model("bart", write)
    theirs = transformers.BartTokenizer.from_pretrained(tmp_path)
    ours = found.source_tokenizer
    assert ours is not None
    texts = strange_texts(count=200)
    assert_same_ids(ours, theirs, found.source, texts)
    for text in texts:
        if UNK not in ours.encode(text):
            assert ours.decode(ours.encode(text)) == text
    assert found.generation["source_prefix"] == ["<<s>>"]
    begin = EOS + 1 + ours.symbols.index("<<s>>")
    text = some_lines(0, 1)[0]
    assert found.source.to_theirs([begin, *ours.encode(text), EOS]) == theirs(text).input_ids


@pytest.mark.parametrize(
    ("kind", "write", "extra"), [("marian", write_marian, 0), ("m2m_100", write_m2m100, 108), ("bart", write_bart, 0)]
)
def test_saved_tokenizers_load_again(
    make_model: Make, tmp_path: Path, kind: str, write: Callable[[Path], dict[str, int]], extra: int
) -> None:
    found, _ = make_model(kind, write, extra)
    ours = found.target_tokenizer
    assert ours is not None
    folder = tmp_path / "saved"
    folder.mkdir()
    assert all(path.is_file() for path in ours.save(folder, "target"))
    again = load_tokenizer(folder, "target")
    assert again == ours
    texts = strange_texts()
    assert again.encode_many(texts) == [ours.encode(text) for text in texts]


@pytest.mark.parametrize("files", [("sentencepiece.bpe.model", "tokenizer.json"), ("tokenizer.json",)])
def test_nllb_ids_are_equal(make_model: Make, tmp_path: Path, files: tuple[str, ...]) -> None:
    """Its ids are those of SentencePiece plus 1. tokenizer.json has the ids of the languages and all the rest."""
    folder = tmp_path / "files"
    folder.mkdir()
    write_m2m100(folder)
    (folder / "vocab.json").unlink()
    codes = ["eng_Latn", "fra_Latn"]
    theirs = transformers.NllbTokenizer.from_pretrained(folder, src_lang="eng_Latn", extra_special_tokens=codes)
    theirs.save_pretrained(folder)
    found, _ = make_model("m2m_100", copy_files(folder, files, theirs), target_language="fra_Latn")
    ours = found.source_tokenizer
    assert ours is not None
    assert found.generation["source_prefix"] == ["eng_Latn"]
    assert_same_ids(ours, theirs, found.source, [*some_lines(0, 30), "Äh, ß!", "猫 ab", "ﬁx  it…"])
    english = EOS + 1 + ours.symbols.index("eng_Latn")
    text = some_lines(0, 1)[0]
    assert found.source.to_theirs([english, *ours.encode(text), EOS]) == theirs(text).input_ids
    assert set(ours.symbols) >= {"eng_Latn", "fra_Latn", "<mask>"}


@pytest.mark.parametrize("files", [("sentencepiece.bpe.model", "tokenizer.json"), ("tokenizer.json",)])
def test_mbart50_ids_are_equal(make_model: Make, tmp_path: Path, files: tuple[str, ...]) -> None:
    folder, theirs = mbart(tmp_path, transformers.MBart50Tokenizer)
    found, _ = make_model("mbart", copy_files(folder, files, theirs), target_language="de_DE")
    ours = found.source_tokenizer
    assert ours is not None
    assert (found.generation["source_prefix"], found.generation["target_prefix"]) == (["en_XX"], ["de_DE"])
    assert_same_ids(ours, theirs, found.source, [*some_lines(0, 30), "Äh, ß!", "猫 ab", "ﬁx  it…"])
    english = EOS + 1 + ours.symbols.index("en_XX")
    text = some_lines(0, 1)[0]
    assert found.source.to_theirs([english, *ours.encode(text), EOS]) == theirs(text).input_ids
    assert ours.decode(ours.encode(text)) == text


def test_other_tokenizer_types_are_rejected(make_model: Make, tmp_path: Path) -> None:
    folder, theirs = mbart(tmp_path, transformers.MBart50Tokenizer)
    path = folder / "tokenizer.json"
    content = json.loads(path.read_text("utf-8"))
    for model, message in (
        (
            {"type": "WordPiece", "vocab": {}},
            has_code("tokenizer_json_type_unsupported", found="WordPiece", supported="Unigram and BPE"),
        ),
        (
            {**content["model"], "byte_fallback": True},
            has_code("tokenizer_json_type_unsupported", found="Unigram + byte_fallback"),
        ),
        ({"type": "Unigram", "vocab": [["a"]]}, has_code("tokenizer_json_damaged")),
        ({"type": "BPE", "vocab": {"a": 1}, "merges": ["a"]}, has_code("tokenizer_json_damaged")),
    ):
        path.write_text(json.dumps({**content, "model": model}), "utf-8")
        with pytest.raises(ModelError, check=message):
            make_model("mbart", copy_files(folder, ("tokenizer.json",), theirs))


def mbart(folder: Path, kind: Any) -> tuple[Path, Any]:
    """The folder with the files of a tokenizer, and the tokenizer of transformers."""
    folder = folder / "files"
    folder.mkdir()
    (folder / "sentencepiece.bpe.model").write_bytes(pieces_model(some_lines(), "unigram"))
    theirs = kind.from_pretrained(folder, src_lang="en_XX")
    theirs.save_pretrained(folder)
    return folder, theirs


def copy_files(folder: Path, files: tuple[str, ...], theirs: Any) -> Callable[[Path], dict[str, int]]:
    def write(destination: Path) -> dict[str, int]:
        for name in (*files, "tokenizer_config.json"):
            (destination / name).write_bytes((folder / name).read_bytes())
        return dict.fromkeys(map(str, range(len(theirs))), 0)

    return write
