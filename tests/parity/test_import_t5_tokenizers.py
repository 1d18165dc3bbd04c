"""Tokenizers of imported T5 models against those of transformers and SentencePiece."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from error_codes import has_code
from foreign_t5 import (
    BYTE_ROWS,
    NUM_SENTINELS,
    random_t5,
    write_byt5,
    write_codet5,
    write_json,
    write_spiece,
    write_t5,
)
from foreign_tokenizers import pieces_model, some_lines, strange_texts
from sentencepiece import SentencePieceProcessor

from attendo.errors import ModelError
from attendo.interop.huggingface.imported import ImportedModel
from attendo.interop.huggingface.read_tokenizers import compare_tokenizations
from attendo.interop.import_model import from_folder
from attendo.text import EOS, UNK, Tokenizer, load_tokenizer
from attendo.text_model.inputs import ModelSymbols

transformers = pytest.importorskip("transformers")

SENTINEL_TEXTS = ["ab <extra_id_0>cd  <extra_id_1> ab", "<extra_id_7>", "x<extra_id_0>.", "<extra_id_9> is text"]
TINY = {"d_model": 8, "d_kv": 4, "d_ff": 8, "num_layers": 1, "num_decoder_layers": 1, "num_heads": 2}


def read(folder: Path, rows: int, kind: str = "t5", **changes: Any) -> ImportedModel:
    write_t5(folder, random_t5(kind, **{**TINY, "vocab_size": rows, **changes}))
    return from_folder(folder)


def tokenizer_of(found: ImportedModel) -> Tokenizer:
    assert found.source_tokenizer is not None
    assert found.source_tokenizer is found.target_tokenizer
    return found.source_tokenizer


def assert_same_ids(found: ImportedModel, theirs: Any, texts: list[str]) -> None:
    for text in texts:
        ours = [*tokenizer_of(found).encode(text), EOS]
        assert found.source.to_theirs(ours) == theirs(text).input_ids, text


@pytest.mark.parametrize("alone", [False, True])
def test_sentencepiece_ids_are_equal(tmp_path: Path, alone: bool) -> None:
    """With spiece.model, or with tokenizer.json alone, as transformers 5 writes it. Two rows have no piece."""
    write_spiece(tmp_path)
    theirs = transformers.T5Tokenizer.from_pretrained(tmp_path)
    if alone:
        (tmp_path / "spiece.model").unlink()
        theirs.save_pretrained(tmp_path)
    found = read(tmp_path, len(theirs) + 2)
    assert_same_ids(found, theirs, [*strange_texts(), *SENTINEL_TEXTS])
    ours = tokenizer_of(found)
    assert ours.symbols == tuple(f"<extra_id_{n}>" for n in reversed(range(NUM_SENTINELS)))
    assert ours.vocab_size == len(theirs) + 3
    for text in some_lines(1, 10):
        assert ours.decode(ours.encode(text)) == theirs.decode(theirs(text).input_ids, skip_special_tokens=True)


def write_fallback(folder: Path) -> bytes:
    return write_spiece(folder, 420, 0, byte_fallback=True, user_defined_symbols=["<2de>", "<2fr>"])


@pytest.mark.parametrize("alone", [False, True])
def test_byte_fallback_and_tags_follow_sentencepiece(tmp_path: Path, alone: bool) -> None:
    """transformers writes unk for bytes, and drops the space before a tag. The certificate reports this and passes."""
    oracle = SentencePieceProcessor(model_proto=write_fallback(tmp_path))
    theirs = transformers.T5Tokenizer.from_pretrained(tmp_path)
    if alone:
        (tmp_path / "spiece.model").unlink()
        theirs.save_pretrained(tmp_path)
    found = read(tmp_path, oracle.vocab_size())
    ours, texts = tokenizer_of(found), ["<2de> ab 🙂🙂 cd", "猫x", "<2fr> é", "ab<2de>", *strange_texts()]
    for text in texts:
        assert found.source.to_theirs(ours.encode(text)) == oracle.encode(text.replace("\n", " ")), text
    assert ours.decode(ours.encode("ab 🙂 猫")) == "ab 🙂 猫"
    compared = compare_tokenizations((tmp_path, "t5"), found.source, ours, ModelSymbols(), texts)
    assert compared.agrees
    assert compared.summary.code == "texts_differ_by_sentencepiece"


def test_another_difference_is_not_excused(tmp_path: Path) -> None:
    write_fallback(tmp_path)
    found = read(tmp_path, 420)
    other = tmp_path / "other"
    other.mkdir()
    write_spiece(other, 300, 0, byte_fallback=True)
    compared = compare_tokenizations(
        (other, "t5"), found.source, tokenizer_of(found), ModelSymbols(), some_lines(2, 20)
    )
    assert not compared.agrees


def test_mt5_sentinels_are_pieces(tmp_path: Path) -> None:
    """Its SentencePiece model has them, and extra_ids is 0."""
    names = [f"▁<extra_id_{n}>" for n in (1, 0)]
    model = write_spiece(tmp_path, 162, 0, user_defined_symbols=names)
    (tmp_path / "tokenizer_config.json").unlink()  # then 100 sentinels are the default
    found = read(tmp_path, 168, "mt5", feed_forward_proj="gated-gelu")
    ours = tokenizer_of(found)
    assert ours.symbols == ()
    assert found.source.to_theirs(ours.encode("<extra_id_0> ab"))[0] == SentencePieceProcessor(
        model_proto=model
    ).piece_to_id("▁<extra_id_0>")
    assert [note.code for note in found.notes] == ["t5_pretrained_only"]


def test_umt5_sentinels_are_added_tokens(tmp_path: Path) -> None:
    """They are listed with their ids. The rows behind them have no piece."""
    write_spiece(tmp_path, sentinels=0)
    size = SentencePieceProcessor(model_file=str(tmp_path / "spiece.model")).vocab_size()
    listed = {str(size + 9 - n): {"content": f"<extra_id_{n}>", "special": True} for n in range(10)}
    write_json(tmp_path / "tokenizer_config.json", {"tokenizer_class": "T5Tokenizer", "added_tokens_decoder": listed})
    found = read(tmp_path, size + 20, "umt5", feed_forward_proj="gated-gelu")
    ours = tokenizer_of(found)
    assert ours.symbols == tuple(f"<extra_id_{n}>" for n in reversed(range(10)))
    assert found.source.to_theirs(ours.encode("<extra_id_0>")) == [size + 9]


def test_added_text_tokens_are_pieces(tmp_path: Path) -> None:
    """T5 lacks some characters, so fine-tuned models add them as tokens that are not special."""
    write_spiece(tmp_path)
    theirs = transformers.T5Tokenizer.from_pretrained(tmp_path)
    theirs.add_tokens(["{", "}", "\n"])
    theirs.save_pretrained(tmp_path)
    found = read(tmp_path, len(theirs))
    ours = tokenizer_of(found)
    ids = found.source.to_theirs(ours.encode("ab {cd}"))
    assert {theirs.convert_tokens_to_ids(each) for each in "{}"} <= {*ids}
    assert ours.decode(ours.encode("ab {cd}")) == "ab {cd}"
    assert [note.code for note in found.notes] == ["added_tokens_ignored"]


def test_byte_ids_are_equal(tmp_path: Path) -> None:
    write_byt5(tmp_path)
    found = read(tmp_path, BYTE_ROWS)
    theirs = transformers.ByT5Tokenizer.from_pretrained(tmp_path)
    assert_same_ids(found, theirs, [*strange_texts(), "a<extra_id_0>b <extra_id_124>"])
    ours = tokenizer_of(found)
    assert len(ours.symbols) == 125
    for text in strange_texts():
        assert ours.decode(ours.encode(text)) == text
    assert "line_breaks_are_spaces" in [note.code for note in found.notes]


@pytest.mark.parametrize("rows", [300, 400])
def test_byte_rows_may_be_fewer_or_more(tmp_path: Path, rows: int) -> None:
    write_byt5(tmp_path)
    found = read(tmp_path, rows)
    assert tokenizer_of(found).vocab_size == rows + 1
    assert found.source.to_theirs(tokenizer_of(found).encode("a")) == [100]


def test_too_few_byte_rows_are_rejected(tmp_path: Path) -> None:
    write_byt5(tmp_path)
    with pytest.raises(ModelError, check=has_code("byte_rows_missing", size=200)):
        read(tmp_path, 200)


def test_codet5_ids_are_equal(tmp_path: Path) -> None:
    vocabulary = write_codet5(tmp_path)
    controls = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 0}
    found = read(tmp_path, len(vocabulary) + 5, **controls)
    theirs = transformers.RobertaTokenizer.from_pretrained(tmp_path)
    ours = tokenizer_of(found)
    assert found.generation["source_prefix"] == ["<<s>>"]
    begin = EOS + 1 + ours.symbols.index("<<s>>")
    for text in [*strange_texts(), "a <extra_id_0>b"]:
        assert found.source.to_theirs([begin, *ours.encode(text), EOS]) == theirs(text).input_ids, text
    assert "line_breaks_are_spaces" in [note.code for note in found.notes]


def write_llama(folder: Path) -> int:
    """A tokenizer.json as of Pile-T5: BPE with byte fallback, spaces as they are, and eos behind the source."""
    from tokenizers import Tokenizer, decoders, models, normalizers, processors

    trained = SentencePieceProcessor(
        model_proto=pieces_model(some_lines(), "bpe", 420, byte_fallback=True, normalization_rule_name="identity")
    )
    pieces = [trained.id_to_piece(n) for n in range(trained.vocab_size())]
    ids = {piece: n for n, piece in enumerate(pieces)}
    cuts = [(piece[:n], piece[n:], piece) for piece in pieces[259:] for n in range(1, len(piece))]
    merges = [
        (first, second) for first, second, _ in sorted(cuts, key=lambda cut: ids[cut[2]]) if {first, second} <= {*ids}
    ]
    model = Tokenizer(models.BPE(ids, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    model.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    model.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    model.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", ids["</s>"])])
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=model, unk_token="<unk>", bos_token="<s>", eos_token="</s>"
    )
    tokenizer.save_pretrained(folder)
    return len(tokenizer)


def test_bpe_with_byte_fallback_is_read_from_tokenizer_json(tmp_path: Path) -> None:
    size = write_llama(tmp_path)
    controls = {"pad_token_id": 0, "eos_token_id": 2, "decoder_start_token_id": 0}
    found = read(tmp_path, size + 4, "umt5", **controls)
    theirs = transformers.PreTrainedTokenizerFast.from_pretrained(tmp_path)
    texts = [text for text in strange_texts() if "\t" not in text]
    assert_same_ids(found, theirs, [*some_lines(1, 20), *texts, "a  b", "🙂 猫"])
    assert UNK not in tokenizer_of(found).encode("🙂 猫")


@pytest.mark.parametrize("write", [write_spiece, write_byt5, write_fallback], ids=["t5", "bytes", "fallback"])
def test_saved_tokenizers_load_again(tmp_path: Path, write: Callable[[Path], Any]) -> None:
    write(tmp_path)
    ours = tokenizer_of(read(tmp_path, 420))
    folder = tmp_path / "saved"
    folder.mkdir()
    ours.save(folder, "target")
    again = load_tokenizer(folder, "target")
    texts = [*strange_texts(), *SENTINEL_TEXTS]
    assert again.encode_many(texts) == [ours.encode(text) for text in texts]


def test_task_prefixes_are_noted(tmp_path: Path) -> None:
    write_spiece(tmp_path)
    tasks = {"summarization": {"prefix": "summarize: ", "num_beams": 4}}
    write_t5(tmp_path, random_t5(**{**TINY, "vocab_size": 172}), task_specific_params=tasks)
    found = from_folder(tmp_path)
    assert [note.code for note in found.notes] == ["t5_task_prefixes"]
    assert "beam" not in found.generation


def test_an_unknown_template_is_rejected(tmp_path: Path) -> None:
    size = write_llama(tmp_path)
    path = tmp_path / "tokenizer.json"
    content = json.loads(path.read_text("utf-8"))
    content["post_processor"]["single"].insert(0, {"SpecialToken": {"id": "<lang>", "type_id": 0}})
    write_json(path, content)
    with pytest.raises(ModelError, check=has_code("json_field_invalid", field="post_processor.single")):
        read(tmp_path, size, "umt5")
