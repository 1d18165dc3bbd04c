"""The engine from outside: requests and rules as our own engines get them, and the same answers and scores."""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from error_codes import ErrorCheck, has_code
from exported import some_sentences
from talkative import some_texts, talkative_model

from attendo.decode.engines import Engine
from attendo.decode.frontier import NEG_INF
from attendo.decode.requests import DecodeRequest
from attendo.decode.rules import Renormalise
from attendo.decode.strategies import Greedy
from attendo.errors import ModelError, UsageError
from attendo.interop.ctranslate2.engine import CTranslate2Engine
from attendo.interop.ctranslate2.folder import open_ctranslate2
from attendo.interop.ctranslate2.options import check_ctranslate2_options
from attendo.interop.export import export
from attendo.text_model import Hypothesis, TextModel
from attendo.text_model.generation import Generation
from attendo.text_model.inputs import SourceEncoder
from attendo.text_model.options import split_options

pytest.importorskip("ctranslate2")

TEXTS = some_texts(24)
THEIRS = {"like": "ctranslate2", "max_length": 9}

HONOURED: list[dict[str, Any]] = [
    {"max_length": 9},
    {"max_length": 3},
    {"max_length": 9, "min_length": 4, "no_repeat_ngram": 2},
    {"max_length": 4, "min_length": 4, "allow_unk": False},
    {"max_length": 9, "prefix": "w03 w07"},
    {"max_length": 9, "ban": ["w10", "w20 w30"]},
    {},
    {**THEIRS, "beam": 1, "repetition_penalty": 1.5},
    {**THEIRS, "beam": 4, "n_best": 4},
    {**THEIRS, "beam": 4, "n_best": 2, "length_penalty": 0.0},
    {**THEIRS, "beam": 3, "normalise": "none", "stop": "leader"},
    {**THEIRS, "beam": 4, "patience": 1.5, "repetition_penalty": 0.8, "ban": ["w10"]},
    {**THEIRS, "beam": 4, "min_length": 3, "mbr": "chrf"},
]

ALL = "onnx, textbook, cached, fast"
REFUSED: list[tuple[dict[str, Any], str, str]] = [
    ({"beam": 4}, "stop settled (CTranslate2: first), at_limit cut/end, renormalise false", ALL),
    ({"sample": True}, "sample", ALL),
    ({"beam": 4, "groups": 2}, "beam_groups", ALL),
    ({**THEIRS, "beam": 2, "at_limit": "cut", "constraints": ["w10"]}, "constraints", "onnx, cached"),
    ({"alignments": True}, "alignments", "textbook, cached, fast"),
    ({"compile": True}, "compile", "fast"),
    ({"precision": "bf16"}, "precision bf16", "textbook, cached, fast"),
    ({"at_limit": "end"}, "at_limit end", ALL),
    ({"renormalise": True}, "renormalise + at_limit cut/end", ALL),
    ({"repetition_penalty": 2.0}, "repetition_penalty + renormalise false, repetition_of log_probabilities", ALL),
    ({**THEIRS, "beam": 4, "normalise": "gnmt"}, "stop first (CTranslate2: leader), normalise gnmt", ALL),
    ({**THEIRS, "beam": 4, "word_penalty": 0.5}, "word_penalty 0.5", ALL),
    ({**THEIRS, "beam": 4, "counts_eos": False}, "counts_eos false", ALL),
    ({**THEIRS, "beam": 4, "coverage_penalty": 0.2}, "coverage_penalty 0.2", "cached, fast"),
    ({"coverage_penalty": 0.2}, "coverage_penalty 0.2", "cached, fast"),
    ({**THEIRS, "beam": 4, "patience": 1.1}, "patience 1.1 + beam 4", ALL),
    ({"like": "marian", "beam": 4}, "stop shrinking (CTranslate2: leader), renormalise false", ALL),
]


@pytest.fixture(scope="module")
def model() -> TextModel:
    return talkative_model()


