"""`attendo train` and `prepare` with several file formats and repeated options."""

import json
import tomllib
from pathlib import Path

import pytest
from error_codes import fragment, message
from tiny import QUICK_RUN, SOURCES, TARGETS, Command, settings, tiny_model, write_pairs

from attendo.data.prepared import open_prepared
from attendo.runs.config import load_run_config
from attendo.text import SentencePiece
from attendo.text_model import load

WORDS = settings("preset=tiny", "tokenizer.kind=words")
QUICK = settings(*(each for each in QUICK_RUN if not each.startswith("train.steps")))


def write_two_parts(folder: Path) -> list[str | Path]:
    """Write the same pairs into two pairs of files and return their options."""
    named: list[str | Path] = []
    for part in ("a", "b"):
        (folder / part).mkdir()
        source, target = write_pairs(folder / part)
        named += ["--source", source, "--target", target]
    return named


def test_repeated_files_are_concatenated_in_order(attendo: Command, tmp_path: Path) -> None:
    done = attendo("prepare", *write_two_parts(tmp_path), "--out", tmp_path / "data", *WORDS)
    assert done.code == 0, done.errors
    data = open_prepared(tmp_path / "data")
    assert data.pairs + len(data.valid) == 2 * 10 * len(SOURCES)
    names = [f"{tmp_path / part / 'train.source'} + {tmp_path / part / 'train.target'}" for part in ("a", "b")]
    assert [corpus.name for corpus in data.corpora] == names
    shown = attendo("train", *two_part_options(tmp_path), "--show", *WORDS)
    stored = tomllib.loads(shown.output)["data"]
    assert stored["source"] == [str(tmp_path / part / "train.source") for part in ("a", "b")]
    (tmp_path / "again.toml").write_text(shown.output, "utf-8")
    assert attendo("train", tmp_path / "again.toml", "--show").output == shown.output


def test_doctor_and_finetune_accept_repeated_files(attendo: Command, tmp_path: Path) -> None:
    failed = attendo("doctor", "--source", "a", "--source", "b", "--target", "c")
    assert failed.code == 2
    assert fragment("source_target_file_count_mismatch", prefix="", sources=2, targets=1) in failed.error
    tiny_model().save(tmp_path / "model")
    files = ("--source", "a", "--source", "b", "--target", "c")
    failed = attendo("finetune", tmp_path / "model", *files, "--out", tmp_path / "run")
    assert failed.code == 2
    assert fragment("source_target_file_count_mismatch", prefix="", sources=2, targets=1) in failed.error


def two_part_options(folder: Path) -> list[str | Path]:
    return [
        word
        for part in ("a", "b")
        for side in ("source", "target")
        for word in (f"--{side}", folder / part / f"train.{side}")
    ]


def test_source_and_target_file_counts_must_match(attendo: Command, tmp_path: Path) -> None:
    failed = attendo("train", "--source", "a", "--source", "b", "--target", "c", "--out", tmp_path / "run")
    assert failed.code == 2
    assert fragment("source_target_file_count_mismatch", prefix="", sources=2, targets=1) in failed.error


@pytest.mark.short(2)
@pytest.mark.parametrize("name", ["words.tsv", "words.csv", "words.jsonl"])
def test_a_table_file_can_replace_the_run_file(
    attendo: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    row_format = {".tsv": "{0}\t{1}", ".csv": '"{0}","{1}"', ".jsonl": '{{"source": "{0}", "target": "{1}"}}'}[
        Path(name).suffix
    ]
    lines = [row_format.format(source, target) for source, target in zip(SOURCES * 10, TARGETS * 10, strict=True)]
    Path(name).write_text("\n".join(lines), "utf-8")
    done = attendo("train", name, "--steps", "2", *QUICK)
    assert done.code == 0, done.errors
    assert f"; the first pair is {SOURCES[0]!r} → {TARGETS[0]!r}\n" in done.errors
    assert "source is field source, target is field target" in done.errors or "source is column 1" in done.errors
    assert load_run_config(Path("runs/words")).train.steps == 2


def test_fields_and_columns_can_be_named(attendo: Command, tmp_path: Path) -> None:
    rows = [{"id": "1", "en": source, "zh": target} for source, target in zip(SOURCES, TARGETS, strict=True)] * 10
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)), "utf-8")
    (tmp_path / "b.csv").write_text("id,en,zh\n" + "\n".join(",".join(row.values()) for row in rows), "utf-8")
    for name in ("a.jsonl", "b.csv"):
        named = ("--file", tmp_path / name, "--source-field", "zh", "--target-field", "en")
        done = attendo("prepare", *named, "--out", tmp_path / f"{name}.data", *WORDS)
        assert done.code == 0, done.errors
        assert open_prepared(tmp_path / f"{name}.data").valid[0][1] in SOURCES
    failed = attendo("prepare", tmp_path / "a.jsonl", "--out", tmp_path / "data", *WORDS)
    assert failed.code == 3
    assert fragment("jsonl_field_not_found", field="source", fields="id, en, zh", option="source_field") in failed.error


def test_options_set_the_settings_of_the_same_name(attendo: Command, tmp_path: Path) -> None:
    source, target = write_pairs(tmp_path)
    files = ("--source", source, "--target", target, "--valid-source", source, "--valid-target", target)
    shown = attendo("train", *files, "--preset", "tiny", "--steps", "7", "--show")
    assert shown.code == 0, shown.errors
    values = tomllib.loads(shown.output)
    assert (values["preset"], values["train"]["steps"]) == ("tiny", 7)
    assert (values["data"]["valid_source"], values["data"]["valid_target"]) == (str(source), str(target))


