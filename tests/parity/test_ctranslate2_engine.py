"""The CTranslate2 engine takes the requests and rules of our engines, and gives the same answers and scores."""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from error_codes import ErrorCheck, has_code
from export_models import random_sentences
from search_parity import random_text_model, random_texts

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

TEXTS = random_texts(24)
THEIRS = {"preset": "ctranslate2", "max_length": 9}

SUPPORTED: list[dict[str, Any]] = [
    {"max_length": 9},
    {"max_length": 3},
    {"max_length": 9, "min_length": 4, "no_repeat_ngram_size": 2},
    {"max_length": 4, "min_length": 4, "allow_unk": False},
    {"max_length": 9, "prefix": "w03 w07"},
    {"max_length": 9, "banned_phrases": ["w10", "w20 w30"]},
    {},
    {**THEIRS, "beam": 1, "repetition_penalty": 1.5},
    {**THEIRS, "beam": 4, "n_best": 4},
    {**THEIRS, "beam": 4, "n_best": 2, "length_penalty": 0.0},
    {**THEIRS, "beam": 3, "normalise": "none", "stop": "leader"},
    {**THEIRS, "beam": 4, "patience": 1.5, "repetition_penalty": 0.8, "banned_phrases": ["w10"]},
    {**THEIRS, "beam": 4, "min_length": 3, "mbr": "chrf"},
]

ALL = "onnx, textbook, cached, fast"
UNSUPPORTED: list[tuple[dict[str, Any], str, str]] = [
    ({"beam": 4}, "stop settled (CTranslate2: first), at_limit truncate/force_eos, renormalise false", ALL),
    ({"sample": True}, "sample", ALL),
    ({"beam": 4, "beam_groups": 2}, "beam_groups", ALL),
    ({**THEIRS, "beam": 2, "at_limit": "truncate", "constraints": ["w10"]}, "constraints", "onnx, cached"),
    ({"alignments": True}, "alignments", "textbook, cached, fast"),
    ({"compile": True}, "compile", "fast"),
    ({"precision": "bf16"}, "precision bf16", "textbook, cached, fast"),
    ({"at_limit": "force_eos"}, "at_limit force_eos", ALL),
    ({"renormalise": True}, "renormalise + at_limit truncate/force_eos", ALL),
    ({"repetition_penalty": 2.0}, "repetition_penalty + renormalise false, repetition_of log_probabilities", ALL),
    ({**THEIRS, "beam": 4, "normalise": "gnmt"}, "stop first (CTranslate2: leader), normalise gnmt", ALL),
    ({**THEIRS, "beam": 4, "word_penalty": 0.5}, "word_penalty 0.5", ALL),
    ({**THEIRS, "beam": 4, "counts_eos": False}, "counts_eos false", ALL),
    ({**THEIRS, "beam": 4, "coverage_penalty": 0.2}, "coverage_penalty 0.2", "cached, fast"),
    ({"coverage_penalty": 0.2}, "coverage_penalty 0.2", "cached, fast"),
    ({**THEIRS, "beam": 4, "patience": 1.1}, "patience 1.1 + beam 4", ALL),
    ({"preset": "marian", "beam": 4}, "stop shrinking (CTranslate2: leader), renormalise false", ALL),
]


@pytest.fixture(scope="module")
def model() -> TextModel:
    return random_text_model()