@pytest.fixture(scope="module")
def folder(model: TextModel, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("engine") / "out"
    export(model, out, "ctranslate2", "float32", some_sentences(model, 4))
    return out


@pytest.fixture(scope="module")
def engine(folder: Path) -> CTranslate2Engine:
    return CTranslate2Engine(open_ctranslate2(folder, threads=1))


@pytest.mark.short(2)
@pytest.mark.parametrize("options", HONOURED, ids=str)
def test_answers_and_all_that_is_told_of_them_are_ours(
    model: TextModel, engine: CTranslate2Engine, options: dict[str, Any]
) -> None:
    ours = [result.hypotheses for result in model.generate(TEXTS, **options)]
    theirs = answered(model, engine, options)
    for one, other in zip(ours, theirs, strict=True):
        assert [each.ids for each in one] == [each.ids for each in other]
        assert [each.cut for each in one] == [each.cut for each in other]
        assert [each.score for each in one] == pytest.approx([each.score for each in other], abs=1e-4)
        for mine, its in zip(one, other, strict=True):
            assert mine.parts.log_probability == pytest.approx(its.parts.log_probability, abs=1e-3)
            assert mine.parts.penalty == pytest.approx(its.parts.penalty, abs=1e-3)


def test_some_of_these_answers_end_and_some_are_cut(model: TextModel) -> None:
    results = model.generate(TEXTS, max_length=9)
    assert 2 < sum(each.cut for each in results) < len(results) - 2
    assert len({each.ids for each in results}) > 12


@pytest.mark.parametrize(("options", "reason", "engines"), REFUSED, ids=[reason for _, reason, _ in REFUSED])
def test_what_it_cannot_honour_is_refused_by_name(
    model: TextModel, options: dict[str, Any], reason: str, engines: str
) -> None:
    unsupported = has_code("engine_option_alternatives", options=reason, engines=engines)
    error = has_code("engine_option_unsupported", engine="ctranslate2", reasons=unsupported)
    with pytest.raises(UsageError, check=error):
        check_ctranslate2_options(*split_options(model.generation, options))


def test_the_engine_itself_refuses_too(model: TextModel, engine: CTranslate2Engine) -> None:
    for options in ({"beam": 4}, {"sample": True}, {"beam": 4, "groups": 2}, {"at_limit": "end"}):
        with pytest.raises(UsageError, check=has_code("engine_option_unsupported", engine="ctranslate2")):
            answered(model, engine, options)


def test_what_it_can_honour_is_not_refused(model: TextModel) -> None:
    for options in HONOURED:
        check_ctranslate2_options(*split_options(model.generation, options))


def test_it_is_an_engine_whose_requests_may_be_in_any_order(engine: CTranslate2Engine) -> None:
    assert isinstance(engine, Engine)
    requests = [DecodeRequest(7, (10, 11), 4), DecodeRequest(3, (12,), 6), DecodeRequest(5, (), 4)]
    found = {
        request.request_id: frontier
        for answers in engine.generate(requests, Greedy(free_end=True), [Renormalise()])
        for request, frontier in answers.split()
    }
    assert found.keys() == {3, 5, 7}
    assert all(float(each.log_probability[0]) != NEG_INF for each in found.values())
    assert list(engine.generate([], Greedy(), [])) == []


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (
            DecodeRequest(1, (10,) * 2048, 4),
            has_code("export_sequence_too_long", side="a source", tokens=2048, limit=2047),
        ),
        (
            DecodeRequest(1, (10,), 2048),
            has_code("export_sequence_too_long", side="an answer", tokens=2048, limit=2047),
        ),
    ],
)
def test_what_is_longer_than_its_positions_is_refused(
    engine: CTranslate2Engine, request_: DecodeRequest, error: ErrorCheck
) -> None:
    with pytest.raises(UsageError, check=error):
        next(engine.generate([request_], Greedy(), []))


def test_an_exported_folder_brings_its_tokenizers_and_defaults(model: TextModel, folder: Path) -> None:
    exported = open_ctranslate2(folder, threads=1)
    assert exported.source_tokenizer == model.source_tokenizer
    assert exported.source_tokenizer is exported.target_tokenizer
    assert exported.generation == model.stored_model.generation


def test_a_folder_that_is_none_or_is_damaged_is_told(model: TextModel, folder: Path, tmp_path: Path) -> None:
    model.save(tmp_path / "ours")
    with pytest.raises(
        ModelError,
        check=has_code("manifest_version_mismatch", kind="attendo.export", version=1, found="attendo.model version 1"),
    ):
        open_ctranslate2(tmp_path / "ours")
    shutil.copytree(folder, tmp_path / "copy")
    with (tmp_path / "copy" / "model.bin").open("r+b") as file:
        file.seek(1000)
        file.write(b"x")
    with pytest.raises(ModelError, check=has_code("file_checksum_mismatch")):
        open_ctranslate2(tmp_path / "copy")


def answered(model: TextModel, engine: CTranslate2Engine, options: dict[str, Any]) -> Sequence[tuple[Hypothesis, ...]]:
    wishes, config = split_options(model.generation, options)
    maker = SourceEncoder(
        wishes, config, model.source_tokenizer, model.target_tokenizer, model.runtime.max_sequence_length
    )
    lines = [line for each in maker.encode(TEXTS) for line in each]
    return Generation(wishes, config, model.target_tokenizer).generate(lines, engine)
