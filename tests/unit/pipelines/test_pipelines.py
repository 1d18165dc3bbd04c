"""Pipelines: texts in, lists of dicts out, in the shapes of transformers 4."""

from pathlib import Path
from typing import Any

import pytest
import torch
from error_codes import ErrorCheck, has_code
from piped import QUIET, answering, continuing, only
from tiny import SOURCES, tiny_model

import attendo
from attendo.errors import ModelError, UsageError
from attendo.pipelines import Pipeline
from attendo.text_model import TextModel

pytestmark = pytest.mark.filterwarnings(QUIET)

TEXTS = list(SOURCES)
KEYS = {"translation": "translation_text", "summarization": "summary_text", "text2text-generation": "generated_text"}


def generate_texts(model: TextModel, texts: list[str], **options: Any) -> list[str]:
    return [result.text for result in model.generate(texts, **options)]


@pytest.mark.parametrize(("task", "key"), KEYS.items())
def test_the_output_has_one_dict_per_text(task: str, key: str) -> None:
    model = answering()
    pipe = attendo.pipeline(task, model)
    texts = generate_texts(model, TEXTS)
    assert len(set(texts)) > 1
    assert only(pipe(TEXTS[0])) == [{key: texts[0]}]
    assert only(pipe(TEXTS)) == [{key: text} for text in texts]
    assert only(pipe(TEXTS[:1])) == [{key: texts[0]}]
    assert pipe([]) == []


def test_several_answers_give_one_list_per_text() -> None:
    model = answering()
    pipe = attendo.pipeline("translation", model)
    expected = [
        [{"translation_text": each.text} for each in result.hypotheses]
        for result in model.generate(TEXTS, beam=3, n_best=2)
    ]
    assert only(pipe(TEXTS, num_beams=3, num_return_sequences=2)) == expected
    assert only(pipe(TEXTS[0], num_beams=3, num_return_sequences=2)) == expected[0]


def test_a_decoder_only_model_continues_a_text() -> None:
    model = continuing()
    pipe = attendo.pipeline("text-generation", model)
    texts = generate_texts(model, TEXTS)
    assert all(text.startswith(begin) for text, begin in zip(texts, TEXTS, strict=True))
    assert texts != TEXTS
    assert pipe(TEXTS[0]) == [{"generated_text": texts[0]}]
    assert pipe(TEXTS) == [[{"generated_text": text}] for text in texts]
    new = pipe(TEXTS, return_full_text=False)
    assert [begin + each[0]["generated_text"] for begin, each in zip(TEXTS, new, strict=True)] == texts


@pytest.mark.parametrize("text", ["日 cat", "the cat\r\n", "the cat\r\n sat", " the cat "])
def test_a_continued_text_is_unchanged(text: str) -> None:
    for model in (continuing(), continuing("words")):
        pipe = attendo.pipeline("text-generation", model, max_new_tokens=3, min_new_tokens=3)
        (full,), (new,) = pipe(text), pipe(text, return_full_text=False)
        assert full["generated_text"] == text + new["generated_text"]
        assert new["generated_text"]
        if text.endswith(" ") and model.target_tokenizer.kind == "words":
            assert not new["generated_text"].startswith(" ")


def test_new_tokens_are_counted_after_the_prompt() -> None:
    model = continuing()
    pipe = attendo.pipeline("text-generation", model, max_new_tokens=2)
    for text, (record,) in zip(TEXTS, pipe(TEXTS, min_new_tokens=2), strict=True):
        assert (
            record["generated_text"]
            == generate_texts(model, [text], max_length=len(text) + 2, min_length=len(text) + 2)[0]
        )
        assert len(record["generated_text"]) == len(text) + 2
    assert len(pipe(TEXTS[0], max_length=20, min_length=20)[0]["generated_text"]) == 20
    assert len(pipe(TEXTS[0], max_new_tokens=3, min_new_tokens=3)[0]["generated_text"]) == len(TEXTS[0]) + 3


def test_new_tokens_of_an_answer_are_all_its_tokens() -> None:
    model = answering()
    pipe = attendo.pipeline("text2text-generation", model)
    assert (
        only(pipe(TEXTS, max_new_tokens=2))
        == [{"generated_text": text} for text in generate_texts(model, TEXTS, max_length=2)]
        != only(pipe(TEXTS))
    )


def test_a_model_may_be_given_as_a_folder(tmp_path: Path) -> None:
    model = tiny_model()
    model.save(tmp_path / "model")
    for folder in (tmp_path / "model", str(tmp_path / "model")):
        assert attendo.pipeline("translation", folder, device=-1)(TEXTS) == attendo.pipeline("translation", model)(
            TEXTS
        )
    with pytest.raises(ModelError, check=has_code("model_folder_not_found")):
        attendo.pipeline("translation", "Helsinki-NLP/opus-mt-en-de")


def test_a_pipeline_has_its_task_and_model() -> None:
    pipe = attendo.pipeline("translation_en_to_zh", answering())
    assert isinstance(pipe, Pipeline)
    assert (pipe.task, pipe.model) == ("translation_en_to_zh", answering())


def test_options_of_a_call_override_those_of_the_pipeline() -> None:
    model = answering()
    pipe = attendo.pipeline("translation", model, num_beams=4, max_new_tokens=3)
    assert only(pipe(TEXTS)) == [
        {"translation_text": text} for text in generate_texts(model, TEXTS, beam=4, max_length=3)
    ]
    assert only(pipe(TEXTS, beam=1)) == [
        {"translation_text": text} for text in generate_texts(model, TEXTS, max_length=3)
    ]
    assert only(pipe(TEXTS, max_length=1)) == [
        {"translation_text": text} for text in generate_texts(model, TEXTS, beam=4, max_length=1)
    ]
    assert pipe(TEXTS, num_beams=None) == pipe(TEXTS)


