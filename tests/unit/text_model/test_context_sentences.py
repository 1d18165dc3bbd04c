"""Preceding sentences before a source: which ones, how they are encoded, and what they do not affect."""

from dataclasses import replace
from pathlib import Path

import pytest
from error_codes import has_code
from tiny import SOURCES, TARGETS, tiny_model

from attendo.data.config import CorpusConfig, DataConfig
from attendo.data.corpus_files import collect_symbols, read_rows
from attendo.errors import UsageError
from attendo.model.transformer import Transformer
from attendo.text import Words
from attendo.text.config import TokenizerConfig
from attendo.text.factory import build_tokenizers
from attendo.text_model import TextModel

TEXT = "I love NLP. The cat sat. A dog ran home."


def context_model(**generation: object) -> TextModel:
    """A random model whose source tokenizer has the separator."""
    settings = TokenizerConfig(kind="words", symbols=("<context>",))
    source, _ = build_tokenizers(iter([*SOURCES, TEXT]), iter(TARGETS), settings)
    target = Words.build(TARGETS)
    config = tiny_model().network.config.replace(
        source_vocab_size=source.vocab_size, target_vocab_size=target.vocab_size
    )
    import torch

    network = Transformer(config, torch.Generator().manual_seed(5)).eval()
    return TextModel(network, (source, target), generation={"context_sentences": 1, **generation})


def read_sources(model: TextModel, text: str, **options: object) -> list[str]:
    """Return what the network reads for each sentence."""
    call = model.prepare_call([text], **options)
    return ["".join(model.source_tokenizer.pieces(line.source)).replace("▁", " ").strip() for line in call.lines]


def test_each_sentence_has_the_one_before_it() -> None:
    model = context_model()
    alone = [model.source_tokenizer.encode(each) for each in ("I love NLP.", "The cat sat.", "A dog ran home.")]
    lines = model.prepare_call([TEXT]).lines
    separator = model.source_tokenizer.encode("<context>")
    assert [line.source for line in lines] == [
        tuple(alone[0]),
        (*alone[0], *separator, *alone[1]),
        (*alone[1], *separator, *alone[2]),
    ]
    assert [line.context_tokens for line in lines] == [0, len(alone[0]) + 1, len(alone[1]) + 1]
    assert [line.max_length for line in lines] == [
        line.max_length for line in model.prepare_call([TEXT], context_sentences=0).lines
    ]
    wide = model.prepare_call([TEXT], context_sentences=5).lines
    assert wide[2].source == (*alone[0], *separator, *alone[1], *separator, *alone[2])


def test_a_given_context_equals_that_of_the_text() -> None:
    model = context_model()
    (result,) = model.generate([TEXT])
    given = model.generate(
        ["I love NLP.", "I love NLP.<context> The cat sat.", "The cat sat.<context> A dog ran home."]
    )
    assert [each.text for each in result.sentences] == [each.text for each in given]
    assert all(not each.sentences for each in given)
    assert "".join(TEXT[slice(*each.source_span)] for each in result.segments) == TEXT


def test_words_of_the_context_align_with_nothing() -> None:
    model = context_model()
    (result,) = model.generate([TEXT], alignments=True)
    for sentence, line in zip(result.sentences, model.prepare_call([TEXT]).lines, strict=True):
        assert sentence.alignment is not None
        assert sentence.alignment.source_words[: line.context_tokens] == (-1,) * line.context_tokens
        assert max(sentence.alignment.source_words) == len(line.text.split()) - 1


def test_context_that_does_not_fit_is_left_out() -> None:
    model = context_model()
    most = max(len(model.source_tokenizer.encode(each)) for each in TEXT.split(". ")) + 2
    lines = model.prepare_call([TEXT], context_sentences=2, max_source=most).lines
    assert all(line.source_tokens <= most for line in lines)
    assert all(line.truncated_tokens == 0 for line in lines)
    assert lines[2].context_tokens == 0


def test_a_glossary_reads_no_context() -> None:
    model = context_model()
    lines = model.prepare_call([TEXT], do_not_translate=["NLP"]).lines
    assert [line.context_tokens for line in lines] == [0, 0, 0]


def test_a_model_without_context_rejects_the_option() -> None:
    with pytest.raises(UsageError, check=has_code("context_not_trained", count=1)):
        tiny_model().generate([TEXT], context_sentences=1)


@pytest.fixture
def documents(tmp_path: Path) -> CorpusConfig:
    (tmp_path / "a.en").write_text("one\ntwo\nthree <context>\n\nfour\nfive\n\nsix\n", "utf-8")
    (tmp_path / "a.de").write_text("eins\nzwei\ndrei\n\nvier\n\n\nsechs\n", "utf-8")
    return CorpusConfig(source=tmp_path / "a.en", target=tmp_path / "a.de", context_sentences=2)


def test_lines_of_a_document_have_those_before_them(documents: CorpusConfig) -> None:
    rows = [(row.number, row.source, row.target) for row in read_rows(documents)]
    assert rows == [
        (1, "one", "eins"),
        (2, "one<context> two", "zwei"),
        (3, "one<context> two<context> three [context]", "drei"),
        (5, "four", "vier"),
        (6, "four<context> five", ""),
        (8, "six", "sechs"),
    ]
    assert collect_symbols(documents) == ["<context>"]
    tagged = [row.source for row in read_rows(documents.replace(tag="<2de>"))]
    assert tagged[1] == "<2de> one<context> two"


def test_a_table_has_no_documents(tmp_path: Path) -> None:
    with pytest.raises(UsageError, check=has_code("context_sentences_without_spaces")):
        DataConfig(source=tmp_path / "a", target=tmp_path / "b", context_sentences=1, without_spaces=True)
    with pytest.raises(UsageError, check=has_code("context_sentences_without_text_files")):
        DataConfig(file=tmp_path / "pairs.tsv", context_sentences=1)


def test_the_default_is_that_of_training(documents: CorpusConfig) -> None:
    settings = DataConfig(source=documents.source, target=documents.target, context_sentences=2)
    assert settings.most_context == 2
    assert replace(context_model().stored_model).generation["context_sentences"] == 1
