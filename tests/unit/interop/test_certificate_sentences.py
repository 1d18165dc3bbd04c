"""The sentences of a certificate, and the names of our ids in other systems."""

from dataclasses import replace

import pytest
from error_codes import ErrorCheck, has_code
from tiny import SOURCES, TARGETS, tiny_model

from attendo.errors import DataError, UsageError
from attendo.interop.certify import collect_sentences
from attendo.interop.huggingface.vocabulary import name_to_id, sentencepiece_bytes, vocabulary_names
from attendo.text import Bytes, Characters, SentencePiece, Tokenizer, Words
from attendo.text_model import TextModel

PAIRS = list(zip(SOURCES, TARGETS, strict=True))


def test_the_sample_is_filled_up_with_random_sentences() -> None:
    model = _with_sample(tiny_model())
    found = collect_sentences(model)
    assert len(found.sources) == 200
    assert found.sources[: len(PAIRS)] == [model.source_tokenizer.encode(text) for text in SOURCES]
    assert found.evaluation is not None
    assert (found.evaluation.sentences, list(found.evaluation.references)) == (len(PAIRS), list(TARGETS))
    assert found.evaluation.decode(model.target_tokenizer.encode(TARGETS[0])) == TARGETS[0]
    assert all(4 <= each < model.source_tokenizer.vocab_size for ids in found.sources[len(PAIRS) :] for each in ids)
    assert len({tuple(ids) for ids in found.sources}) > 150
    assert collect_sentences(model).sources == found.sources


def test_a_large_sample_is_truncated() -> None:
    assert len(collect_sentences(_with_sample(tiny_model(), times=100)).sources) == 200


def test_empty_and_long_given_sentences_are_skipped() -> None:
    model = tiny_model()
    texts = [*SOURCES, "", "cat " * 300]
    found = collect_sentences(model, texts, [*TARGETS, "", "x"], min_count=2)
    assert found.sources == [model.source_tokenizer.encode(text) for text in SOURCES]
    assert found.evaluation is not None
    assert list(found.evaluation.references) == list(TARGETS)
    (note,) = found.notes
    assert has_code("sentences_skipped", count=6, empty=1, long=1, max_length=256)(note)
    (note,) = collect_sentences(model, SOURCES).notes
    assert has_code("given_sentences_few", count=4, random=196)(note)
    (note,) = collect_sentences(_with_sample(model)).notes
    assert has_code("sample_sentences_few", count=4, random=196)(note)
    assert collect_sentences(model, SOURCES, min_count=4).notes == collect_sentences(model).notes == ()
    without = collect_sentences(model, texts, min_count=2).evaluation
    assert without is not None
    assert (without.sentences, without.references) == (len(SOURCES), [])
    none = collect_sentences(model, min_count=2).evaluation
    assert none is not None
    assert none.sentences == 0


@pytest.mark.parametrize(
    ("texts", "error"),
    [
        ([], has_code("sentences_not_comparable", count=0, empty=0, long=0)),
        (
            ["", "cat " * 300],
            has_code("sentences_not_comparable", count=2, empty=1, long=1, max_length=256),
        ),
    ],
)
def test_no_usable_given_sentence_is_an_error(texts: list[str], error: ErrorCheck) -> None:
    with pytest.raises(DataError, check=error):
        collect_sentences(tiny_model(), texts)


def test_missing_references_are_an_error() -> None:
    with pytest.raises(UsageError, check=has_code("comparison_reference_count_mismatch", sources=4, references=1)):
        collect_sentences(tiny_model(), SOURCES, ["one"])


@pytest.mark.parametrize(
    "tokenizer",
    [
        Words.build([*SOURCES, "<4> ▁cat <s>", "the  cat"]),
        Characters.build([*SOURCES, "▁"]),
        Bytes(),
        Bytes(symbols=("<x>",)),
        SentencePiece.train([*SOURCES * 4], 300, symbols=["<x>"]),
    ],
    ids=lambda tokenizer: str(tokenizer.kind),
)
def test_vocabulary_names_are_unique(tokenizer: Tokenizer) -> None:
    names = vocabulary_names(tokenizer)
    assert len(names) == len(set(names)) == tokenizer.vocab_size
    assert names[:4] == ["<pad>", "<unk>", "<s>", "</s>"]
    assert all(names)
    assert name_to_id(names)[names[7]] == 7


def test_subword_names_equal_sentencepiece_pieces() -> None:
    import sentencepiece

    tokenizer = SentencePiece.train([*SOURCES * 4], 300)
    file = sentencepiece_bytes(tokenizer)
    assert file is not None
    library = sentencepiece.SentencePieceProcessor(model_proto=file)
    names = vocabulary_names(tokenizer)
    for text in (*SOURCES, "Größe", "cat's  home"):
        assert [names[each] for each in tokenizer.encode(text)] == library.encode(text, out_type=str)
    assert sentencepiece_bytes(Bytes()) is None


def test_word_names_have_the_subword_prefix() -> None:
    assert "▁cat" in vocabulary_names(Words.build(SOURCES))


def _with_sample(model: TextModel, times: int = 1) -> TextModel:
    return TextModel(replace(model.stored_model, sample=PAIRS * times))
