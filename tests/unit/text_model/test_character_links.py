"""Links between the characters of a source and of an answer, and tags placed by them."""

from functools import cache

import pytest
import torch
from tiny import tiny_model

from attendo.text import Bytes, SentencePiece, Tokenizer, Words
from attendo.text.markup import Markup
from attendo.text_model import Alignment, Hypothesis, HypothesisScore
from attendo.text_model.alignment import link_characters


@cache
def make_tokenizer(kind: str) -> Tokenizer:
    if kind == "words":
        return Words.build(["the small cats", "小猫 的 cats", "a"])
    if kind == "bytes":
        return Bytes()
    return SentencePiece.train(["the small cats sat", "a small cat sees the cats"] * 5, 280)


@pytest.mark.parametrize("kind", ["words", "bytes", "sentencepiece"])
@pytest.mark.parametrize("text", ["the small cats", "小猫 的 cats", "a"])
def test_a_link_connects_the_last_characters_of_two_tokens(kind: str, text: str) -> None:
    """A character may have several tokens: bytes and unknown letters."""
    tokenizer = make_tokenizer(kind)
    ids = tuple(tokenizer.encode(text))
    tag_tokens = 1  # a language tag, which is not in the text
    weights = torch.eye(len(ids), tag_tokens + len(ids) + 1).roll(tag_tokens, dims=1)
    answer = Hypothesis(text, ids, (), HypothesisScore(0.0), False, alignment=Alignment(weights))
    links = link_characters(answer, text, tokenizer, tokenizer)
    assert links is not None
    assert len(links) == len(ids)
    assert [one for one, _ in links] == [other for _, other in links]
    assert links[-1] == (len(text) - 1, len(text) - 1)
    ends = {position for position in range(len(text)) if text[position + 1 : position + 2] in ("", " ")}
    assert ends <= {one for one, _ in links}


def test_tokens_aligned_to_tag_or_eos_have_no_link() -> None:
    tokenizer = make_tokenizer("words")
    ids = tuple(tokenizer.encode("the small cats"))
    weights = torch.tensor([[1.0, 0, 0, 0, 0], [0, 0, 1.0, 0, 0], [0, 0, 0, 0, 1.0]])  # the language tag, small, EOS
    answer = Hypothesis("the small cats", ids, (), HypothesisScore(0.0), False, alignment=Alignment(weights))
    assert link_characters(answer, "the small cats", tokenizer, tokenizer) == [(8, 8)]


def test_tags_are_placed_by_the_alignment_of_a_model() -> None:
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
