"""Models trained with a tag before every source warn if the tag is missing."""

import warnings
from typing import Any

import pytest
import torch
from error_codes import message
from tiny import SIZES

from attendo.model.config import ModelConfig
from attendo.model.transformer import Transformer
from attendo.model_folder import StoredModel
from attendo.text import Words
from attendo.text_model import TextModel
from attendo.text_model.text_model import MissingTagWarning

TAGGED = [("<en> the cat sat", "x"), ("<de> the dog", "y")]


def make_model(*sample: tuple[str, str]) -> TextModel:
    words = Words.build(["the cat sat", "the dog"] * 2, symbols=("<en>", "<de>", "<V>"))
    network = Transformer(ModelConfig(vocab_size=words.vocab_size, **SIZES), torch.Generator().manual_seed(3))
    return TextModel(StoredModel(network, words, words, {"max_length_extra": 2}, sample=list(sample)))


def test_the_warning_lists_the_tags_and_not_the_text() -> None:
    with pytest.warns(MissingTagWarning, match=message("source_tag_missing", tags="<de>, <en>")) as caught:
        make_model(*TAGGED).generate(["<de> the dog", "the cat"])
    (warning,) = caught
    assert "cat" not in str(warning.message)
    with pytest.warns(MissingTagWarning):
        list(make_model(*TAGGED).stream("the cat"))


def test_the_warning_appears_once() -> None:
    model = make_model(*TAGGED)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        for _ in range(3):
            model.generate(["the cat"])
    assert len(caught) == 1


@pytest.mark.parametrize(
    ("sample", "text", "options"),
    [
        (TAGGED, "<en> the cat", {}),
        (TAGGED, "", {}),
        (TAGGED, "the cat", {"source_prefix": ["<en>"]}),
        ([*TAGGED, ("the cat", "x")], "the cat", {}),
        ([("<V>the cat", "x")], "the cat", {}),
        ([], "the cat", {}),
    ],
)
def test_texts_like_the_training_data_cause_no_warning(
    sample: list[tuple[str, str]], text: str, options: dict[str, Any]
) -> None:
    assert len(make_model(*sample).generate([text], **options)) == 1  # a warning would be an error
