"""Streamed text is final: the parts joined are exactly the answer."""

from collections.abc import Callable
from typing import Any

import pytest
from error_codes import has_code
from varied_models import bytes_model, characters_model, pieces_model, sentences, varied_model

from attendo.errors import UsageError
from attendo.text_model import TextModel

KINDS = [varied_model, pieces_model, bytes_model, characters_model]


@pytest.mark.short(2)
@pytest.mark.parametrize("make", KINDS)
@pytest.mark.parametrize("options", [{}, {"sample": True}, {"beam": 3}, {"beam": 4, "beam_groups": 2}])
def test_the_parts_joined_are_the_answer(make: Callable[[], TextModel], options: dict[str, Any]) -> None:
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
def test_the_parts_joined_are_the_answer_for_any_beam_settings(options: dict[str, Any]) -> None:
    model = varied_model()
    for text in sentences(3, longest=5):
        answer = model.generate([text], beam=3, max_length=7, **options)[0].text
        assert "".join(model.stream(text, beam=3, max_length=7, **options)) == answer


@pytest.mark.parametrize("options", [{"mbr": "chrf"}, {"banned_phrases": ["猫"]}, {"beam": 3, "constraints": ["猫"]}])
def test_answers_known_only_at_the_end_come_in_one_part(options: dict[str, Any]) -> None:
    model = varied_model()
    text = sentences(1)[0]
    assert list(model.stream(text, **options)) == [model.generate([text], **options)[0].text]


def test_greedy_decoding_streams_token_by_token() -> None:
    model = varied_model()
    for text in sentences(2):
        result = model.generate([text])[0]
        pieces = list(model.stream(text))
        assert len(pieces) >= len(result.ids) - 1  # the first of two spaces adds no text
        assert all(pieces)


@pytest.mark.slow
def test_no_character_is_streamed_in_halves() -> None:
    """Random bytes give complete characters of several bytes, and incomplete ones."""
    model = bytes_model()
    text = "猫"
    answer = model.generate([text], max_length=6, prefix="猫爱")[0].text
    pieces = list(model.stream(text, max_length=6, prefix="猫爱"))
    assert "".join(pieces) == answer
    assert "".join(pieces[:2]).startswith("猫爱")
    assert not [piece for piece in pieces if "\ufffd" in piece]
    for seed in range(5):
        pieces = list(model.stream("the cat", sample=True, seed=seed, max_length=20))
        assert "".join(pieces) == model.generate(["the cat"], sample=True, seed=seed, max_length=20)[0].text


def test_a_beam_streams_text_before_the_end() -> None:
    model = varied_model()
    assert max(len(list(model.stream(text, beam=3))) for text in sentences(3)) > 2


def test_a_paused_stream_leaves_the_training_mode_unchanged() -> None:
    model = varied_model()
    model.network.train()
    stream = model.stream("the cat sat")
    next(stream)
    assert model.network.training
    assert all(module.training for module in model.network.modules())


@pytest.mark.parametrize("options", [{"n_best": 2, "beam": 2}, {"alignments": True}])
def test_stream_rejects_n_best_and_alignments(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError, check=has_code("stream_option_unsupported")):
        next(varied_model().stream("the cat", **options))


def test_a_split_text_is_streamed_sentence_by_sentence() -> None:
    model, text = varied_model(), "the cat. a dog! I love NLP"
    options = {"split": True, "max_source": 4}
    pieces = list(model.stream(text, **options))
    assert "".join(pieces) == model.generate([text], **options)[0].text
    assert len(pieces) == 3
