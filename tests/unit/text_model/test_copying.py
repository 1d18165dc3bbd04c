"""Unknown words and case are copied from the source, by the attention of the model."""

from typing import Any

import pytest
import torch
from error_codes import has_code
from tiny import parallel_model, tiny_model

from attendo.errors import UsageError
from attendo.text import Words
from attendo.text_model import TextModel, alignment
from attendo.text_model import text_model as module
from attendo.text_model.copying import SourceText, WordCopier, lower_unknown
from attendo.text_model.options import GenerateOptions
from attendo.text_model.results import Alignment, Hypothesis, HypothesisScore, Result
from attendo.text_model.token_words import token_spans

SOURCE = Words.build(["the cat saw", "i love you"])
TARGET = Words.build(["die katze sah", "ich liebe dich"])


def make_result(target: str, links: dict[int, int], source_tokens: int) -> Result:
    """A result whose tokens attend to these source tokens; a token that is not named attends to the end."""
    ids = tuple(TARGET.encode(target))
    weights = torch.zeros(len(ids), source_tokens + 1)
    for position in range(len(ids)):
        weights[position, links.get(position, source_tokens)] = 0.9
        weights[position, min(position, source_tokens - 1)] += 0.1
    text = TARGET.decode(ids)
    made = Hypothesis(text, ids, tuple(TARGET.pieces(ids)), HypothesisScore(0.0), False, alignment=Alignment(weights))
    return Result((made,))


def copy_words(source: str, target: str, links: dict[int, int], **options: Any) -> str:
    read = lower_unknown(source, SOURCE) if options.get("transfer_case") else source
    ids = SOURCE.encode(read)
    result = make_result(target, links, len(ids))
    return WordCopier(GenerateOptions(**options), SOURCE, TARGET).apply(result, SourceText(source, read, ids)).text


def test_an_unknown_token_becomes_its_source_token() -> None:
    assert copy_words("Maria saw Peter", "X sah Y", {0: 0, 1: 1, 2: 2}, replace_unknown=True) == "Maria sah Peter"
    assert copy_words("Maria saw Peter", "X sah Y", {0: 2, 1: 1, 2: 0}, replace_unknown=True) == "Peter sah Maria"
    assert copy_words("Maria saw Peter", "die katze", {0: 0}, replace_unknown=True) == "die katze"


def test_a_token_that_attends_to_the_end_copies_the_best_word() -> None:
    assert copy_words("the cat Zoe", "die katze X", {0: 0, 1: 1}, replace_unknown=True) == "die katze Zoe"


def test_copies_keep_punctuation_apart() -> None:
    assert copy_words("the Zoe, cat", "X katze", {0: 1, 1: 3}, replace_unknown=True) == "Zoe katze"


def test_names_and_the_first_word_get_their_capitals() -> None:
    case = {"transfer_case": True}
    assert copy_words("The Cat saw", "die katze sah", {0: 0, 1: 1, 2: 2}, **case) == "Die Katze sah"
    assert copy_words("the CAT saw", "die katze sah", {0: 0, 1: 1, 2: 2}, **case) == "die KATZE sah"
    assert copy_words("The cat saw", "katze die sah", {0: 1, 1: 0, 2: 2}, **case) == "Katze die sah"
    assert copy_words("I love you", "dich liebe ich", {0: 2, 1: 1, 2: 0}, **case) == "Dich liebe ich"


def test_both_options_work_together() -> None:
    both = {"transfer_case": True, "replace_unknown": True}
    assert copy_words("The Zoe saw PETER", "die X sah Y", {0: 0, 1: 1, 2: 2, 3: 3}, **both) == "Die Zoe sah PETER"


def test_words_in_lower_case_are_read_where_only_those_are_known() -> None:
    assert lower_unknown("The CAT saw  Zoe", SOURCE) == "the cat saw  Zoe"
    mixed = Words.build(["The cat the"])
    assert lower_unknown("The CAT", mixed) == "The cat"
    assert lower_unknown("İ cat", SOURCE) == "İ cat"  # its lower case has two characters


@pytest.mark.parametrize("text", ["the cat, saw", "  zzz the  yyy", "猫the", ""])
def test_spans_are_those_of_the_tokens(text: str) -> None:
    ids = SOURCE.encode(text)
    spans = token_spans(SOURCE, text, ids)
    if not text:
        assert spans is None
        return
    assert spans is not None
    assert "".join(text[begin:end] for begin, end in spans) == "".join(text.split())
    assert token_spans(SOURCE, f"{text} more", ids) is None


def test_generation_copies_and_hides_the_alignment() -> None:
    """The model is untrained: its first tokens are made unknown, and they attend to some source token."""
    model = tiny_model(output_bias=True)
    with torch.no_grad():
        model.network.output.bias[1] = 50
    plain, copied, shown = (
        model.generate(["the cat Zoe"], max_length=3, **options)[0]
        for options in ({}, {"replace_unknown": True}, {"replace_unknown": True, "alignments": True})
    )
    assert plain.text.split() == ["⁇"] * 3
    assert shown.alignment is not None
    words = [int(row[:3].argmax()) for row in shown.alignment.weights]
    assert copied.text == shown.text == " ".join(["the", "cat", "Zoe"][word] for word in words)
    assert copied.alignment is None
    assert copied.ids == plain.ids


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"replace_unknown": True, "keep": ["numbers"]}, "copies_with_terms"),
    ({"transfer_case": True, "do_not_translate": ["NLP"]}, "copies_with_terms"),
]


@pytest.mark.parametrize(("options", "code"), REFUSED)
def test_options_that_also_change_the_text_are_refused(options: dict[str, Any], code: str) -> None:
    with pytest.raises(UsageError, check=has_code(code)):
        tiny_model().generate(["the cat"], **options)


def test_calls_without_attention_are_refused() -> None:
    with pytest.raises(UsageError, check=has_code("option_unsupported_by_kind", option="replace_unknown")):
        parallel_model("ctc").generate(["the cat"], replace_unknown=True)
    with pytest.raises(UsageError, check=has_code("stream_option_unsupported")):
        next(tiny_model().stream("the cat", transfer_case=True))
    for call in (lambda: tiny_model().alternatives("the cat", replace_unknown=True), lambda: search_tree(tiny_model())):
        with pytest.raises(UsageError, check=has_code("terms_not_supported", option="replace_unknown")):
            call()


def search_tree(model: TextModel) -> object:
    return model.search_tree("the cat", replace_unknown=True)


def test_split_texts_copy_sentence_by_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    model, calls = tiny_model(), list[int]()
    real = alignment.align

    def count(*arguments: Any) -> Any:
        calls.append(len(arguments[0]))
        return real(*arguments)

    monkeypatch.setattr(module, "align", count)
    (result,) = model.generate(["I love NLP. The cat sat."], split=True, replace_unknown=True)
    assert calls == [2]
    assert len(result.sentences) == 2
