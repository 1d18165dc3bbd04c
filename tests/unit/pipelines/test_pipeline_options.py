"""Pipeline options: our names, the names of transformers, and rejected ones."""

from typing import Any

import pytest
from error_codes import ErrorCheck, has_code
from piped import QUIET, answering, continuing, only
from tiny import SOURCES

import attendo
from attendo.errors import UsageError
from attendo.pipelines.options import HF_OPTION_NAMES, NEW_TOKEN_OPTIONS, from_hf_options, merge_options, parse_task

pytestmark = pytest.mark.filterwarnings(QUIET)

TEXT = SOURCES[3]
TRANSLATION, CONTINUING = parse_task("translation"), parse_task("text-generation")


def test_the_option_names_exist_in_transformers() -> None:
    transformers = pytest.importorskip("transformers")
    assert {*HF_OPTION_NAMES, *NEW_TOKEN_OPTIONS} <= transformers.GenerationConfig().to_dict().keys()


@pytest.mark.short(4)
@pytest.mark.parametrize(
    ("theirs", "ours"),
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
def test_transformers_options_equal_ours(theirs: dict[str, Any], ours: dict[str, Any]) -> None:
    model = answering()
    converted = {
        NEW_TOKEN_OPTIONS.get(name, name): value for name, value in from_hf_options(theirs, TRANSLATION).items()
    }
    assert converted == ours
    expected = model.generate([TEXT], **ours)[0].text
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
def test_options_equal_to_the_behaviour_are_accepted(harmless: dict[str, Any]) -> None:
    pipe = attendo.pipeline("translation", answering())
    assert pipe(TEXT, **harmless) == pipe(TEXT)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"frobnicate": 1}, has_code("unknown_pipeline_option", option="frobnicate", suggestion="")),
        ({"num_bems": None}, has_code("unknown_pipeline_option", suggestion=" (did you mean num_beams?)")),
        ({"return_tensors": True}, has_code("unsupported_pipeline_option", option="return_tensors", value=True)),
        ({"return_text": False}, has_code("unsupported_pipeline_option", option="return_text", value=False)),
        ({"truncation": True}, has_code("unsupported_pipeline_option", option="truncation", value=True)),
        ({"truncation": 0}, has_code("unsupported_pipeline_option", option="truncation", value=0)),
        ({"use_cache": False}, has_code("unsupported_pipeline_option", option="use_cache")),
        ({"bad_words_ids": [[1]]}, has_code("unsupported_pipeline_option", option="bad_words_ids")),
        ({"torch_dtype": "float16"}, has_code("unsupported_pipeline_option", option="torch_dtype")),
        ({"tokenizer": "x"}, has_code("unsupported_pipeline_option", option="tokenizer")),
        ({"return_full_text": False}, has_code("unsupported_pipeline_option", option="return_full_text")),
        ({"alignments": True}, has_code("unsupported_pipeline_option", option="alignments")),
        ({"num_beams": 2, "beam": 2}, has_code("option_alias_given_twice", name="beam")),
        (
            {"max_new_tokens": 2, "max_length": 2},
            has_code("new_tokens_with_length", option="max_new_tokens", other="max_length"),
        ),
        (
            {"max_new_tokens": 2, "prefix": "我"},
            has_code("new_tokens_with_prefix", option="max_new_tokens", replacement="max_length"),
        ),
        ({"max_new_tokens": 2.0}, has_code("pipeline_option_not_integer", option="max_new_tokens", value=2.0)),
        ({"num_return_sequences": True}, has_code("pipeline_option_not_integer", option="num_return_sequences")),
        ({"early_stopping": "always"}, has_code("invalid_early_stopping", value="always")),
        ({"early_stopping": 1}, has_code("invalid_early_stopping", value=1)),
        ({"temperature": 0.5}, has_code("sampling_option_without_sample", option="temperature")),
        (
            {"num_return_sequences": 3},
            has_code(
                "aliased_option_invalid",
                error=has_code("n_best_out_of_range", n_best=3, option="beam", limit=1),
                aliases="num_return_sequences = n_best",
            ),
        ),
        (
            {"early_stopping": True},
            has_code(
                "aliased_option_invalid",
                error=has_code("beam_option_without_beam", option="stop"),
                aliases="early_stopping = stop",
            ),
        ),
    ],
)
def test_invalid_options_are_rejected_before_decoding(options: dict[str, Any], error: ErrorCheck) -> None:
    with pytest.raises(UsageError, check=error):
        attendo.pipeline("translation", answering(), **options)
    with pytest.raises(UsageError, check=error):
        attendo.pipeline("translation", answering())(TEXT, **options)


def test_language_options_are_rejected_outside_translation() -> None:
    with pytest.raises(UsageError, check=has_code("unsupported_pipeline_option", option="src_lang", value="en")):
        attendo.pipeline("summarization", answering())(TEXT, src_lang="en")


def test_options_incompatible_with_decoder_only_models_are_rejected() -> None:
    pipe = attendo.pipeline("text-generation", continuing())
    with pytest.raises(UsageError, check=has_code("prefix_with_decoder_only_model")):
        pipe(TEXT, prefix="a")
    with pytest.raises(UsageError, check=has_code("prompt_longer_than_max_length", limit=3)):
        pipe(TEXT, max_length=3)


def test_a_call_may_override_an_option_by_its_alias() -> None:
    assert merge_options({"max_new_tokens": 5, "beam": 2}, {"max_length": 3}) == {"beam": 2, "max_length": 3}
    assert merge_options({"max_length": 5, "beam": 2}, {"max_new_tokens": 3}) == {"beam": 2, "max_new_tokens": 3}
    assert merge_options({"min_length": 5}, {"max_new_tokens": 3}) == {"min_length": 5, "max_new_tokens": 3}


def test_none_equals_an_omitted_option() -> None:
    assert from_hf_options({"num_beams": None, "max_new_tokens": None, "return_full_text": None}, CONTINUING) == {}
    assert from_hf_options({"num_beams": None, "beam": 3}, TRANSLATION) == {"beam": 3}
