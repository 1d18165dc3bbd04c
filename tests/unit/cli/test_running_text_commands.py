"""Commands with running text: training and using a decoder-only model."""

import json
import math
import tomllib
from pathlib import Path

import pytest
from error_codes import fragment, message
from running import continuer, some_text
from tiny import Command, settings, tiny_model

from attendo.runs.config import RunConfig

QUICK = (
    *("preset=tiny", "model.num_encoder_layers=0", "model.d_model=16", "model.num_heads=2", "model.d_ff=24"),
    *("tokenizer.kind=characters", "data.window=16", "train.batch_tokens=128", "train.steps=2", "train.samples=0"),
)


def test_a_text_file_becomes_a_model_that_continues_lines(attendo: Command, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(some_text(2000), "utf-8")
    done = attendo("train", "--text", tmp_path / "a.txt", "--out", tmp_path / "run", *settings(*QUICK))
    assert (done.code, done.output) == (0, "")
    assert "447 windows of 16 tokens to train on, 14 to validate with\n" in done.errors
    assert "step 2: validation loss" in done.errors
    assert "  perplexity " in done.errors
    output = attendo("generate", tmp_path / "run" / "model", "--max-length", "9", given=b"abc\n\nab \n").output
    first, second, third, last = output.split("\n")
    assert (first[:3], len(first), second, third[:3], last) == ("abc", 9, "", "ab ", "")


def test_open_settings_are_chosen_and_printed(attendo: Command, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(some_text(2000), "utf-8")
    shown = attendo("train", "--text", tmp_path / "a.txt", "--out", tmp_path / "run", "--show")
    assert shown.code == 0
    assert "model.num_encoder_layers = 0  # running text has no source to read\n" in shown.errors
    assert 'tokenizer.kind = "characters"  # 2,000 characters\n' in shown.errors
    config = RunConfig(**tomllib.loads(shown.output))
    assert (config.preset, config.data.window, config.train.label_smoothing) == ("tiny", 64, 0.0)


def test_text_and_pairs_conflict(attendo: Command, tmp_path: Path) -> None:
    both = attendo("train", "--text", "a", "--source", "b", "--target", "c", "--out", tmp_path / "run")
    assert both.code == 2
    assert fragment("multiple_data_sources") in both.error
    nothing = attendo("train", "--out", tmp_path / "run")
    assert nothing.error == message("training_input_missing")


def test_text_can_be_prepared_for_several_runs(attendo: Command, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(some_text(2000), "utf-8")
    text_setting = f"data.text={tmp_path / 'a.txt'}"
    done = attendo("prepare", "--out", tmp_path / "data", *settings(text_setting, *QUICK))
    assert done.code == 0, done.errors
    assert done.output.startswith("447 windows of 16 tokens to train on, 14 to validate with, written to ")
    same = attendo("prepare", "--text", tmp_path / "a.txt", "--out", tmp_path / "same", *settings(*QUICK))
    assert same.output.startswith("447 windows of 16 tokens")
    again = attendo("prepare", "--verify", tmp_path / "data")
    assert again.code == 0
    bad = tmp_path / "bad.txt"
    bad.write_bytes(b"a\n\xff\n")
    failed = attendo("prepare", "--out", tmp_path / "other", *settings(f"data.text={bad}", *QUICK))
    assert failed.code == 3
    assert message("line_not_utf8", path=bad, line=2, advice="; if it is Latin-1: iconv") in failed.errors


def test_an_empty_line_stays_empty(attendo: Command, tmp_path: Path) -> None:
    continuer().save(tmp_path / "model")
    lines = attendo("generate", tmp_path / "model", "--json", given=b"\n  \nab\n").output.splitlines()
    assert [json.loads(line)["text"][:2] for line in lines] == ["", "", "ab"]


def test_a_prompt_longer_than_max_length_is_named(attendo: Command, tmp_path: Path) -> None:
    continuer().save(tmp_path / "model")
    done = attendo("generate", tmp_path / "model", "--max-length", "5", given=b"ab\nabcdefg\nab\n")
    assert (done.code, done.output[:2], done.output.count("\n")) == (3, "ab", 1)
    assert done.errors.endswith(message("prompt_longer_than_max_length", text="line 2", tokens=7, limit=5) + "\n")


def test_describe_and_score_accept_decoder_only_models(attendo: Command, tmp_path: Path) -> None:
    continuer().save(tmp_path / "model")
    assert "masked self-attention" in attendo("describe", tmp_path / "model").output
    (tmp_path / "a").write_text("ab\n")
    (tmp_path / "b").write_text("cd\n")
    scored = attendo("score", tmp_path / "model", "--source", tmp_path / "a", "--target", tmp_path / "b")
    assert float(scored.output) == pytest.approx(continuer().score(["ab"], ["cd"])[0], abs=1e-4)


def test_decoder_only_models_are_evaluated_by_perplexity_only(attendo: Command, tmp_path: Path) -> None:
    continuer().save(tmp_path / "model")
    (tmp_path / "a").write_text("ab\nc\n")
    (tmp_path / "b").write_text("cd\n d\n")
    files = [tmp_path / "model", "--source", tmp_path / "a", "--reference", tmp_path / "b"]
    failed = attendo("evaluate", *files)
    assert failed.code == 2
    assert fragment("metric_not_for_decoder_only", metric="bleu") in failed.error
    report = json.loads(attendo("evaluate", *files, "--metric", "perplexity", "--json").output)
    expected = math.exp(-sum(continuer().score(["ab", "c"], ["cd", " d"])) / 4)
    assert report["scores"]["perplexity"]["value"] == pytest.approx(expected, rel=1e-4)


def test_a_decoder_only_model_is_fine_tuned_with_running_text(attendo: Command, tmp_path: Path) -> None:
    continuer(positions="learned", max_length=16).save(tmp_path / "old")
    (tmp_path / "a.txt").write_bytes(some_text(2000).replace("\n", "\r\n").encode())
    options = ["--out", tmp_path / "run", *settings("train.steps=2", "train.batch_tokens=128", "train.samples=0")]
    done = attendo("finetune", tmp_path / "old", "--text", tmp_path / "a.txt", *options)
    assert done.code == 0, done.errors
    assert "windows of 16 tokens to train on" in done.errors  # the number of learned positions
    run = tomllib.loads((tmp_path / "run" / "run.toml").read_text())
    assert (run["train"]["peak_lr"], run["train"]["label_smoothing"]) == (2e-4, 0.0)
    done_again = attendo("generate", tmp_path / "run" / "model", "--max-length", "9", given=b"abc\r\n")
    assert (done_again.errors.count("vocabulary"), done_again.output[:3]) == (0, "abc")


@pytest.mark.parametrize(
    ("model", "options", "expected"),
    [
        ("continues", ["--source", "a", "--target", "a"], fragment("running_text_required")),
        ("continues", [], fragment("running_text_required")),
        ("answers", ["--text", "a"], fragment("sentence_pairs_required")),
        ("answers", ["--source", "a"], fragment("sentence_pairs_required")),
    ],
)
def test_data_of_the_wrong_kind_leaves_no_run_folder(
    attendo: Command, tmp_path: Path, model: str, options: list[str], expected: str
) -> None:
    (continuer() if model == "continues" else tiny_model()).save(tmp_path / "old")
    failed = attendo("finetune", tmp_path / "old", *options, "--out", tmp_path / "run")
    assert failed.code == 2
    assert expected in failed.error
    assert not (tmp_path / "run").exists()