@pytest.fixture(scope="module")
def folder(model: TextModel, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("engine") / "out"
    export(model, out, "ctranslate2", "float32", random_sentences(model, 4))
    return out


@pytest.fixture(scope="module")
def engine(folder: Path) -> CTranslate2Engine:
    return CTranslate2Engine(open_ctranslate2(folder, threads=1))


@pytest.mark.short(2)
@pytest.mark.parametrize("options", SUPPORTED, ids=str)
def test_answers_scores_and_flags_equal_ours(
    model: TextModel, engine: CTranslate2Engine, options: dict[str, Any]
) -> None:
    ours = [result.hypotheses for result in model.generate(TEXTS, **options)]
    theirs = generate_with(model, engine, options)
    for one, other in zip(ours, theirs, strict=True):
        assert [each.ids for each in one] == [each.ids for each in other]
        assert [each.cut for each in one] == [each.cut for each in other]
        assert [each.score for each in one] == pytest.approx([each.score for each in other], abs=1e-4)
        for mine, its in zip(one, other, strict=True):
            assert mine.parts.log_probability == pytest.approx(its.parts.log_probability, abs=1e-3)
            assert mine.parts.penalty == pytest.approx(its.parts.penalty, abs=1e-3)


def test_some_answers_end_and_some_are_truncated(model: TextModel) -> None:
    results = model.generate(TEXTS, max_length=9)
    assert 2 < sum(each.cut for each in results) < len(results) - 2
    assert len({each.ids for each in results}) > 12


@pytest.mark.parametrize(("options", "reason", "engines"), UNSUPPORTED, ids=[reason for _, reason, _ in UNSUPPORTED])
def test_unsupported_options_raise_by_name(
    model: TextModel, options: dict[str, Any], reason: str, engines: str
) -> None:
    unsupported = has_code("engine_option_alternatives", options=reason, engines=engines)
    error = has_code("engine_option_unsupported", engine="ctranslate2", reasons=unsupported)
    with pytest.raises(UsageError, check=error):
        check_ctranslate2_options(*split_options(model.generation, options))


def test_the_engine_rejects_unsupported_options(model: TextModel, engine: CTranslate2Engine) -> None:
    for options in ({"beam": 4}, {"sample": True}, {"beam": 4, "beam_groups": 2}, {"at_limit": "force_eos"}):
        with pytest.raises(UsageError, check=has_code("engine_option_unsupported", engine="ctranslate2")):
            generate_with(model, engine, options)


def test_supported_options_pass_the_check(model: TextModel) -> None:
    for options in SUPPORTED:
        check_ctranslate2_options(*split_options(model.generation, options))


def test_requests_may_be_in_any_order(engine: CTranslate2Engine) -> None:
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
def test_sequences_beyond_the_positions_are_rejected(
    engine: CTranslate2Engine, request_: DecodeRequest, error: ErrorCheck
) -> None:
    with pytest.raises(UsageError, check=error):
        next(engine.generate([request_], Greedy(), []))


def test_an_exported_folder_keeps_tokenizers_and_defaults(model: TextModel, folder: Path) -> None:
    exported = open_ctranslate2(folder, threads=1)
    assert exported.source_tokenizer == model.source_tokenizer
    assert exported.source_tokenizer is exported.target_tokenizer
    assert exported.generation == model.stored_model.generation


def test_other_and_damaged_folders_are_rejected(model: TextModel, folder: Path, tmp_path: Path) -> None:
    model.save(tmp_path / "ours")
    with pytest.raises(
        ModelError,
        check=has_code("manifest_version_mismatch", kind="attendo.export", version=1, found="attendo.model version 1"),
    ):
        open_ctranslate2(tmp_path / "ours")
    shutil.copytree(folder, tmp_path / "copy")
    damaged = tmp_path / "copy" / "model.bin"
    with damaged.open("r+b") as file:
        file.seek(1000)
        file.write(b"x")
    with pytest.raises(ModelError, check=has_code("file_checksum_mismatch", path=damaged)):
        open_ctranslate2(tmp_path / "copy")


def generate_with(
    model: TextModel, engine: CTranslate2Engine, options: dict[str, Any]
) -> Sequence[tuple[Hypothesis, ...]]:
    generate_options, config = split_options(model.generation, options)
    encoder = SourceEncoder(
        generate_options, config, model.source_tokenizer, model.target_tokenizer, model.backend.max_sequence_length
    )
    lines = [line for each in encoder.encode(TEXTS) for line in each]
    return Generation(generate_options, config, model.target_tokenizer).generate(lines, engine)
