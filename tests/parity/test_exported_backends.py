"""Exported folders answer as the model does, or raise an error that names the engines that can."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from error_codes import ErrorCheck, has_code, message
from export_models import WORDS, random_sentences, word_model
from search_parity import random_text_model

import attendo as package
from attendo.errors import ModelError, UsageError
from attendo.interop import export as exporting
from attendo.interop.export import export
from attendo.interop.exported_files import MANIFEST_FORMAT, MANIFEST_VERSION
from attendo.interop.load import load
from attendo.model_folder import write_manifest
from attendo.text import BOS, EOS, Words
from attendo.text_model import Backend, Result, TextModel

for needed in ("ctranslate2", "onnx", "onnxruntime"):
    pytest.importorskip(needed)

TEXTS = [" ".join(WORDS[n : n + 1 + n % 6]) for n in range(0, 36, 4)] + [""]
PREFIXES = {"source_prefix": ["<en>"], "target_prefix": ["<de>"]}
Out = Callable[[TextModel, Any], TextModel]

ONNX_OPTIONS: list[dict[str, Any]] = [
    {},
    {"beam": 4, "n_best": 3},
    {"sample": True, "seed": 7, "top_k": 9, "n_best": 2},
    {"beam": 4, "constraints": ["w07"]},
    {"beam": 4, "beam_groups": 2, "prefix": "w03"},
    {"beam": 3, "banned_phrases": ["w10", "w20 w30"], "no_repeat_ngram_size": 2, "min_length": 3},
    {"mbr": "chrf", "mbr_candidates": 6},
    {"preset": "marian", "beam": 3},
    {"engine": "onnx", "at_limit": "force_eos", "max_length": 4},
]
CTRANSLATE2_OPTIONS: list[dict[str, Any]] = [
    {},
    {"engine": "ctranslate2", "prefix": "w03", "max_length": 6},
    {"at_limit": "truncate", "max_length": 3},
    {"banned_phrases": ["w10", "w20 w30"], "no_repeat_ngram_size": 2, "min_length": 3},
]
BEAMS: list[dict[str, Any]] = [{"n_best": 3}, {"length_penalty": 0.0}, {"patience": 1.5}, {"repetition_penalty": 1.3}]


@pytest.fixture(scope="module")
def export_folder(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """A function that exports a model and returns the folder."""

    def write(model: TextModel, to: Any, count: int = 4) -> Path:
        folder = tmp_path_factory.mktemp("export") / "out"
        export(model, folder, to, "float32", random_sentences(model, count))
        return folder

    return write


@pytest.fixture(scope="module")
def model() -> TextModel:
    return random_text_model()


@pytest.fixture(scope="module")
def onnx(model: TextModel, export_folder: Callable[..., Path]) -> TextModel:
    """With two threads, over which the texts of a call are distributed."""
    folder = export_folder(model, "onnx")
    torch.set_num_threads(2)
    try:
        return load(folder)
    finally:
        torch.set_num_threads(1)


@pytest.fixture(scope="module")
def ctranslate2(model: TextModel, export_folder: Callable[..., Path]) -> TextModel:
    return load(export_folder(model, "ctranslate2"))


@pytest.mark.short(1)
@pytest.mark.parametrize("options", ONNX_OPTIONS, ids=str)
def test_onnx_answers_equal_the_model_for_every_option(
    model: TextModel, onnx: TextModel, options: dict[str, Any]
) -> None:
    ours = {name: value for name, value in options.items() if name != "engine"}
    assert_same(onnx.generate(TEXTS, **options), model.generate(TEXTS, **ours))


@pytest.mark.short(1)
@pytest.mark.parametrize("options", CTRANSLATE2_OPTIONS, ids=str)
def test_ctranslate2_greedy_answers_equal_the_model(
    model: TextModel, ctranslate2: TextModel, options: dict[str, Any]
) -> None:
    ours = {name: value for name, value in options.items() if name != "engine"}
    assert_same(ctranslate2.generate(TEXTS, **options), model.generate(TEXTS, **ours))


@pytest.mark.short(1)
@pytest.mark.parametrize("options", BEAMS, ids=str)
def test_ctranslate2_beams_use_its_preset_and_our_lengths(
    model: TextModel, ctranslate2: TextModel, options: dict[str, Any]
) -> None:
    lengths = {"max_length_factor": 2.0, "max_length_extra": 20, "min_length_extra": 0}
    ours = model.generate(TEXTS, preset="ctranslate2", beam=4, **lengths, **options)
    assert_same(ctranslate2.generate(TEXTS, beam=4, **options), ours)
    theirs = ctranslate2.generate(TEXTS, preset="ctranslate2", beam=4, max_length=9)
    assert_same(theirs, model.generate(TEXTS, preset="ctranslate2", beam=4, max_length=9))


@pytest.mark.short(1)
@pytest.mark.parametrize("to", ["onnx", "ctranslate2"])
def test_prefixes_of_the_model_are_applied(to: str, export_folder: Callable[..., Path]) -> None:
    plain = word_model(words=Words.build([" ".join(WORDS)], symbols=("<en>", "<de>")))
    model = TextModel(replace(plain.stored_model, generation={**plain.stored_model.generation, **PREFIXES}))
    folder = export_folder(model, to, 24)
    exported = load(folder)
    notes = json.loads((folder / "certificate.json").read_text("utf-8"))["notes"]
    for code, pieces in (("other_programs_add_source_prefix", "<en>"), ("other_programs_add_target_prefix", "<de>")):
        assert (message(code, pieces=pieces) in notes) == (to == "ctranslate2")
    ours = model.generate(TEXTS)
    assert_same(exported.generate(TEXTS), ours)
    assert {each.pieces[0] for each in ours[:-1]} == {"<de>"}
    assert_same(exported.generate(TEXTS, target_prefix=["<en>"]), model.generate(TEXTS, target_prefix=["<en>"]))
    assert exported.score(TEXTS[:3], TEXTS[3:6]) == pytest.approx(model.score(TEXTS[:3], TEXTS[3:6]), abs=1e-4)


def test_the_certificate_compares_logits_after_the_prefix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = word_model(words=Words.build([" ".join(WORDS)], symbols=("<en>", "<de>")))
    model = TextModel(replace(plain.stored_model, generation={**plain.stored_model.generation, **PREFIXES}))
    calls: list[Any] = []
    certify = exporting.certify
    monkeypatch.setattr(exporting, "certify", lambda *given: calls.append(given) or certify(*given))
    export(model, tmp_path / "out", "onnx", "float32", random_sentences(model, 4))
    german = model.target_tokenizer.encode("<de>")[0]
    expected = model.network(torch.tensor([[9, 10, EOS]]), torch.tensor([[BOS, german, 11]]))[0, 1:]
    for system in calls[0][:2]:
        torch.testing.assert_close(system.logits([9, 10], [11]), expected, atol=1e-4, rtol=0)
        assert german not in system.generate([[9, 10]], 1, 1)[0].ids


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
def test_streamed_pieces_join_to_the_text(
    options: dict[str, Any], model: TextModel, onnx: TextModel, ctranslate2: TextModel
) -> None:
    for text in TEXTS[2:5]:
        expected = model.generate([text], **options)[0].text
        pieces = list(onnx.stream(text, **options))
        assert "".join(pieces) == expected
        assert options or len(pieces) > 1  # a beam of a random network is decided at its end
        assert list(ctranslate2.stream(text, **options)) == [ctranslate2.generate([text], **options)[0].text]


def test_alternatives_and_search_trees_need_our_search(
    model: TextModel, onnx: TextModel, ctranslate2: TextModel
) -> None:
    ours, theirs = (each.alternatives(TEXTS[3], prefix="w03", count=4) for each in (model, onnx))
    assert [each.word for each in theirs] == [each.word for each in ours]
    assert [each.log_probability for each in theirs] == pytest.approx([each.log_probability for each in ours], abs=1e-4)
    (ours_tree,), (tree,) = (each.search_tree(TEXTS[3], beam=3) for each in (model, onnx))
    assert [node.id for node in tree.nodes] == [node.id for node in ours_tree.nodes]
    for call in (ctranslate2.alternatives, ctranslate2.search_tree):
        with pytest.raises(UsageError, check=has_code("engine_option_unsupported", engine="ctranslate2")):
            call(TEXTS[3])


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
            {"beam": 4, "beam_groups": 2},
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
            {"at_limit": "force_eos"},
            has_code(
                "engine_option_unsupported",
                reasons=has_code(
                    "engine_option_alternatives", options="at_limit force_eos", engines="onnx, textbook, cached, fast"
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
def test_unsupported_options_raise_with_alternatives(
    name: str, options: dict[str, Any], error: ErrorCheck, request: pytest.FixtureRequest
) -> None:
    with pytest.raises(UsageError, check=error):
        request.getfixturevalue(name).generate(TEXTS[:1], **options)


def test_exported_models_have_no_network(model: TextModel, onnx: TextModel, ctranslate2: TextModel) -> None:
    for exported in (onnx, ctranslate2):
        assert isinstance(exported.backend, Backend)
        name = exported.backend.name
        for call in (lambda each: each.network, lambda each: each.save("x"), lambda each: each.trace("w01")):
            with pytest.raises(UsageError, check=has_code("exported_folder_without_network", runtime=name)):
                call(exported)
        for together in ((model, exported), (exported, model)):
            with pytest.raises(UsageError, check=has_code("ensemble_with_exported_folder", runtime=name)):
                together[0].ensemble([together[1]])


def test_machine_settings_are_not_exported(model: TextModel, export_folder: Callable[..., Path]) -> None:
    machine_settings = {"engine": "fast", "precision": "bf16", "compile": True, "batch_tokens": 9}
    stored = TextModel(
        replace(
            model.stored_model, generation={"beam": 2, "at_limit": "force_eos", "stop": "settled", **machine_settings}
        )
    )
    exported = load(export_folder(stored, "ctranslate2"))
    assert (exported.generation.beam, exported.generation.precision) == (2, "auto")
    assert exported.generate(TEXTS[:2])
    settings = exported.settings(length_penalty=0.0)
    assert (settings.stop, settings.at_limit, settings.renormalise) == ("leader", "any", True)
    settings = exported.settings(beam=1)
    assert (settings.at_limit, settings.renormalise) == ("any", False)


@pytest.mark.parametrize("to", ["onnx", "ctranslate2"])
def test_a_folder_with_old_setting_names_loads(model: TextModel, export_folder: Callable[..., Path], to: str) -> None:
    settings = {"no_repeat_ngram_size": 2, "at_limit": "any", "long_source": "truncate"}
    folder = export_folder(TextModel(replace(model.stored_model, generation=settings)), to)
    path, manifest = folder / "generation.json", json.loads((folder / "manifest.json").read_text("utf-8"))
    assert json.loads(path.read_text("utf-8")) == settings
    expected = load(folder).generate(TEXTS)
    path.write_text(json.dumps({"no_repeat_ngram": 2, "at_limit": "free", "long_source": "cut"}))
    (folder / "manifest.json").unlink()
    write_manifest(folder, MANIFEST_FORMAT, MANIFEST_VERSION, manifest["facts"])
    exported = load(folder)
    assert exported.generation.model_dump(exclude_unset=True) == settings
    assert [each.text for each in exported.generate(TEXTS)] == [each.text for each in expected]


def test_load_detects_the_format_of_a_folder(
    model: TextModel, export_folder: Callable[..., Path], tmp_path: Path
) -> None:
    model.save(tmp_path / "model")
    assert package.load(tmp_path / "model").backend.name == "torch"
    folders = {to: export_folder(model, to) for to in ("onnx", "ctranslate2")}
    for to, folder in folders.items():
        assert package.load(folder).backend.name == to
        with pytest.raises(UsageError, check=has_code("unknown_device", name="gpu")):
            load(folder, "gpu")
    with pytest.raises(UsageError, check=has_code("ctranslate2_gpu_missing", device="cuda:77")):
        load(folders["ctranslate2"], "cuda:77")


@pytest.mark.parametrize(
    ("files", "error"),
    [
        ({"config.json": {"model_type": "marian"}}, has_code("weights_file_missing")),
        ({"config.json": {"model_type": "gpt2"}}, has_code("import_model_type_unsupported", kind="gpt2")),
        ({"config.json": {"model_type": "led"}}, has_code("model_type_refused", kind="led")),
        ({"model.bin": {}}, has_code("ctranslate2_folder_not_attendo")),
        ({"config.json": []}, has_code("model_manifest_missing", reason="it has no manifest.json")),
        (
            {"manifest.json": {"format": "attendo.export", "facts": {"to": "hf"}}},
            has_code("export_format_not_runnable", engine="hf"),
        ),
    ],
)
def test_other_folders_raise_with_advice(tmp_path: Path, files: dict[str, Any], error: ErrorCheck) -> None:
    for name, content in files.items():
        (tmp_path / name).write_text(json.dumps(content))
    with pytest.raises(ModelError, check=error):
        load(tmp_path)


def test_an_argos_package_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "en_de.argosmodel").write_bytes(b"PK")
    with pytest.raises(ModelError, check=has_code("export_format_not_runnable", engine="argos")):
        load(tmp_path / "en_de.argosmodel")


@pytest.mark.slow
def test_the_certificate_is_checked_on_load(model: TextModel, export_folder: Callable[..., Path]) -> None:
    for to in ("onnx", "ctranslate2"):
        folder = export_folder(model, to)
        manifest = json.loads((folder / "manifest.json").read_text("utf-8"))
        assert "certificate.json" in manifest["files"]
        assert manifest["facts"]["to"] == to
        (folder / "certificate.json").write_text("{}")
        with pytest.raises(ModelError, check=has_code("file_size_mismatch", size=2)):
            load(folder)


def assert_same(found: list[Result], expected: list[Result]) -> None:
    for one, other in zip(found, expected, strict=True):
        assert [each.ids for each in one.hypotheses] == [each.ids for each in other.hypotheses]
        assert [each.text for each in one.hypotheses] == [each.text for each in other.hypotheses]
        assert one.constraints == other.constraints
        for mine, its in zip(one.hypotheses, other.hypotheses, strict=True):
            assert mine.score == pytest.approx(its.score, abs=1e-4)
            assert mine.log_probability == pytest.approx(its.log_probability, abs=1e-3)
