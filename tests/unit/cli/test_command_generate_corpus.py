"""`attendo generate --input FOLDER --output FOLDER`: shards in, shards out, in one or several processes."""

import json
from pathlib import Path
from typing import Any

import pytest
from error_codes import fragment, message
from late_import import LateModule, needs
from tiny import SOURCES, Command, Outcome, tiny_model

from attendo.cli import generate_corpus
from attendo.recipes import corpus_generation

LINES = [*SOURCES, "", "unknown words", "  ", "a dog"]
parquet: Any = LateModule("pyarrow.parquet")


@pytest.fixture(autouse=True)
def short_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpus_generation, "WINDOW_LINES", 3)


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    folder = tmp_path / "corpus"
    folder.mkdir()
    (folder / "a.txt").write_text("".join(f"{line}\n" for line in LINES))
    (folder / "b.txt").write_text("the cat sat\n")
    return folder


@pytest.fixture
def expected(attendo: Command, model_folder: Path, corpus: Path) -> list[str]:
    """The output lines of both shards."""
    given = (corpus / "a.txt").read_bytes() + (corpus / "b.txt").read_bytes()
    return attendo("generate", model_folder, given=given).output.removesuffix("\n").split("\n")


@pytest.fixture
def generate(attendo: Command, model_folder: Path, corpus: Path, tmp_path: Path) -> Command:
    def call(*options: str | Path) -> Outcome:
        return attendo("generate", model_folder, "--input", corpus, "--output", tmp_path / "out", *options)

    return call


def read_lines(path: Path) -> list[str]:
    return path.read_text("utf-8").removesuffix("\n").split("\n")


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_outputs_are_those_of_standard_input(generate: Command, expected: list[str], tmp_path: Path) -> None:
    done = generate()
    assert (done.code, done.output) == (0, "")
    assert read_lines(tmp_path / "out/a.txt") + read_lines(tmp_path / "out/b.txt") == expected
    assert [expected[4], expected[6]] == ["", ""]
    assert "10 lines" not in done.errors
    assert "9 lines of 2 shards written to" in done.errors
    assert "1 lines with words that are not in the vocabulary" in done.errors


