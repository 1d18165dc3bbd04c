"""`attendo prepare`: converts text to data that several runs can share."""

from pathlib import Path

import pytest
from error_codes import fragment, message
from tiny import QUICK_RUN, SOURCES, TARGETS, Command, settings, tiny_model, write_pairs

from attendo.data.prepared import PreparedData, open_prepared
from attendo.text_model import load

WORDS = settings("tokenizer.kind=words")


@pytest.fixture
def prepared(attendo: Command, tmp_path: Path) -> Path:
    source, target = write_pairs(tmp_path)
    folder = tmp_path / "data"
    assert attendo("prepare", "--source", source, "--target", target, "--out", folder, *WORDS).code == 0
    return folder


def test_two_files_become_prepared_data(attendo: Command, tmp_path: Path) -> None:
    source, target = write_pairs(tmp_path)
    folder = tmp_path / "data"
    done = attendo("prepare", "--source", source, "--target", target, "--out", folder, *WORDS)
    data = open_prepared(folder, verify=True)
    assert done.code == 0
    assert (
        done.output
        == f"{data.pairs} sentence pairs to train on, {len(data.valid)} to validate with, written to {folder}\n"
    )
    assert data.pairs + len(data.valid) == 40
    assert f"next: attendo train --set data.prepared={folder}" in done.errors
    assert [line for line in done.errors.splitlines() if line.endswith(" ...")] == [
        "reading ...",
        "building the vocabulary ...",
        "writing ...",
    ]


def test_only_choices_about_the_text_are_printed(attendo: Command, tmp_path: Path) -> None:
    source, target = write_pairs(tmp_path)
    done = attendo("prepare", "--source", source, "--target", target, "--out", tmp_path / "data", *WORDS)
    assert "tokenizer.joint = false  # " in done.errors
    assert "train." not in done.errors.replace("train.source", "").replace("train.target", "")
    assert "preset" not in done.errors


def test_a_run_file_configures_prepare(attendo: Command, tmp_path: Path) -> None:
    write_pairs(tmp_path)
    run_file = tmp_path / "run.toml"
    run_file.write_text('[data]\nsource = "train.source"\ntarget = "train.target"\n[tokenizer]\nkind = "characters"\n')
    assert attendo("prepare", run_file, "--data", tmp_path, "--out", tmp_path / "data").code == 0
    assert open_prepared(tmp_path / "data").source_tokenizer.kind == "characters"


@pytest.mark.slow
def test_runs_do_not_change_prepared_data(attendo: Command, prepared: Path, tmp_path: Path) -> None:
    before = {path.name: path.read_bytes() for path in prepared.iterdir()}
    for name in ("a", "b"):
        done = attendo("train", "--out", tmp_path / name, *settings(*QUICK_RUN[2:], f"data.prepared={prepared}"))
        assert done.code == 0, done.errors
        assert not (tmp_path / name / "data").exists()
        assert "reading ..." not in done.errors
        assert load(tmp_path / name / "model", "cpu").generate(SOURCES)
    assert {path.name: path.read_bytes() for path in prepared.iterdir()} == before


def test_verify_detects_a_changed_byte(attendo: Command, prepared: Path) -> None:
    intact = attendo("prepare", "--verify", prepared)
    assert (intact.code, intact.errors) == (0, "")
    assert intact.output.startswith(f"{prepared} is whole: ")
    (shard,) = prepared.glob("*.shard")
    content = bytearray(shard.read_bytes())
    content[-1] ^= 1
    shard.write_bytes(content)
    failed = attendo("prepare", "--verify", prepared)
    assert failed.code == 3
    assert str(shard) in failed.error


