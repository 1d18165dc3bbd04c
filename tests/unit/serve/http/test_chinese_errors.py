"""Errors have a Chinese message, also those that the library raises."""

import re
from typing import Any

import pytest
from piped import continuing
from small_server import TEXT, SmallServer, check_error, random_model

from attendo.serve.scheduling.registry import ModelSpec

# Fields of /generate with one text unless `texts` is given, and decoders for the endpoints of the explorer.
GENERATE_FIELDS: list[dict[str, Any]] = [
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
CONTINUATION_FIELDS: list[dict[str, Any]] = [
    {"max_length": 8},
    {"prefix": "I"},
    {"split": True},
    {"banned_phrases": ["cat"]},
    {"texts": ["the cat " * 100]},
]
EXPLORER_DECODERS: list[dict[str, Any]] = [
    {"kind": "beam", "beam": 4, "beam_groups": 3},
    {"kind": "beam", "beam": 4, "beam_groups": 2, "stop": "shrinking"},
    {"kind": "greedy", "min_length": 9, "max_length": 3},
    {"kind": "sample", "min_length": 400},
]


def chinese_message(response: Any) -> str:
    """The Chinese message, after a check that it has no English words of the library."""
    error = check_error(response, 400, "bad_setting")
    assert error["message"] not in error["message_zh"]
    assert not re.search(r"\b(exclude|cannot|is for|must|more than|has|have)\b", error["message_zh"]), error
    return str(error["message_zh"])


@pytest.fixture(scope="module")
def short() -> SmallServer:
    """A model with 12 learned positions."""
    return SmallServer(ModelSpec("short", random_model(positions="learned", max_length=12)))


@pytest.mark.parametrize("fields", GENERATE_FIELDS, ids=str)
def test_option_errors_are_chinese(server: SmallServer, fields: dict[str, Any]) -> None:
    chinese_message(server.raw("generate", texts=[TEXT], **fields))


@pytest.mark.short(2)
@pytest.mark.parametrize("fields", CONTINUATION_FIELDS, ids=str)
def test_continuation_errors_are_chinese(fields: dict[str, Any]) -> None:
    chinese_message(
        SmallServer(ModelSpec("lm", continuing())).raw("generate", **{"texts": ["I saw the cat"], **fields})
    )


@pytest.mark.short(2)
@pytest.mark.parametrize("decoder", EXPLORER_DECODERS, ids=str)
def test_explorer_errors_are_chinese(short: SmallServer, decoder: dict[str, Any]) -> None:
    for path in ("answer", "steps", "tree", "trace", "ablate", "rank"):
        chinese_message(short.raw(path, text="the cat", decoder=decoder))


def test_errors_for_too_long_texts_are_chinese(short: SmallServer) -> None:
    long = "the cat sat " * 10
    assert "拆分" in chinese_message(short.raw("generate", texts=["a", long]))
    assert "第 2 段" in chinese_message(short.raw("generate", texts=["a", long], split=True))
    assert "多个句子" in chinese_message(short.raw("generate", texts=["the cat. a dog."], split=True, prefix="猫。狗"))
