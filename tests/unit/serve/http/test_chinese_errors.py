"""What a page or a program in Chinese is told, it is told in Chinese: also what the library says of its settings."""

import re
from typing import Any

import pytest
from piped import continuing
from small_server import TEXT, Asking, error_of, random_model

from attendo.serve.scheduling.registry import ModelSpec

# For /generate, with one text unless others are given; and for the views of the page, by their decoders.
TO_PROGRAMS: list[dict[str, Any]] = [
    {"beam": 4, "beam_groups": 3},
    {"beam": 4, "beam_groups": 2, "stop": "leader"},
    {"beam": 4, "beam_groups": 2, "stop": "first", "patience": 2.0},
    {"beam": 4, "beam_groups": 2, "at_limit": "any"},
    {"beam": 4, "stop": "settled", "patience": 2.0},
    {"beam": 4, "diversity_penalty": 1.0},
    {"beam": 1, "stop": "first"},
    {"temperature": 2.0},
    {"sample": True, "beam": 4},
    {"sample": True, "beam_groups": 2},
    {"beam": 2, "n_best": 3},
    {"mbr": "chrf", "beam": 4, "mbr_candidates": 4},
    {"mbr_candidates": 4},
    {"repetition_of": "logits"},
    {"stream": True, "beam": 4, "n_best": 2},
    {"prefix": ["猫", "狗"]},
    {"beam": 4, "constraints": [["猫"], ["狗"]]},
    {"sample": True, "constraints": ["猫"]},
    {"beam": 4, "beam_groups": 2, "constraints": ["猫"]},
    {"beam": 4, "stop": "leader", "constraints": ["猫"]},
    {"banned_phrases": [" "]},
    {"prefix": "猫", "banned_phrases": ["猫"]},
    {"beam": 4, "constraints": ["猫"], "banned_phrases": ["猫"]},
    {"prefix": "nobody"},
    {"beam": 4, "constraints": ["nobody"]},
    {"target_prefix": ["<x>"]},
    {"min_length": 4, "max_length": 3},
    {"prefix": "猫 狗 猫", "max_length": 2},
    {"split": True, "beam": 4, "constraints": ["猫"]},
]
TO_ONE_THAT_GOES_ON: list[dict[str, Any]] = [
    {"max_length": 8},
    {"prefix": "I"},
    {"split": True},
    {"banned_phrases": ["cat"]},
    {"texts": ["the cat " * 100]},
]
TO_THE_PAGE: list[dict[str, Any]] = [
    {"kind": "beam", "beam": 4, "beam_groups": 3},
    {"kind": "beam", "beam": 4, "beam_groups": 2, "stop": "shrinking"},
    {"kind": "greedy", "min_length": 9, "max_length": 3},
    {"kind": "sample", "min_length": 400},
]


def in_chinese(answered: Any) -> str:
    """What it says, where no English is left of what the library says."""
    error = error_of(answered, 400, "bad_setting")
    assert error["message"] not in error["message_zh"]
    assert not re.search(r"\b(exclude|cannot|is for|must|more than|has|have)\b", error["message_zh"]), error
    return str(error["message_zh"])


@pytest.fixture(scope="module")
def short() -> Asking:
    """A model that has learned so many positions."""
    return Asking(ModelSpec("short", random_model(positions="learned", max_length=12)))


@pytest.mark.parametrize("fields", TO_PROGRAMS, ids=str)
def test_settings_that_do_not_go_together(server: Asking, fields: dict[str, Any]) -> None:
    in_chinese(server.raw("generate", texts=[TEXT], **fields))


@pytest.mark.short(2)
@pytest.mark.parametrize("fields", TO_ONE_THAT_GOES_ON, ids=str)
def test_models_that_go_on_with_a_text(fields: dict[str, Any]) -> None:
    in_chinese(Asking(ModelSpec("lm", continuing())).raw("generate", **{"texts": ["I saw the cat"], **fields}))


@pytest.mark.short(2)
@pytest.mark.parametrize("decoder", TO_THE_PAGE, ids=str)
def test_views_of_the_page(short: Asking, decoder: dict[str, Any]) -> None:
    for path in ("answer", "steps", "tree", "trace", "ablate", "rank"):
        in_chinese(short.raw(path, text="the cat", decoder=decoder))


def test_texts_that_are_too_long_for_a_model(short: Asking) -> None:
    long = "the cat sat " * 10
    assert "拆分" in in_chinese(short.raw("generate", texts=["a", long]))
    assert "第 2 段" in in_chinese(short.raw("generate", texts=["a", long], split=True))
    assert "多句" in in_chinese(short.raw("generate", texts=["the cat. a dog."], split=True, prefix="猫。狗"))
