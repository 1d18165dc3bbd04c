"""Exported folders through the calls of a text model: as the model answers, or an error that says who can."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from error_codes import ErrorCheck, has_code
from exported import WORDS, some_sentences, wordy
from talkative import talkative_model

import attendo as package
from attendo.errors import ModelError, UsageError
from attendo.interop import export as exporting
from attendo.interop.export import export
from attendo.interop.load import load
from attendo.text import BOS, EOS, Words
from attendo.text_model import Backend, Result, TextModel

for needed in ("ctranslate2", "onnx", "onnxruntime"):
    pytest.importorskip(needed)

TEXTS = [" ".join(WORDS[n : n + 1 + n % 6]) for n in range(0, 36, 4)] + [""]
PREFIXES = {"source_prefix": ["<en>"], "target_prefix": ["<de>"]}
Out = Callable[[TextModel, Any], TextModel]

OF_OURS: list[dict[str, Any]] = [
    {},
    {"beam": 4, "n_best": 3},
    {"sample": True, "seed": 7, "top_k": 9, "n_best": 2},
    {"beam": 4, "constraints": ["w07"]},
    {"beam": 4, "groups": 2, "prefix": "w03"},
    {"beam": 3, "ban": ["w10", "w20 w30"], "no_repeat_ngram": 2, "min_length": 3},
    {"mbr": "chrf", "mbr_candidates": 6},
    {"like": "marian", "beam": 3},
    {"engine": "onnx", "at_limit": "end", "max_length": 4},
]
OF_CTRANSLATE2: list[dict[str, Any]] = [
    {},
    {"engine": "ctranslate2", "prefix": "w03", "max_length": 6},
    {"at_limit": "cut", "max_length": 3},
    {"ban": ["w10", "w20 w30"], "no_repeat_ngram": 2, "min_length": 3},
]
BEAMS: list[dict[str, Any]] = [{"n_best": 3}, {"length_penalty": 0.0}, {"patience": 1.5}, {"repetition_penalty": 1.3}]


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Where a model is exported to."""

    def write(model: TextModel, to: Any, count: int = 4) -> Path:
        folder = tmp_path_factory.mktemp("outside") / "out"
        export(model, folder, to, "float32", some_sentences(model, count))
        return folder

    return write


@pytest.fixture(scope="module")
def model() -> TextModel:
    return talkative_model()


@pytest.fixture(scope="module")
def onnx(model: TextModel, out: Callable[..., Path]) -> TextModel:
    """In two threads, to which the texts of a call are dealt."""
    folder = out(model, "onnx")
    torch.set_num_threads(2)
    try:
        return load(folder)
    finally:
        torch.set_num_threads(1)


@pytest.fixture(scope="module")
def ctranslate2(model: TextModel, out: Callable[..., Path]) -> TextModel:
    return load(out(model, "ctranslate2"))


@pytest.mark.short(1)
@pytest.mark.parametrize("options", OF_OURS, ids=str)
def test_onnx_takes_every_option_and_answers_as_the_model_does(
    model: TextModel, onnx: TextModel, options: dict[str, Any]
) -> None:
    ours = {name: value for name, value in options.items() if name != "engine"}
    assert_same(onnx.generate(TEXTS, **options), model.generate(TEXTS, **ours))


@pytest.mark.short(1)
@pytest.mark.parametrize("options", OF_CTRANSLATE2, ids=str)
def test_greedy_by_ctranslate2_is_ours(model: TextModel, ctranslate2: TextModel, options: dict[str, Any]) -> None:
    ours = {name: value for name, value in options.items() if name != "engine"}
    assert_same(ctranslate2.generate(TEXTS, **options), model.generate(TEXTS, **ours))


@pytest.mark.short(1)
@pytest.mark.parametrize("options", BEAMS, ids=str)
def test_a_beam_by_ctranslate2_has_its_meaning_and_the_models_lengths(
    model: TextModel, ctranslate2: TextModel, options: dict[str, Any]
) -> None:
    lengths = {"max_length_factor": 2.0, "max_length_extra": 20, "min_length_extra": 0}
    ours = model.generate(TEXTS, like="ctranslate2", beam=4, **lengths, **options)
    assert_same(ctranslate2.generate(TEXTS, beam=4, **options), ours)
    theirs = ctranslate2.generate(TEXTS, like="ctranslate2", beam=4, max_length=9)
    assert_same(theirs, model.generate(TEXTS, like="ctranslate2", beam=4, max_length=9))


