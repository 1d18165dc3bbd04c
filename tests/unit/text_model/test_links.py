"""Links between the characters of a source and of an answer, and tags that follow them."""

from functools import cache

import pytest
import torch
from tiny import tiny_model

from attendo.text import Bytes, SentencePiece, Tokenizer, Words
from attendo.text.markup import Markup
from attendo.text_model import Alignment, Hypothesis, HypothesisScore
from attendo.text_model.alignment import link_characters


@cache
def tokenizer_of(kind: str) -> Tokenizer:
    if kind == "words":
        return Words.build(["the small cats", "小猫 的 cats", "a"])
    if kind == "bytes":
        return Bytes()
    return SentencePiece.train(["the small cats sat", "a small cat sees the cats"] * 5, 280)


@pytest.mark.parametrize("kind", ["words", "bytes", "sentencepiece"])
@pytest.mark.parametrize("text", ["the small cats", "小猫 的 cats", "a"])
def test_a_link_is_between_the_last_characters_of_two_tokens(kind: str, text: str) -> None:
    """Bytes and unknown letters are several tokens a character."""
    tokenizer = tokenizer_of(kind)
    ids = tuple(tokenizer.encode(text))
    before = 1  # a token of the language, which no text has
    weights = torch.eye(len(ids), before + len(ids) + 1).roll(before, dims=1)
    answer = Hypothesis(text, ids, (), HypothesisScore(0.0), False, alignment=Alignment(weights))
    links = link_characters(answer, text, tokenizer, tokenizer)
    assert links is not None
    assert len(links) == len(ids)
    assert [one for one, _ in links] == [other for _, other in links]
    assert links[-1] == (len(text) - 1, len(text) - 1)
    ends = {at for at in range(len(text)) if text[at + 1 : at + 2] in ("", " ")}
    assert ends <= {one for one, _ in links}


def test_what_looked_at_no_word_of_the_text_has_no_link() -> None:
    tokenizer = tokenizer_of("words")
    ids = tuple(tokenizer.encode("the small cats"))
    looks = torch.tensor([[1.0, 0, 0, 0, 0], [0, 0, 1.0, 0, 0], [0, 0, 0, 0, 1.0]])  # the language, small, eos
    answer = Hypothesis("the small cats", ids, (), HypothesisScore(0.0), False, alignment=Alignment(looks))
    assert link_characters(answer, "the small cats", tokenizer, tokenizer) == [(8, 8)]


def test_a_model_tells_where_tags_go() -> None:
    model = tiny_model()
    markup = Markup("<p>the <b>cat</b> sat</p>", "html")
    (result,) = model.generate(markup.texts, alignments=True)
    tokenizers = model.source_tokenizer, model.target_tokenizer
    links = link_characters(result.best, markup.texts[0], *tokenizers)
    assert links
    answer = markup.insert_translations([result.text], [links])
    assert answer.replace("<b>", "").replace("</b>", "") == f"<p>{result.text}</p>"
    assert answer.count("<b>") == answer.count("</b>") == 1
    assert link_characters(model.generate(markup.texts)[0].best, markup.texts[0], *tokenizers) is None