def test_verify_reads_the_complete_data(attendo: Command, prepared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    verify_values: list[bool] = []

    def record_open(folder: Path, verify: bool = False) -> PreparedData:
        verify_values.append(verify)
        return open_prepared(folder, verify)

    monkeypatch.setattr("attendo.data.prepared.open_prepared", record_open)
    assert attendo("prepare", "--verify", prepared).code == 0
    assert verify_values == [True]


def test_bad_lines_are_counted_by_reason_and_listed(attendo: Command, tmp_path: Path) -> None:
    source, target = write_pairs(tmp_path, times=100)
    source.write_bytes(source.read_bytes() + b"\nbroken \xff\n")
    target.write_bytes(target.read_bytes() + "猫\n狗\n".encode())
    done = attendo("prepare", "--source", source, "--target", target, "--out", tmp_path / "data", *WORDS)
    assert done.code == 0
    listed = tmp_path / "data" / "bad-lines.tsv"
    skipped = f"{source} + {target}: lines left out: 1 empty, 1 source not UTF-8 (listed in {listed})\n"
    assert skipped in done.output
    assert [line.split("\t")[1:] for line in listed.read_text().splitlines()] == [
        ["401", "empty"],
        ["402", "source not UTF-8"],
    ]


def test_too_many_bad_lines_exit_with_code_3_and_are_listed(attendo: Command, tmp_path: Path) -> None:
    source, target = write_pairs(tmp_path)
    source.write_text(source.read_text("utf-8") + "\n" * 5, "utf-8")
    target.write_text(target.read_text("utf-8") + "猫\n" * 5, "utf-8")
    failed = attendo("prepare", "--source", source, "--target", target, "--out", tmp_path / "data", *WORDS)
    assert failed.code == 3
    assert "5 of 45 lines are bad (11.1%): 5 empty" in failed.errors
    assert message("bad_line_remedy", ratio=0.01) in failed.errors
    assert len((tmp_path / "data.bad-lines.tsv").read_text().splitlines()) == 5
    assert not (tmp_path / "data").exists()


def test_start_from_uses_the_tokenizers_of_the_model(attendo: Command, tmp_path: Path) -> None:
    source, target = write_pairs(tmp_path)
    model = tiny_model()
    model.save(tmp_path / "model")
    options = ["--source", source, "--target", target, "--out", tmp_path / "data"]
    assert attendo("prepare", *options, *settings(f"start_from={tmp_path / 'model'}")).code == 0
    data = open_prepared(tmp_path / "data")
    assert data.source_tokenizer.encode(SOURCES[0]) == model.source_tokenizer.encode(SOURCES[0])
    assert data.target_tokenizer.encode(TARGETS[0]) == model.target_tokenizer.encode(TARGETS[0])


def test_prepared_data_cannot_be_prepared_again(attendo: Command, tmp_path: Path) -> None:
    source, target = write_pairs(tmp_path)
    options = ["--source", source, "--target", target, "--out", tmp_path / "data", *settings("tokenizer.kind=words")]
    assert attendo("prepare", *options).code == 0
    for preset in ("tiny", "auto"):
        change = settings(f"preset={preset}", f"data.prepared={tmp_path / 'data'}")
        failed = attendo("prepare", "--out", tmp_path / "new", *change)
        assert failed.code == 2
        assert failed.error == message("data_already_prepared", folder=tmp_path / "data")


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--source", "a", "--target", "b"], 2, "--out DIR"),
        (["--out", "data"], 2, fragment("training_input_missing")),
        (["--source", "a", "--target", "b", "--out", "data"], 3, fragment("file_open_failed", path="a")),
        (["--verify", "missing"], 3, fragment("index_read_failed", path="missing/index.json")),
        (
            ["--out", "new", "--set", "preset=tiny", "--set", "data.prepared=data"],
            3,
            fragment("index_read_failed", path="data/index.json"),
        ),
    ],
)
def test_errors_are_one_line(attendo: Command, arguments: list[str], code: int, message: str) -> None:
    failed = attendo("prepare", *arguments)
    assert failed.code == code
    assert message in failed.error


def test_max_bad_ratio_allows_more_bad_lines(attendo: Command, tmp_path: Path) -> None:
    source, target = write_pairs(tmp_path)
    source.write_text(source.read_text("utf-8") + "\n", "utf-8")
    target.write_text(target.read_text("utf-8") + "猫\n", "utf-8")
    files = ("--source", source, "--target", target, "--out", tmp_path / "data", *WORDS)
    assert attendo("prepare", *files).code == 3
    assert attendo("prepare", *files, "--max-bad-ratio", "0.1").code == 0
    assert attendo("prepare", *files, "--max-bad-ratio", "2").code == 2


@pytest.mark.slow
def test_workers_have_the_settings_of_the_command(attendo: Command, tmp_path: Path) -> None:
    source, target = write_pairs(tmp_path)
    command = ("prepare", "--source", source, "--target", target, *WORDS, *settings("data.drop_duplicates=true"))
    for workers in ("1", "2"):
        done = attendo(*command, "--workers", workers, "--out", tmp_path / workers)
        assert done.code == 0, done.errors
    one, two = ({path.name: path.read_bytes() for path in (tmp_path / workers).iterdir()} for workers in "12")
    assert one == two
    assert not list(tmp_path.glob(".tmp-*"))


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ("data.languages=en", "settings"),
        ('data.languages=["en", "xx"]', "language_not_identified"),
        ("data.temperature=0.5", "temperature"),
    ],
)
def test_bad_filters_are_one_line(attendo: Command, tmp_path: Path, change: str, code: str) -> None:
    pytest.importorskip("py3langid")
    source, target = write_pairs(tmp_path)
    done = attendo("prepare", "--source", source, "--target", target, *WORDS, "--set", change, "--out", tmp_path / "x")
    assert done.code == 2
    assert done.errors.splitlines()[-1].startswith("attendo: ")
    assert code in ("settings", "temperature") or fragment(code) in done.errors
    assert not (tmp_path / "x").exists()


def test_workers_with_running_text_are_rejected(attendo: Command, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("some text\n" * 100)
    done = attendo("prepare", "--text", tmp_path / "text.txt", "--workers", "2", "--out", tmp_path / "x")
    assert done.code == 2
    assert fragment("workers_with_text", workers=2) in done.errors