def test_styles_of_text_are_those_of_standard_input(
    attendo: Command,
    generate: Command,
    model_folder: Path,
    corpus: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(corpus_generation, "WINDOW_LINES", 100)  # the last bits of scores depend on the batch
    for number, options in enumerate((["--json"], ["--n-best", "2", "--beam", "2"], ["--alignments"])):
        given = (corpus / "a.txt").read_bytes()
        plain = attendo("generate", model_folder, *options, given=given)
        assert generate(*options, "--output", tmp_path / str(number)).code == 0
        assert (tmp_path / str(number) / "a.txt").read_text("utf-8") == plain.output


@needs("pyarrow")
def test_fields_and_columns_get_the_same_outputs(
    generate: Command, expected: list[str], corpus: Path, tmp_path: Path
) -> None:
    import pyarrow

    (corpus / "c.jsonl").write_text("".join(f"{json.dumps({'text': line})}\n" for line in LINES))
    (corpus / "d.tsv").write_text("id\ttext\n" + "".join(f"{n}\t{line}\n" for n, line in enumerate(LINES)))
    parquet.write_table(pyarrow.table({"text": LINES}), corpus / "e.parquet")
    assert generate("--source-field", "text", "--output-field", "zh").code == 0
    rows = [json.loads(line) for line in read_lines(tmp_path / "out/c.jsonl")]
    assert [(row["text"], row["zh"]) for row in rows] == list(zip(LINES, expected, strict=False))
    header, *lines = read_lines(tmp_path / "out/d.tsv")
    assert header == "id\ttext\tzh"
    assert [line.split("\t")[2] for line in lines] == expected[: len(LINES)]
    assert parquet.read_table(tmp_path / "out/e.parquet")["zh"].to_pylist() == expected[: len(LINES)]


def test_values_of_fields(generate: Command, corpus: Path, tmp_path: Path) -> None:
    (corpus / "c.jsonl").write_text('{"source": "the cat sat"}\n')
    for name, options, check in (
        ("json", ["--json"], lambda value: value["score"] < 0 and "line" not in value),
        ("texts", ["--n-best", "2", "--beam", "2"], lambda value: list(map(type, value)) == [str, str]),
    ):
        assert generate(*options, "--output", tmp_path / name).code == 0
        assert check(json.loads((tmp_path / name / "c.jsonl").read_text("utf-8"))["output"])


def test_two_workers_write_the_same_bytes_as_one(
    generate: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()  # the workers have windows of the usual size
    assert generate("--output", tmp_path / "one").code == 0
    done = generate("--output", tmp_path / "two", "--workers", "2")
    assert done.code == 0, done.errors
    assert contents(tmp_path / "one") == contents(tmp_path / "two")
    assert not (tmp_path / "two/.parts").exists()


def test_error_of_a_worker_is_that_of_the_command(
    generate: Command, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    (corpus / "a.txt").write_text("a\n" * 3 + "the " * 3000 + "\n")
    one, two = generate("--max-source", "9"), generate("--max-source", "9", "--workers", "2")
    assert one.code == two.code == 3
    assert f"{corpus / 'a.txt'} line 4" in one.error
    assert message("corpus_worker_failed", worker=1, workers=2, reason=one.error) in two.error
    assert not [path for path in (tmp_path / "out").iterdir() if path.name.startswith(".tmp")]
    assert generate("--max-source", "9", "--long-source", "truncate").code == 0


def test_worker_that_dies_is_named(generate: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        generate_corpus.CorpusCommand, "to_json", lambda self: {"model": 1}
    )  # an error that is not an AttendoError
    done = generate("--workers", "2")
    assert done.code == 1
    assert "of 2 failed: TypeError" in done.error


def test_a_second_call_computes_nothing_and_others_are_refused(
    generate: Command, model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert generate().code == 0
    before = contents(tmp_path / "out")
    again = generate()
    assert again.errors.startswith("9 of 9 lines were done by an earlier call\n")
    beam = generate("--beam", "3")
    assert (beam.code, fragment("corpus_settings_differ", folder=tmp_path / "out", settings="beam") in beam.error) == (
        2,
        True,
    )
    tiny_model(seed=5).save(tmp_path / "other")
    for path in (tmp_path / "other").iterdir():
        (model_folder / path.name).write_bytes(path.read_bytes())
    other = generate()
    assert (other.code, "another model:" in other.error) == (2, True)
    assert contents(tmp_path / "out") == before


def test_options_that_have_no_effect_are_refused(attendo: Command, generate: Command, model_folder: Path) -> None:
    for option in ("--workers", "--source-field", "--output-field"):
        done = attendo("generate", model_folder, option, "1", given=b"the cat\n")
        assert (done.code, done.error) == (2, message("corpus_option_without_input", option=option))
    assert generate("the cat").error == message("corpus_option_conflict")
    assert attendo("generate", model_folder, "--input", "x").error == message("corpus_option_conflict")


def test_progress_has_lines_speed_and_time_left(generate: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generate_corpus, "MIN_SECONDS", {False: 0.0})
    lines = generate().errors.splitlines()
    assert lines[:2] == ["reading: 1 of 2 shards", "reading: 2 of 2 shards"]
    assert lines[2].startswith("3 of 9 lines, ")
    assert lines[2].endswith(" left")
    assert [line[:12] for line in lines].count("9 of 9 lines") == 1


def test_a_changed_glossary_does_not_continue_the_job(generate: Command, tmp_path: Path) -> None:
    terms = tmp_path / "terms.tsv"
    terms.write_text("cat\t狗\n", "utf-8")
    options = ("--glossary", terms, "--max-length", "12")
    assert generate(*options).code == 0
    assert "狗" in (tmp_path / "out/b.txt").read_text("utf-8")
    assert "1 of" not in generate(*options).errors
    terms.write_text("cat\t家\n", "utf-8")
    assert generate(*options).code == 2
    terms.unlink()
    assert generate(*options).code == 3