@pytest.mark.short(1)
@pytest.mark.parametrize("to", ["onnx", "ctranslate2"])
def test_prefixes_of_the_model_stand_before_sources_and_answers(to: str, out: Callable[..., Path]) -> None:
    plain = wordy(words=Words.build([" ".join(WORDS)], symbols=("<en>", "<de>")))
    model = TextModel(replace(plain.stored_model, generation={**plain.stored_model.generation, **PREFIXES}))
    folder = out(model, to, 24)
    exported = load(folder)
    notes = json.loads((folder / "certificate.json").read_text("utf-8"))["notes"]
    for told in ("every source must begin with <en>", "every answer with (target_prefix) <de>"):
        assert (f"elsewhere than in attendo {told}" in notes) == (to == "ctranslate2")
    ours = model.generate(TEXTS)
    assert_same(exported.generate(TEXTS), ours)
    assert {each.pieces[0] for each in ours[:-1]} == {"<de>"}
    assert_same(exported.generate(TEXTS, target_prefix=["<en>"]), model.generate(TEXTS, target_prefix=["<en>"]))
    assert exported.score(TEXTS[:3], TEXTS[3:6]) == pytest.approx(model.score(TEXTS[:3], TEXTS[3:6]), abs=1e-4)


def test_both_sides_of_an_onnx_folder_are_compared_behind_the_prefix(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = wordy(words=Words.build([" ".join(WORDS)], symbols=("<en>", "<de>")))
    model = TextModel(replace(plain.stored_model, generation={**plain.stored_model.generation, **PREFIXES}))
    asked: list[Any] = []
    certify = exporting.certify
    monkeypatch.setattr(exporting, "certify", lambda *given: asked.append(given) or certify(*given))
    export(model, tmp_path / "out", "onnx", "float32", some_sentences(model, 4))
    german = model.target_tokenizer.encode("<de>")[0]
    meant = model.network(torch.tensor([[9, 10, EOS]]), torch.tensor([[BOS, german, 11]]))[0, 1:]
    for party in asked[0][:2]:
        torch.testing.assert_close(party.logits([9, 10], [11]), meant, atol=1e-4, rtol=0)
        assert german not in party.generate([[9, 10]], 1, 1)[0].ids


@pytest.mark.parametrize("name", ["onnx", "ctranslate2"])
def test_given_targets_are_scored_token_by_token(name: str, model: TextModel, request: pytest.FixtureRequest) -> None:
    exported: TextModel = request.getfixturevalue(name)
    targets = [*TEXTS[5:-1], *TEXTS[:5], "w01"]
    for one, other in zip(exported.score_tokens(TEXTS, targets), model.score_tokens(TEXTS, targets), strict=True):
        assert one.pieces == other.pieces
        assert one.log_probabilities == pytest.approx(other.log_probabilities, abs=1e-4)
    assert exported.score([], []) == []


@pytest.mark.short(1)
@pytest.mark.parametrize("options", [{}, {"beam": 3}])
def test_a_stream_is_the_text_in_pieces_or_whole(
    options: dict[str, Any], model: TextModel, onnx: TextModel, ctranslate2: TextModel
) -> None:
    for text in TEXTS[2:5]:
        whole = model.generate([text], **options)[0].text
        pieces = list(onnx.stream(text, **options))
        assert "".join(pieces) == whole
        assert options or len(pieces) > 1  # a beam of a random network is decided at its end
        assert list(ctranslate2.stream(text, **options)) == [ctranslate2.generate([text], **options)[0].text]


def test_alternatives_and_trees_come_from_our_own_search(
    model: TextModel, onnx: TextModel, ctranslate2: TextModel
) -> None:
    ours, theirs = (each.alternatives(TEXTS[3], prefix="w03", count=4) for each in (model, onnx))
    assert [each.word for each in theirs] == [each.word for each in ours]
    assert [each.log_probability for each in theirs] == pytest.approx([each.log_probability for each in ours], abs=1e-4)
    (ours_tree,), (tree,) = (each.search_tree(TEXTS[3], beam=3) for each in (model, onnx))
    assert [node.id for node in tree.nodes] == [node.id for node in ours_tree.nodes]
    for ask in (ctranslate2.alternatives, ctranslate2.search_tree):
        with pytest.raises(UsageError, check=has_code("engine_option_unsupported", engine="ctranslate2")):
            ask(TEXTS[3])


@pytest.mark.parametrize(
    ("name", "options", "error"),
    [
        (
            "onnx",
            {"alignments": True},
            has_code(
                "engine_option_unsupported",
                reasons=has_code("engine_option_alternatives", options="alignments", engines="textbook, cached, fast"),
            ),
        ),
        (
            "onnx",
            {"coverage_penalty": 0.2, "beam": 2},
            has_code(
                "engine_option_unsupported",
                reasons=has_code("engine_option_alternatives", options="coverage_penalty", engines="cached, fast"),
            ),
        ),
        (
            "onnx",
            {"compile": True},
            has_code(
                "engine_option_unsupported",
                reasons=has_code("engine_option_alternatives", options="compile", engines="fast"),
            ),
        ),
        (
            "onnx",
            {"precision": "bf16", "compile": True},
            has_code(
                "engine_option_unsupported",
                reasons=has_code(
                    "engine_option_alternatives", options="precision bf16", engines="textbook, cached, fast"
                ),
            ),
        ),
        (
            "ctranslate2",
            {"sample": True},
            has_code(
                "engine_option_unsupported",
                reasons=has_code(
                    "engine_option_alternatives", options="sample", engines="onnx, textbook, cached, fast"
                ),
            ),
        ),
        (
            "ctranslate2",
            {"beam": 4, "groups": 2},
            has_code(
                "engine_option_unsupported",
                reasons=has_code(
                    "engine_option_alternatives", options="beam_groups", engines="onnx, textbook, cached, fast"
                ),
            ),
        ),
        (
            "ctranslate2",
            {"beam": 4, "constraints": ["w07"]},
            has_code(
                "engine_option_unsupported",
                reasons=has_code("engine_option_alternatives", options="constraints", engines="onnx, cached"),
            ),
        ),
        (
            "ctranslate2",
            {"beam": 4, "stop": "settled"},
            has_code(
                "engine_option_unsupported",
                reasons=has_code(
                    "engine_option_alternatives",
                    options="stop settled (CTranslate2: first)",
                    engines="onnx, textbook, cached, fast",
                ),
            ),
        ),
        (
            "ctranslate2",
            {"at_limit": "end"},
            has_code(
                "engine_option_unsupported",
                reasons=has_code(
                    "engine_option_alternatives", options="at_limit end", engines="onnx, textbook, cached, fast"
                ),
            ),
        ),
        (
            "ctranslate2",
            {"mbr": "chrf"},
            has_code(
                "engine_option_unsupported",
                reasons=has_code(
                    "engine_option_alternatives", options="sample", engines="onnx, textbook, cached, fast"
                ),
            ),
        ),
        ("onnx", {"engine": "ctranslate2"}, has_code("export_engine_mismatch", runtime="onnx", engine="ctranslate2")),
        ("onnx", {"engine": "fast"}, has_code("engine_needs_model_folder", engine="fast", runtime="onnx")),
        ("model", {"engine": "onnx"}, has_code("model_folder_not_exported", engine="onnx")),
    ],
)
def test_what_cannot_be_honoured_is_refused_with_who_can(
    name: str, options: dict[str, Any], error: ErrorCheck, request: pytest.FixtureRequest
) -> None:
    with pytest.raises(UsageError, check=error):
        request.getfixturevalue(name).generate(TEXTS[:1], **options)


def test_it_has_no_network_to_be_looked_into(model: TextModel, onnx: TextModel, ctranslate2: TextModel) -> None:
    for exported in (onnx, ctranslate2):
        assert isinstance(exported.runtime, Backend)
        name = exported.runtime.name
        for ask in (lambda each: each.network, lambda each: each.save("x"), lambda each: each.trace("w01")):
            with pytest.raises(UsageError, check=has_code("exported_folder_without_network", runtime=name)):
                ask(exported)
        for together in ((model, exported), (exported, model)):
            with pytest.raises(UsageError, check=has_code("ensemble_with_exported_folder", runtime=name)):
                together[0].ensemble([together[1]])


def test_settings_for_the_machine_of_the_model_stay_with_it(model: TextModel, out: Callable[..., Path]) -> None:
    of_machine = {"engine": "fast", "precision": "bf16", "compile": True, "batch_tokens": 9}
    told = TextModel(
        replace(model.stored_model, generation={"beam": 2, "at_limit": "end", "stop": "settled", **of_machine})
    )
    exported = load(out(told, "ctranslate2"))
    assert (exported.generation.beam, exported.generation.precision) == (2, "auto")
    assert exported.generate(TEXTS[:2])
    asked = exported.settings(length_penalty=0.0)
    assert (asked.stop, asked.at_limit, asked.renormalise) == ("leader", "free", True)
    asked = exported.settings(beam=1)
    assert (asked.at_limit, asked.renormalise) == ("free", False)


def test_a_folder_is_opened_for_what_it_is(model: TextModel, out: Callable[..., Path], tmp_path: Path) -> None:
    model.save(tmp_path / "model")
    assert package.load(tmp_path / "model").runtime.name == "torch"
    folders = {to: out(model, to) for to in ("onnx", "ctranslate2")}
    for to, folder in folders.items():
        assert package.load(folder).runtime.name == to
        with pytest.raises(UsageError, check=has_code("unknown_device", name="gpu")):
            load(folder, "gpu")
    with pytest.raises(UsageError, check=has_code("ctranslate2_gpu_missing", device="cuda:77")):
        load(folders["ctranslate2"], "cuda:77")


@pytest.mark.parametrize(
    ("files", "error"),
    [
        ({"config.json": {"model_type": "marian"}}, has_code("transformers_model_not_imported", kind="marian")),
        (
            {"config.json": {"model_type": "t5"}},
            has_code("model_type_unsupported", kind="t5"),
        ),
        ({"model.bin": {}}, has_code("ctranslate2_folder_not_attendo")),
        ({"config.json": []}, has_code("model_manifest_missing", reason="it has no manifest.json")),
        (
            {"manifest.json": {"format": "attendo.export", "facts": {"to": "hf"}}},
            has_code("export_format_not_runnable", engine="hf"),
        ),
    ],
)
def test_a_folder_of_others_is_told_what_to_do_with(tmp_path: Path, files: dict[str, Any], error: ErrorCheck) -> None:
    for name, content in files.items():
        (tmp_path / name).write_text(json.dumps(content))
    with pytest.raises(ModelError, check=error):
        load(tmp_path)


def test_a_package_of_argos_is_told_apart(tmp_path: Path) -> None:
    (tmp_path / "en_de.argosmodel").write_bytes(b"PK")
    with pytest.raises(ModelError, check=has_code("export_format_not_runnable", engine="argos")):
        load(tmp_path / "en_de.argosmodel")


@pytest.mark.slow
def test_the_certificate_is_part_of_what_is_checked(model: TextModel, out: Callable[..., Path]) -> None:
    for to in ("onnx", "ctranslate2"):
        folder = out(model, to)
        manifest = json.loads((folder / "manifest.json").read_text("utf-8"))
        assert "certificate.json" in manifest["files"]
        assert manifest["facts"]["to"] == to
        (folder / "certificate.json").write_text("{}")
        with pytest.raises(ModelError, check=has_code("file_size_mismatch", size=2)):
            load(folder)


def assert_same(found: list[Result], meant: list[Result]) -> None:
    for one, other in zip(found, meant, strict=True):
        assert [each.ids for each in one.hypotheses] == [each.ids for each in other.hypotheses]
        assert [each.text for each in one.hypotheses] == [each.text for each in other.hypotheses]
        assert one.constraints == other.constraints
        for mine, its in zip(one.hypotheses, other.hypotheses, strict=True):
            assert mine.score == pytest.approx(its.score, abs=1e-4)
            assert mine.log_probability == pytest.approx(its.log_probability, abs=1e-3)