def test_epochs_are_converted_to_steps(attendo: Command, tmp_path: Path) -> None:
    source, target = write_pairs(tmp_path)
    files = ("--source", source, "--target", target, "--out", tmp_path / "run")
    shown = attendo("train", *files, "--epochs", "2", "--show", *QUICK)
    train = tomllib.loads(shown.output)["train"]
    assert train["epochs"] == 2.0
    assert "steps" not in train
    assert attendo("train", *files, "--epochs", "2", *QUICK).code == 0
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text("utf-8").splitlines()]
    steps = [line for line in lines if line["kind"] == "step"]
    assert [step["epoch"] for step in steps] == [0] * (len(steps) // 2) + [1] * (len(steps) // 2)
    config = load_run_config(tmp_path / "run")
    assert (config.train.steps, config.train.epochs) == (len(steps), None)
    assert attendo("train", "--resume", tmp_path / "run").code == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ["--steps", "3", "--set", "train.steps=4"],
            fragment("setting_given_twice", option="--steps", setting="train.steps"),
        ),
        (["--steps", "3", "--epochs", "4"], fragment("steps_and_epochs_conflict")),
        (["--field", "body"], fragment("field_without_text")),
        (["--file", "c.tsv"], fragment("data_pair_file_conflict", prefix="")),
        (["--valid-source", "c"], fragment("validation_side_missing")),
        (["--preset", "tinny"], "did you mean tiny?"),
        (["--resume", "run"], fragment("options_with_resume", options="--source, --target")),
    ],
)
def test_conflicting_options_are_named(attendo: Command, options: list[str], message: str) -> None:
    failed = attendo("train", "--source", "a", "--target", "b", "--show", *options)
    assert failed.code == 2
    assert message in failed.error


def test_a_non_utf8_file_gets_a_conversion_command(attendo: Command, tmp_path: Path) -> None:
    source, target = write_pairs(tmp_path)
    target.write_bytes("où\n".encode("latin-1") * 10 * len(SOURCES))
    failed = attendo("train", "--source", source, "--target", target, "--out", tmp_path / "run", *WORDS)
    assert failed.code == 3
    command = f"iconv -f LATIN1 -t UTF-8 {target} > {target.with_suffix('.utf8.target')}"
    assert failed.errors.endswith(f"; {target} is not UTF-8; if it is Latin-1: {command}\n")
    target.write_text("".join(f"{line}\n" for line in TARGETS * 10), "utf-16")
    failed = attendo("train", "--source", source, "--target", target, "--out", tmp_path / "run", *WORDS)
    assert failed.code == 3
    assert (
        fragment(
            "file_is_utf16_or_utf32", path=target, encoding="UTF-16", command=f"iconv -f UTF-16 -t UTF-8 {target} > "
        )
        in failed.errors
    )


def test_text_can_be_several_files_and_jsonl_documents(attendo: Command, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("to be or not to be\n" * 40, "utf-8")
    (tmp_path / "b.jsonl").write_text((json.dumps({"body": "that is the question"}) + "\n") * 20, "utf-8")
    named = ("--text", tmp_path / "a.txt", "--text", tmp_path / "b.jsonl", "--out", tmp_path / "data")
    small = settings("tokenizer.kind=characters", "preset=tiny", "model.num_encoder_layers=0", "data.window=16")
    failed = attendo("prepare", *named, *small)
    assert failed.code == 3
    assert message("jsonl_text_field_missing", location="b.jsonl line 1", field="text", fields="body") in failed.errors
    done = attendo("prepare", *named, "--field", "body", *small)
    assert done.code == 0, done.errors
    assert " windows of 16 tokens" in done.output


def test_a_given_sentencepiece_model_is_used_unchanged(attendo: Command, tmp_path: Path) -> None:
    source, target = write_pairs(tmp_path)
    own = SentencePiece.train([*SOURCES, *TARGETS], 300)
    (tmp_path / "own.model").write_bytes(own.model)
    files = ("--source", source, "--target", target)
    quick = settings(*(each for each in QUICK_RUN if not each.startswith(("train.steps", "tokenizer."))))
    named = settings(f"tokenizer.file={tmp_path / 'own.model'}")
    missing = attendo("train", *files, "--out", tmp_path / "run", *settings("tokenizer.file=none.model"), *quick)
    assert missing.code == 3
    assert "attendo: tokenizer.file " in missing.errors
    assert missing.errors.endswith("none.model cannot be read: No such file or directory\n")
    done = attendo("train", *files, "--out", tmp_path / "run", "--steps", "2", *named, *quick)
    assert done.code == 0, done.errors
    (tmp_path / "own.model").unlink()  # the run and the model folder have their own copy
    model = load(tmp_path / "run" / "model", "cpu").stored_model
    assert model.source_tokenizer.pieces(model.source_tokenizer.encode(SOURCES[0])) == own.pieces(
        own.encode(SOURCES[0])
    )
    assert model.source_tokenizer == model.target_tokenizer
    assert model.network.config.tie == "all"
    assert attendo("generate", tmp_path / "run" / "model", SOURCES[0]).code == 0
