"""Text as it is decided: never taken back, and in the end exactly the answer."""

from collections.abc import Callable
from typing import Any

import pytest
from error_codes import has_code
from lively import bytes_model, characters_model, lively_model, pieces_model, sentences

from attendo.errors import UsageError
from attendo.text_model import TextModel

KINDS = [lively_model, pieces_model, bytes_model, characters_model]


@pytest.mark.short(2)
@pytest.mark.parametrize("make", KINDS)
@pytest.mark.parametrize("options", [{}, {"sample": True}, {"beam": 3}, {"beam": 4, "beam_groups": 2}])
def test_the_pieces_joined_are_the_answer(make: Callable[[], TextModel], options: dict[str, Any]) -> None:
    model = make()
    for text in ("", *sentences(2, longest=4)):
        answer = model.generate([text], max_length=7, **options)[0].text
        assert "".join(model.stream(text, max_length=7, **options)) == answer


@pytest.mark.short(2)
@pytest.mark.parametrize(
    "options",
    [
        {"stop": "first"},
        {"stop": "exhaustive"},
        {"normalise": "none"},
        {"prefix": "我 看见"},
        {"coverage_penalty": 0.2},
    ],
)
def test_so_they_are_whatever_ranks_and_stops_a_beam(options: dict[str, Any]) -> None:
    model = lively_model()
    for text in sentences(3, longest=5):
        answer = model.generate([text], beam=3, max_length=7, **options)[0].text
        assert "".join(model.stream(text, beam=3, max_length=7, **options)) == answer


@pytest.mark.parametrize("options", [{"mbr": "chrf"}, {"banned_phrases": ["猫"]}, {"beam": 3, "constraints": ["猫"]}])
def test_what_is_only_known_at_the_end_comes_whole(options: dict[str, Any]) -> None:
    model = lively_model()
    text = sentences(1)[0]
    assert list(model.stream(text, **options)) == [model.generate([text], **options)[0].text]


def test_greedy_comes_token_by_token() -> None:
    model = lively_model()
    for text in sentences(2):
        result = model.generate([text])[0]
        pieces = list(model.stream(text))
        assert len(pieces) >= len(result.ids) - 1  # nothing is new at the first of two spaces
        assert all(pieces)


@pytest.mark.slow
def test_no_character_comes_by_halves() -> None:
    """With bytes drawn at random, whole characters of several bytes are there, and broken ones too."""
    model = bytes_model()
    text = "猫"
    whole = model.generate([text], max_length=6, prefix="猫爱")[0].text
    pieces = list(model.stream(text, max_length=6, prefix="猫爱"))
    assert "".join(pieces) == whole
    assert "".join(pieces[:2]).startswith("猫爱")
    assert not [piece for piece in pieces if "\ufffd" in piece]
    for seed in range(5):
        pieces = list(model.stream("the cat", sample=True, seed=seed, max_length=20))
        assert "".join(pieces) == model.generate(["the cat"], sample=True, seed=seed, max_length=20)[0].text


def test_a_beam_tells_something_before_the_end() -> None:
    model = lively_model()
    assert max(len(list(model.stream(text, beam=3))) for text in sentences(3)) > 2


def test_the_mode_of_the_network_is_left_alone_between_two_pieces() -> None:
    model = lively_model()
    model.network.train()
    streamed = model.stream("the cat sat")
    next(streamed)
    assert model.network.training
    assert all(module.training for module in model.network.modules())


@pytest.mark.parametrize("options", [{"n_best": 2, "beam": 2}, {"alignments": True}])
def test_a_stream_is_one_text(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError, check=has_code("stream_option_unsupported")):
        next(lively_model().stream("the cat", **options))


def test_a_text_that_is_split_comes_sentence_by_sentence() -> None:
    model, text = lively_model(), "the cat. a dog! I love NLP"
    options = {"split": True, "max_source": 4}
    pieces = list(model.stream(text, **options))
    assert "".join(pieces) == model.generate([text], **options)[0].text
    assert len(pieces) == 3
