"""`attendo evaluate`: scores on standard output, everything else on standard error."""

import gzip
import json
import sys
from pathlib import Path

import pytest
import sacrebleu
from error_codes import fragment, message
from tiny import SOURCES, TARGETS, Command, tiny_model

from attendo.model_folder import save_model
from attendo.text_model import load

LINES = [*SOURCES, "", *SOURCES[::-1]]
REFERENCES = [*TARGETS, "", *TARGETS[::-1]]


@pytest.fixture
def files(tmp_path: Path) -> tuple[str | Path, ...]:
    """The options that name a source and its references."""
    source, reference = tmp_path / "test.en", tmp_path / "test.zh"
    source.write_text("".join(f"{line}\n" for line in LINES), "utf-8")
    reference.write_text("".join(f"{line}\n" for line in REFERENCES), "utf-8")
    return ("--source", source, "--reference", reference)


def answers(folder: Path, **settings: float) -> list[str]:
    return [result.text for result in load(folder, "cpu").generate(LINES, **settings)]


def test_a_score_is_a_line_with_its_name_value_and_signature(
    attendo: Command, model_folder: Path, files: tuple[str | Path, ...]
) -> None:
    done = attendo("evaluate", model_folder, *files)
    texts = answers(model_folder)
    bleu = sacrebleu.corpus_bleu(texts, [REFERENCES], tokenize="zh", force=True).score
    chrf = sacrebleu.corpus_chrf(texts, [REFERENCES]).score
    assert done.code == 0
    assert [line.split(" ")[:2] for line in done.output.splitlines()] == [
        ["bleu", f"{bleu:.2f}"],
        ["chrf", f"{chrf:.2f}"],
    ]
    assert chrf > 0
    assert "tok:zh" in done.output.splitlines()[0]
    assert "answers were cut at the length limit" in done.errors


def test_metrics_are_those_asked_for_each_once_and_in_order(
    attendo: Command, model_folder: Path, files: tuple[str | Path, ...]
) -> None:
    done = attendo("evaluate", model_folder, *files, "--metric", "word_error_rate, exact_match,word_error_rate")
    assert [line.split()[0] for line in done.output.splitlines()] == ["word_error_rate", "exact_match"]
    assert done.output.splitlines()[1].split()[1] == "11.11"  # the empty line alone is right


