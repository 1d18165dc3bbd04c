"""Options of pipelines: by our names, by those of transformers, or refused."""

from typing import Any

import pytest
from error_codes import has_code
from piped import QUIET, answering, continuing, only
from tiny import SOURCES

import attendo
from attendo.errors import UsageError
from attendo.pipelines.options import HF_OPTION_NAMES, NEW_TOKEN_OPTIONS, from_hf_options, merge_options, parse_task

pytestmark = pytest.mark.filterwarnings(QUIET)

TEXT = SOURCES[3]
TRANSLATION, CONTINUING = parse_task("translation"), parse_task("text-generation")


def test_the_names_are_those_of_transformers() -> None:
    transformers = pytest.importorskip("transformers")
    assert {*HF_OPTION_NAMES, *NEW_TOKEN_OPTIONS} <= transformers.GenerationConfig().to_dict().keys()


@pytest.mark.short(4)
@pytest.mark.parametrize(
    ("theirs", "same"),
    [
        ({"num_beams": 3}, {"beam": 3}),
        (
            {"num_beams": 4, "num_beam_groups": 2, "diversity_penalty": 0.7},
            {"beam": 4, "beam_groups": 2, "diversity_penalty": 0.7},
        ),
        ({"num_beams": 3, "early_stopping": True}, {"beam": 3, "stop": "first"}),
        ({"num_beams": 3, "early_stopping": False}, {"beam": 3, "stop": "settled"}),
        ({"num_beams": 3, "early_stopping": "never"}, {"beam": 3, "stop": "exhaustive"}),
        ({"do_sample": True, "typical_p": 0.5, "seed": 4}, {"sample": True, "typical_p": 0.5, "seed": 4}),
        ({"do_sample": False}, {"sample": False}),
        ({"no_repeat_ngram_size": 1}, {"no_repeat_ngram_size": 1}),
        ({"max_new_tokens": 2, "min_new_tokens": 2}, {"max_length": 2, "min_length": 2}),
        ({"renormalize_logits": True, "no_repeat_ngram_size": 1}, {"renormalise": True, "no_repeat_ngram_size": 1}),
        ({"min_length": 0, "min_new_tokens": 0}, {}),
        ({"preset": "hf", "num_beams": 2}, {"preset": "hf", "beam": 2}),
    ],
)
def test_what_means_the_same_gives_the_same(theirs: dict[str, Any], same: dict[str, Any]) -> None:
    model = answering()
    told = {NEW_TOKEN_OPTIONS.get(name, name): value for name, value in from_hf_options(theirs, TRANSLATION).items()}
    assert told == same
    expected = model.generate([TEXT], **same)[0].text
    assert only(attendo.pipeline("translation", model)(TEXT, **theirs)) == [{"translation_text": expected}]
    assert only(attendo.pipeline("translation", model, **theirs)(TEXT)) == [{"translation_text": expected}]


@pytest.mark.parametrize(
    "harmless",
    [
        {"return_tensors": False, "return_text": True, "clean_up_tokenization_spaces": False},
        {"truncation": False, "use_cache": True, "skip_special_tokens": True},
        {"truncation": "do_not_truncate", "streamer": None, "generation_config": None},
    ],
)
def test_what_happens_anyway_may_be_said(harmless: dict[str, Any]) -> None:
    pipe = attendo.pipeline("translation", answering())
    assert pipe(TEXT, **harmless) == pipe(TEXT)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"frobnicate": 1}, "^unknown option frobnicate: see docs/guides/pipelines.md"),
        ({"num_bems": None}, r"^unknown option num_bems \(did you mean num_beams\?\)"),
        ({"return_tensors": True}, "^return_tensors=True has no meaning here: pipelines give texts"),
        ({"return_text": False}, "^return_text=False has no meaning here"),
        ({"truncation": True}, "nothing is cut in silence: shorten the text, or take split=True"),
        ({"truncation": 0}, "truncation=0 has no meaning here"),
        ({"use_cache": False}, "take engine='textbook'"),
        ({"bad_words_ids": [[1]]}, r"use banned_phrases=\[...\]"),
        ({"torch_dtype": "float16"}, "take precision="),
        ({"tokenizer": "x"}, "a model folder has all that it needs"),
        ({"return_full_text": False}, "it is for text-generation"),
        ({"alignments": True}, "take TextModel.generate"),
        (
            {"num_beams": 2, "beam": 2},
            "^beam is beam here, which is given too|^num_beams is beam here, which is given too",
        ),
        ({"max_new_tokens": 2, "max_length": 2}, "^max_new_tokens and max_length exclude each other"),
        ({"max_new_tokens": 2, "prefix": "我"}, "^max_new_tokens and prefix exclude each other: take max_length"),
        ({"max_new_tokens": 2.0}, "^max_new_tokens is a whole number, not 2.0"),
        ({"num_return_sequences": True}, "^num_return_sequences is a whole number, not True"),
        ({"early_stopping": "always"}, "^early_stopping is True, False or 'never', not 'always'"),
        ({"early_stopping": 1}, "^early_stopping is True, False or 'never', not 1"),
        ({"temperature": 0.5}, "^temperature is for samples: set sample too"),
        (
            {"num_return_sequences": 3},
            r"^n_best must be from 1 to beam \(1\), not 3 \(num_return_sequences is n_best here\)$",
        ),
        ({"early_stopping": True}, r"^stop is for a beam: .* \(early_stopping is stop here\)$"),
    ],
)
def test_what_cannot_be_meant_is_refused_by_name_before_anything_is_decoded(
    options: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        attendo.pipeline("translation", answering(), **options)
    with pytest.raises(UsageError, match=message):
        attendo.pipeline("translation", answering())(TEXT, **options)


def test_what_is_for_translations_is_refused_elsewhere() -> None:
    with pytest.raises(UsageError, check=has_code("unsupported_pipeline_option", option="src_lang", value="en")):
        attendo.pipeline("summarization", answering())(TEXT, src_lang="en")


def test_what_a_decoder_only_model_cannot_do_is_told() -> None:
    pipe = attendo.pipeline("text-generation", continuing())
    with pytest.raises(UsageError, check=has_code("prefix_with_decoder_only_model")):
        pipe(TEXT, prefix="a")
    with pytest.raises(UsageError, check=has_code("prompt_longer_than_max_length", limit=3)):
        pipe(TEXT, max_length=3)


def test_a_call_may_say_the_same_by_another_name() -> None:
    assert merge_options({"max_new_tokens": 5, "beam": 2}, {"max_length": 3}) == {"beam": 2, "max_length": 3}
    assert merge_options({"max_length": 5, "beam": 2}, {"max_new_tokens": 3}) == {"beam": 2, "max_new_tokens": 3}
    assert merge_options({"min_length": 5}, {"max_new_tokens": 3}) == {"min_length": 5, "max_new_tokens": 3}


def test_none_is_as_if_left_out() -> None:
    assert from_hf_options({"num_beams": None, "max_new_tokens": None, "return_full_text": None}, CONTINUING) == {}
    assert from_hf_options({"num_beams": None, "beam": 3}, TRANSLATION) == {"beam": 3}
