"""`attendo bench generate`: its output, skipped systems and usage errors."""

import json
from pathlib import Path

import pytest
from error_codes import fragment, message
from tiny import Command

from attendo.bench import systems

SMALL = ("--preset", "tiny", "--vocabulary", "40", "--source-length", "4", "--steps", "3", "--rounds", "1")
QUICK = (*SMALL, "--batch", "2", "--device", "cpu")


def test_output_has_hardware_task_and_a_row_per_system(attendo: Command) -> None:
    done = attendo("bench", "generate", *QUICK, "--beam", "1,2", "--rivals", "ctranslate2")
    assert done.code == 0
    hardware, task, header, *rows = done.output.splitlines()
    assert "torch 2." in hardware
    assert " threads; attendo " in hardware
    assert "random weights, preset tiny" in task
    assert "fp32; 4 source tokens, 3 forced steps, encoder included; 1 rounds, medians" in task
    assert header.split() == ["beam", "batch", "system", "tokens/s", "attendo", "/", "it", "same", "tokens"]
    assert rows[0].split()[:4] == ["1", "2", "attendo", "fp32"]
    assert "beam 2, batch 2: round 1 of 1" in done.errors


def test_a_baseline_row_has_ratio_and_token_agreement(attendo: Command) -> None:
    pytest.importorskip("ctranslate2")
    done = attendo("bench", "generate", *QUICK, "--beam", "2", "--rivals", "ctranslate2")
    row = done.output.splitlines()[-1].split()
    assert row[:4] == ["2", "2", "ctranslate2", "fp32"]
    assert float(row[5]) > 0
    assert row[6] == "100.0%"


def test_json_is_one_object_per_line(attendo: Command) -> None:
    pytest.importorskip("ctranslate2")
    done = attendo("bench", "generate", *QUICK, "--beam", "1", "--rivals", "ctranslate2:int8", "--json")
    first, *rest = [json.loads(line) for line in done.output.splitlines()]
    assert first["facts"]["precision"] == "fp32"
    assert first["facts"]["rounds"] == 1
    assert [each["system"] for each in rest] == ["attendo fp32", "ctranslate2 int8"]
    assert [each["tokens"] for each in rest] == [6, 6]
    assert rest[0]["ratio"] is None
    assert rest[1]["ratio"] > 0
    assert rest[1]["tokens_per_second"] == pytest.approx(6 / rest[1]["seconds"][0])


def test_skipped_systems_are_reported_with_a_reason(attendo: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(systems, "find_spec", lambda name: None)
    done = attendo("bench", "generate", *QUICK, "--beam", "1")
    assert done.code == 0
    assert "left out: transformers fp32: transformers is not installed: pip install 'attendo[hf]'\n" in done.output
    assert "left out: ctranslate2 fp32: ctranslate2 is not installed: pip install 'attendo[export]'\n" in done.output
    as_json = attendo("bench", "generate", *QUICK, "--beam", "1", "--json")
    lines = [json.loads(line) for line in as_json.output.splitlines()]
    assert {
        "name": "ctranslate2 fp32",
        "reason": message("rival_not_installed", package="ctranslate2", extra="export"),
    } in lines


def test_a_model_folder_is_measured_on_natural_lengths(attendo: Command, model_folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    (tmp_path / "lines").write_text("I love NLP\n\nthe cat sat\n", "utf-8")
    options = ("--natural", tmp_path / "lines", "--beam", "1", "--batch", "2", "--rounds", "1", "--device", "cpu")
    done = attendo("bench", "generate", model_folder, *options, "--rivals", "transformers")
    assert done.code == 0
    assert f"{model_folder}, " in done.output
    assert "2 sources, natural lengths" in done.output
    sizes = message("vocabulary_sizes_differ", source=17, target=18)
    reason = message("transformers_network_unsupported", model="a Pegasus model", reasons=sizes)
    assert f"left out: transformers fp32: {reason}" in done.output


def test_references_add_bleu_to_table_and_json(attendo: Command, model_folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("sacrebleu")
    pytest.importorskip("ctranslate2")
    (tmp_path / "lines").write_text("I love NLP\n\nthe cat sat\n", "utf-8")
    (tmp_path / "right").write_text("我 爱 NLP\n\n猫 坐 着\n", "utf-8")
    files = ("--natural", tmp_path / "lines", "--references", tmp_path / "right")
    options = (*files, "--beam", "1", "--batch", "2", "--rounds", "1", "--device", "cpu", "--rivals", "ctranslate2")
    done = attendo("bench", "generate", model_folder, *options)
    assert done.code == 0
    signature, header, attendo_row, baseline_row = done.output.splitlines()[-4:]
    assert signature.startswith("BLEU nrefs:1|case:mixed|")
    assert header.endswith("same tokens    BLEU")
    assert len(attendo_row) == len(baseline_row) == len(header)
    objects = [
        json.loads(line) for line in attendo("bench", "generate", model_folder, *options, "--json").output.splitlines()
    ]
    assert f"BLEU {objects[0]['facts']['bleu']}" == signature
    assert [f"{each['bleu']:.2f}" for each in objects[1:]] == [row.split()[-1] for row in (attendo_row, baseline_row)]


def test_a_reference_line_count_mismatch_exits_with_code_3(
    attendo: Command, model_folder: Path, tmp_path: Path
) -> None:
    (tmp_path / "lines").write_text("I love NLP\nthe cat sat\n", "utf-8")
    (tmp_path / "right").write_text("我 爱 NLP\n", "utf-8")
    failed = attendo(
        "bench", "generate", model_folder, "--natural", tmp_path / "lines", "--references", tmp_path / "right"
    )
    assert failed.code == 3
    assert fragment("file_line_counts_differ") in failed.error


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--beam", "1,x"], fragment("option_not_positive_integers", option="--beam", value="1,x")),
        (["--batch", "0"], fragment("option_not_positive_integers", option="--batch", value=0)),
        (
            ["--rivals", "ctranslate3"],
            fragment("unknown_rival", name="ctranslate3", suggestion=" (did you mean ctranslate2?)"),
        ),
        (["--precision", "fp8"], "fp8"),
        (["--natural", "lines"], fragment("natural_without_model")),
        (["m", "--preset", "tiny"], fragment("random_network_options_with_model")),
        (["m", "--natural", "lines", "--steps", "3"], fragment("fixed_lengths_with_natural")),
        (["m", "--references", "lines"], fragment("references_without_natural")),
        (["--preset", "bse"], fragment("unknown_preset", preset="bse")),
        (["--device", "tpu"], fragment("unknown_device", name="tpu")),
    ],
)
def test_a_usage_error_is_one_line_with_exit_code_2(attendo: Command, arguments: list[str], message: str) -> None:
    failed = attendo("bench", "generate", *arguments)
    assert failed.code == 2
    assert message in failed.error


def test_a_missing_model_folder_exits_with_code_4(attendo: Command, tmp_path: Path) -> None:
    assert attendo("bench", "generate", tmp_path / "none").code == 4


@pytest.mark.parametrize("words", [["bench"], ["bench", "--help"], ["bench", "generate", "--help"]])
def test_help_is_shown(attendo: Command, words: list[str]) -> None:
    shown = attendo(*words)
    assert "Usage" in shown.output + shown.errors
    assert "generate" in shown.output + shown.errors