@pytest.mark.short(2)
@pytest.mark.parametrize("settings", [{}, {"beam": 3}, {"beam": 3, "length_penalty": 0.0}, {"preset": "marian"}])
def test_the_translations_are_those_of_the_library_in_order(
    attendo: Command, model_folder: Path, files: tuple[str | Path, ...], tmp_path: Path, settings: dict[str, float]
) -> None:
    options = [word for name, value in settings.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    done = attendo("evaluate", model_folder, *files, *options, "--output", tmp_path / "out.zh")
    assert done.code == 0
    assert (tmp_path / "out.zh").read_text("utf-8") == "".join(
        f"{text}\n" for text in answers(model_folder, **settings)
    )


def test_order_is_kept_when_lines_are_taken_in_parts(
    attendo: Command, model_folder: Path, files: tuple[str | Path, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("attendo.cli.evaluate.LINES_AT_ONCE", 2)
    attendo("evaluate", model_folder, *files, "--output", tmp_path / "out.zh")
    assert (tmp_path / "out.zh").read_text("utf-8").splitlines() == answers(model_folder)


def test_json_is_one_object_with_everything(attendo: Command, tmp_path: Path, files: tuple[str | Path, ...]) -> None:
    stored = tiny_model().stored_model
    stored.generation.update(beam=2, length_penalty=0.5)
    save_model(tmp_path / "model", stored)
    told = json.loads(attendo("evaluate", tmp_path / "model", *files, "--metric", "chrf", "--json").output)
    chrf = sacrebleu.corpus_chrf(answers(tmp_path / "model"), [REFERENCES])
    assert told["scores"]["chrf"]["value"] == chrf.score
    assert told["scores"]["chrf"]["higher_is_better"] is True
    assert "nc:6" in told["scores"]["chrf"]["signature"]
    assert (told["lines"], told["beam"], told["length_penalty"]) == (9, 2, 0.5)
    assert told["cut"] == sum(result.cut for result in load(tmp_path / "model", "cpu").generate(LINES))


def test_packed_files_are_read(attendo: Command, model_folder: Path, files: tuple[str | Path, ...]) -> None:
    packed = []
    for path in files[1::2]:
        packed.append(Path(f"{path}.gz"))
        packed[-1].write_bytes(gzip.compress(Path(path).read_bytes()))
    plain = attendo("evaluate", model_folder, *files)
    assert attendo("evaluate", model_folder, "--source", packed[0], "--reference", packed[1]).output == plain.output


def test_unknown_words_are_counted(attendo: Command, model_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("the zebra\nthe cat\na yak\n")
    done = attendo("evaluate", model_folder, "--source", tmp_path / "a", "--reference", tmp_path / "a")
    assert "2 of 3 lines have words that the vocabulary does not have\n" in done.errors


def test_files_of_different_length_are_exit_code_3(
    attendo: Command, model_folder: Path, files: tuple[str | Path, ...], tmp_path: Path
) -> None:
    (tmp_path / "short").write_text("one\n")
    failed = attendo("evaluate", model_folder, *files[:2], "--reference", tmp_path / "short")
    assert failed.code == 3
    assert (
        fragment("source_line_count_mismatch", source=files[1], source_lines=9, path=tmp_path / "short", lines=1)
        in failed.error
    )
    (tmp_path / "empty").write_text("")
    failed = attendo("evaluate", model_folder, "--source", tmp_path / "empty", "--reference", tmp_path / "empty")
    assert failed.code == 3
    assert f"{tmp_path / 'empty'} is empty" in failed.error


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--metric", "blue"], fragment("unknown_metric", name="blue", suggestion=" (did you mean bleu?)")),
        (["--metric", "perplexty"], "(did you mean perplexity?): use bleu, "),
        (["--metric", ","], fragment("metric_list_empty")),
        (["--beam", "0"], "--beam"),
        (["--length-penalty", "-11"], fragment("option_value_too_small", value="-11", least=-10)),
        (["--metric", "WER"], fragment("unknown_metric", name="WER", suggestion=" (did you mean word_error_rate?)")),
    ],
)
def test_mistakes_are_told_before_the_model_is_read(
    attendo: Command, files: tuple[str | Path, ...], tmp_path: Path, options: list[str], message: str
) -> None:
    failed = attendo("evaluate", tmp_path / "no model", *files, *options)
    assert failed.code == 2
    assert message in failed.error


def test_what_is_missing_is_told_before_the_model_is_read(
    attendo: Command, files: tuple[str | Path, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "sacrebleu", None)
    failed = attendo("evaluate", tmp_path / "no model", *files)
    assert failed.code == 2
    assert failed.error == message("package_missing", purpose="BLEU", package="sacrebleu", extra="eval")


def test_an_output_that_cannot_be_written_is_told_before_the_work(
    attendo: Command, files: tuple[str | Path, ...], tmp_path: Path
) -> None:
    failed = attendo("evaluate", tmp_path / "no model", *files, "--output", tmp_path / "nowhere" / "out")
    assert failed.code == 1
    assert str(tmp_path / "nowhere" / "out") in failed.error


@pytest.mark.parametrize("place", [1, 3])
def test_the_output_never_replaces_what_is_read(
    attendo: Command, model_folder: Path, files: tuple[str | Path, ...], place: int
) -> None:
    before = Path(files[place]).read_bytes()
    failed = attendo("evaluate", model_folder, *files, "--output", files[place])
    assert failed.code == 2
    assert message("output_overwrites_input", output=files[place], path=files[place]) in failed.error
    assert Path(files[place]).read_bytes() == before