def test_batch_size_is_the_number_of_texts_per_call(monkeypatch: pytest.MonkeyPatch) -> None:
    model = answering()
    sizes: list[int] = []
    generate = TextModel.generate

    def record_size(self: TextModel, texts: list[str], **options: Any) -> Any:
        sizes.append(len(texts))
        return generate(self, texts, **options)

    monkeypatch.setattr(TextModel, "generate", record_size)
    pipe = attendo.pipeline("translation", model, batch_size=3)
    assert pipe(TEXTS) == pipe(TEXTS, batch_size=1)
    assert sizes == [3, 1, 1, 1, 1, 1]
    for wrong in (0, "2", True):
        with pytest.raises(UsageError, check=has_code("invalid_batch_size")):
            pipe(TEXTS, batch_size=wrong)


@pytest.mark.short(1)
@pytest.mark.parametrize("size", [None, 1, 3])
def test_prefixes_and_constraints_stay_with_their_texts(size: int | None) -> None:
    model = answering()
    pipe = attendo.pipeline("text2text-generation", model, batch_size=size)
    prefix = ["我", "猫", "狗", "我 爱"]
    output = pipe(TEXTS, prefix=prefix)
    assert [each["generated_text"] for each in output] == generate_texts(model, TEXTS, prefix=prefix)
    assert all(each["generated_text"].startswith(begin) for each, begin in zip(output, prefix, strict=True))
    phrases = [["猫"], [], ["狗"], ["我"]]
    output = pipe(TEXTS, constraints=phrases, beam=3)
    assert [each["generated_text"] for each in output] == generate_texts(model, TEXTS, constraints=phrases, beam=3)
    assert pipe(TEXTS, constraints=["猫"], beam=3) == pipe(TEXTS, constraints=[["猫"]] * 4, beam=3)


@pytest.mark.parametrize("device", [None, "auto", "cpu", torch.device("cpu"), -1])
def test_a_loaded_model_stays_on_its_device(device: Any) -> None:
    assert attendo.pipeline("translation", answering(), device=device)(TEXTS[0])


def test_another_device_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(UsageError, check=has_code("model_on_other_device", requested=0)):
        attendo.pipeline("translation", answering(), device=0)
    answering().save(tmp_path / "model")
    with pytest.raises(UsageError, check=has_code("cuda_device_unavailable", name="cuda:99")):
        attendo.pipeline("translation", tmp_path / "model", device=99)


@pytest.mark.parametrize("inputs", [None, 7, ("a", "b"), ["a", 7], {"text": "a"}, [{"role": "user", "content": "a"}]])
def test_inputs_other_than_texts_are_rejected(inputs: Any) -> None:
    with pytest.raises(UsageError, check=has_code("invalid_pipeline_input", task="translation", expected="a text")):
        attendo.pipeline("translation", answering())(inputs)


@pytest.mark.parametrize(
    ("task", "error"),
    [
        ("tranlation", has_code("unknown_task", task="tranlation", suggestion=" (did you mean translation?)")),
        ("fill-mask", has_code("unknown_task", task="fill-mask")),
        ("text-generation", has_code("task_needs_decoder_only", task="text-generation")),
        (
            "summarization",
            has_code("task_not_of_model", model_task="translation", task="summarization", alternative="translation"),
        ),
        (
            "conversational",
            has_code("task_not_of_model", model_task="translation", task="conversational", alternative="translation"),
        ),
        (
            "translation_de_to_zh",
            has_code("language_not_of_model", subject="the source of translation_de_to_zh", requested="de", own="en"),
        ),
        (
            "translation_en_to_de",
            has_code(
                "language_not_of_model", subject="the target of translation_en_to_de", requested="de", own="zh-Hans"
            ),
        ),
    ],
)
def test_a_task_that_does_not_fit_the_model_is_rejected(task: str, error: ErrorCheck) -> None:
    model = answering(task="translation", source_language="en", target_language="zh-Hans")
    with pytest.raises(UsageError, check=error):
        attendo.pipeline(task, model)


@pytest.mark.parametrize("task", ["translation", "summarization", "text2text-generation", "conversational"])
def test_decoder_only_models_are_rejected_for_other_tasks(task: str) -> None:
    with pytest.raises(UsageError, check=has_code("task_needs_encoder", task=task)):
        attendo.pipeline(task, continuing())


def test_languages_are_checked_if_the_model_names_them() -> None:
    model = answering(task="translation", source_language="en", target_language="zh-Hans")
    for task in ("translation", "translation_en_to_zh", "text2text-generation"):
        assert attendo.pipeline(task, model)(TEXTS[0])
    pipe = attendo.pipeline("translation", model, src_lang="en_XX")
    assert pipe(TEXTS[0], tgt_lang="zh_CN") == pipe(TEXTS[0])
    with pytest.raises(
        UsageError, check=has_code("language_not_of_model", subject="tgt_lang", requested="de", own="zh-Hans")
    ):
        pipe(TEXTS[0], tgt_lang="de")
    with pytest.raises(UsageError, check=has_code("model_language_unknown", side="source")):
        attendo.pipeline("translation", answering(), src_lang="en")
    assert attendo.pipeline("translation_de_to_fr", answering())(TEXTS[0])


def test_a_task_and_a_model_are_needed() -> None:
    wrong: Any = None
    with pytest.raises(UsageError, check=has_code("task_not_string")):
        attendo.pipeline(wrong, answering())
    with pytest.raises(UsageError, check=has_code("invalid_pipeline_model", value="None")):
        attendo.pipeline("translation", wrong)
