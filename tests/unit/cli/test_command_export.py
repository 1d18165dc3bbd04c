"""`attendo export`: its output, written files and errors."""

import json
import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest
from error_codes import fragment, message
from late_import import needs
from tiny import Command, write_pairs

from attendo.interop import certify

pytestmark = needs("ctranslate2")


@pytest.fixture(autouse=True)
def _few_sentences(monkeypatch: pytest.MonkeyPatch) -> None:
    """200 sentences take seconds."""
    monkeypatch.setattr(certify.collect_sentences, "__defaults__", (None, None, 4))


def test_it_writes_the_folder_and_prints_the_certificate(attendo: Command, model_folder: Path, tmp_path: Path) -> None:
    done = attendo("export", model_folder, tmp_path / "out", "--to", "ctranslate2", "--precision", "float16")
    assert done.code == 0
    assert done.output.splitlines()[0].startswith("CTranslate2 4")
    assert done.output.endswith("passed\n")
    assert done.errors == f"float16 model for ctranslate2 written to {tmp_path / 'out'}\n"
    assert (tmp_path / "out" / "model.bin").is_file()


def test_given_sentences_with_references_are_scored(attendo: Command, model_folder: Path, tmp_path: Path) -> None:
    source, target = write_pairs(tmp_path, times=2)
    done = attendo(
        "export",
        model_folder,
        tmp_path / "out",
        "--to",
        "ctranslate2",
        "--source",
        source,
        "--target",
        target,
        "--json",
    )
    assert done.code == 0
    content = json.loads(done.output)
    assert (content["passed"], content["sentences"], content["scored"]["sentences"]) == (True, 8, 8)
    assert content == json.loads((tmp_path / "out" / "certificate.json").read_text("utf-8"))


def test_a_failed_certificate_is_shown_and_nothing_is_written(
    attendo: Command, model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from attendo.interop import export
    from attendo.interop.certificate import Bounds

    monkeypatch.setitem(export.BOUNDS, "int8", Bounds(mean_difference=1e-9))
    before = sorted(tmp_path.iterdir())
    done = attendo("export", model_folder, tmp_path / "out", "--to", "ctranslate2", "--precision", "int8")
    assert done.code == 4
    assert "FAILED: the mean logit difference is" in done.output
    assert done.errors.startswith(
        "attendo: " + message("converted_model_differs", path=tmp_path / "out", reasons="the mean")
    )
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.slow
def test_max_loss_allows_a_larger_bleu_loss(
    attendo: Command, model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from attendo.interop import certificate, export

    wide = replace(export.BOUNDS["int8"], mean_difference=9.0)  # int8 overflow would exceed this
    monkeypatch.setitem(export.BOUNDS, "int8", wide)
    monkeypatch.setattr(certificate, "_MIN_MEANINGFUL_BLEU", -1.0)  # a random network gets no answer right
    monkeypatch.setattr(certificate.ReferenceScores, "lost_bleu", 0.7)
    source, target = write_pairs(tmp_path, times=2)
    given = ["--to", "ctranslate2", "--precision", "int8", "--source", source, "--target", target]
    done = attendo("export", model_folder, tmp_path / "out", *given)
    assert done.code == 4
    assert "FAILED: 0.70 BLEU are lost, more than 0.5" in done.output
    assert done.errors.endswith(fragment("quantized_model_differs", reasons="0.70 BLEU are lost, more than 0.5") + "\n")
    done = attendo("export", model_folder, tmp_path / "out", *given, "--max-loss", "0.8")
    assert done.code == 0
    assert "at most 0.8" in done.output


def test_int8_on_random_sources_is_noted(attendo: Command, model_folder: Path, tmp_path: Path) -> None:
    note = message("compared_on_random_sources")
    done = attendo("export", model_folder, tmp_path / "int8", "--to", "ctranslate2", "--precision", "int8")
    assert note in done.output
    assert note not in attendo("export", model_folder, tmp_path / "float32", "--to", "ctranslate2").output


def test_skipped_long_sentences_are_reported(attendo: Command, model_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "some").write_text("the cat sat\n" + "cat " * 300 + "\n")
    done = attendo("export", model_folder, tmp_path / "out", "--to", "ctranslate2", "--source", tmp_path / "some")
    assert message("sentences_skipped", count=2, empty=0, long=1, max_length=256) in done.output.splitlines()


def test_a_file_without_sentences_is_a_data_error(attendo: Command, model_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("\n \n")
    done = attendo("export", model_folder, tmp_path / "out", "--to", "ctranslate2", "--source", tmp_path / "empty")
    assert done.code == 3
    assert done.error.startswith(fragment("comparison_file_without_sentences", path=tmp_path / "empty"))


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (
            ["--to", "hf"],
            4,
            message("transformers_network_unsupported", model="a Pegasus model", reasons="its vocabularies differ"),
        ),
        (["--to", "argos"], 2, message("argos_languages_missing")),
        (["--to", "hf", "--from-lang", "en"], 2, message("language_options_not_argos", format="hf")),
        (
            ["--to", "argos", "--from-lang", "en", "--to-lang", "de"],
            2,
            fragment("argos_file_name_invalid", suffix=".argosmodel"),
        ),
        (["--to", "onnx", "--precision", "float16"], 2, message("onnx_float16_unsupported")),
        (
            ["--to", "ctranslate2", "--max-loss", "1"],
            2,
            message("max_loss_not_applicable", precision="float32").replace("max_loss", "--max-loss"),
        ),
        (
            ["--to", "ctranslate2", "--precision", "int8", "--max-loss", "1"],
            2,
            message("max_loss_references_missing").replace("max_loss", "--max-loss"),
        ),
        (["--to", "ctranslate2", "--target", "x"], 2, message("target_without_source")),
    ],
)
def test_usage_errors_are_one_line(
    attendo: Command, model_folder: Path, tmp_path: Path, options: list[str], code: int, message: str
) -> None:
    done = attendo("export", model_folder, tmp_path / "out", *options)
    assert done.code == code
    assert done.error.startswith(message)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_leaves_no_files(
    attendo: Command, model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    from attendo.interop import export

    def raise_signal(*given: object) -> None:
        os.kill(os.getpid(), number)
        raise AssertionError("never here")

    monkeypatch.setattr(export, "certify", raise_signal)
    before = signal.signal(number, lambda *given: None)  # without a handler the signal would end the test process
    try:
        done = attendo("export", model_folder, tmp_path / "new" / "out", "--to", "ctranslate2")
    finally:
        signal.signal(number, before)
    assert done.code == 128 + number
    assert not (tmp_path / "new").exists()


def test_generation_settings_can_be_overridden(attendo: Command, model_folder: Path, tmp_path: Path) -> None:
    given = ["export", model_folder, tmp_path / "out", "--to", "ctranslate2", "--set"]
    done = attendo(*given, "beam=3", "--set", "normalise=gnmt")
    assert (done.code, (tmp_path / "out").exists()) == (4, False)
    assert fragment("engine_option_alternatives", options="normalise gnmt") in done.error
    assert attendo(*given, "beam=3").code == 0
    assert json.loads((tmp_path / "out" / "generation.json").read_text("utf-8"))["beam"] == 3
    assert attendo(*given, "baem=3").error.startswith(
        fragment("unknown_setting", name="baem", suggestion=" (did you mean beam?)")
    )
