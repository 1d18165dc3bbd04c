"""`model.align`: links of given pairs from the alignment head, merged on request."""

from typing import Any

import pytest
import torch
from error_codes import has_code
from tiny import SOURCES, TARGETS, parallel_model, tiny_model, without_source

from attendo.data.pharaoh import Link
from attendo.errors import UsageError
from attendo.text import Words
from attendo.text_model import TextModel
from attendo.text_model.symmetrisation import symmetrise
from attendo.text_model.word_alignment import DirectedLinks, PairWords

HEAD = {"alignment_head": {"layer": 0, "head": 1}}


@pytest.fixture(scope="module")
def model() -> TextModel:
    made = tiny_model()
    made.scores.update(HEAD)
    return made


@pytest.fixture(scope="module")
def reverse() -> TextModel:
    """A model of the other direction."""
    forward = tiny_model()
    sizes = forward.source_tokenizer.vocab_size, forward.target_tokenizer.vocab_size
    made = tiny_model(seed=3, source_vocab_size=sizes[1], target_vocab_size=sizes[0])
    stored = made.stored_model
    swapped = TextModel(stored.network, (stored.target_tokenizer, stored.source_tokenizer))
    swapped.scores.update(HEAD)
    return swapped


def rows_of(model: TextModel, source: str, target: str) -> set[Link]:
    """The links of target tokens, from a trace. In these texts each word is a token."""
    weights = model.trace(source, target).cross[0, 1][: len(target.split())]
    return {(int(row.argmax()), t) for t, row in enumerate(weights) if int(row.argmax()) < len(source.split())}


def columns_of(model: TextModel, source: str, target: str) -> set[Link]:
    weights = model.trace(source, target).cross[0, 1][: len(target.split())]
    return {(s, int(weights[:, s].argmax())) for s in range(len(source.split()))}


def test_each_target_word_is_linked_with_its_largest_weight(model: TextModel) -> None:
    for found, source, target in zip(model.align(SOURCES, TARGETS), SOURCES, TARGETS, strict=True):
        assert set(found.links) == rows_of(model, source, target)
        assert (found.source_words, found.target_words) == (tuple(source.split()), tuple(target.split()))
        assert str(found) == " ".join(f"{s}-{t}" for s, t in found.links)


def test_rows_and_columns_of_one_model_are_merged(model: TextModel) -> None:
    for method in ("intersection", "union", "grow-diag-final-and"):
        for found, source, target in zip(
            model.align(SOURCES, TARGETS, symmetrise=method), SOURCES, TARGETS, strict=True
        ):
            expected = symmetrise(rows_of(model, source, target), columns_of(model, source, target), method)
            assert set(found.links) == expected


def test_rows_of_both_directions_are_merged(model: TextModel, reverse: TextModel) -> None:
    merged = model.align(SOURCES, TARGETS, reverse=reverse, symmetrise="union")
    for found, source, target in zip(merged, SOURCES, TARGETS, strict=True):
        back = {(s, t) for t, s in rows_of(reverse, target, source)}
        assert set(found.links) == rows_of(model, source, target) | back


def test_tokens_are_linked_on_request(model: TextModel) -> None:
    (found,) = model.align(["the cat, sat"], ["猫 坐 着"], unit="tokens")
    assert len(found.source_words) == len(model.source_tokenizer.encode("the cat, sat"))
    assert found.target_words == ("猫", "坐", "着")


def test_blank_texts_and_unknown_words_have_their_places(model: TextModel) -> None:
    blank, half, unknown = model.align(["", "the cat", "zzz sat yyy"], ["", "", "猫 坐"], symmetrise="union")
    assert blank.links == half.links == ()
    assert {source for source, _ in unknown.links} == {0, 1, 2}  # each source word has a link of its column


def test_links_of_attention_weights_by_hand() -> None:
    """Three source tokens of two words. The second target token attends to the end, so it has no link of its own."""
    weights = torch.tensor([[0.1, 0.6, 0.2, 0.1], [0.2, 0.1, 0.1, 0.6]])
    found = DirectedLinks.from_weights(weights, [0, 0, 1], [0, 1])
    assert found == DirectedLinks(frozenset({(0, 0)}), frozenset({(0, 1), (0, 0), (1, 0)}))


def test_given_words_need_no_spaces(model: TextModel) -> None:
    pair = PairWords("the cat sat", "猫 坐 着", ("the", "cat", "sat"), ("猫", "坐着"))
    (found,) = model.align_words([pair])
    expected = {(s, min(t, 1)) for s, t in rows_of(model, "the cat sat", "猫 坐 着")}
    assert set(found.links) == expected


def refused(model: TextModel, code: str, **options: Any) -> None:
    with pytest.raises(UsageError, check=has_code(code)):
        model.align(["a dog"], ["狗"], **options)


def test_models_and_options_that_cannot_align_are_refused(model: TextModel, reverse: TextModel) -> None:
    refused(model, "reverse_without_symmetrisation", reverse=reverse)
    refused(model, "unknown_symmetrisation", symmetrise="grow")
    other = TextModel(tiny_model().stored_model.network, (Words.build(SOURCES), Words.build(TARGETS)))
    refused(model, "reverse_tokens_differ", reverse=other, symmetrise="union", unit="tokens")
    refused(parallel_model("ctc"), "parallel_feature_unsupported")
    refused(without_source(), "source_option_without_encoder")
    refused(model.ensemble([tiny_model(seed=2)]), "ensemble_not_alignable")
    with pytest.raises(UsageError, check=has_code("align_pair_count_mismatch", sources=2, targets=1)):
        model.align(["a", "b"], ["c"])
