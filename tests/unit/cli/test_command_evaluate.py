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


def generate_texts(folder: Path, **settings: float) -> list[str]:
    return [result.text for result in load(folder, "cpu").generate(LINES, **settings)]


def test_a_score_line_has_name_value_and_signature(
    attendo: Command, model_folder: Path, files: tuple[str | Path, ...]
) -> None:
    done = attendo("evaluate", model_folder, *files)
    texts = generate_texts(model_folder)
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


def test_metrics_are_deduplicated_in_the_order_given(
    attendo: Command, model_folder: Path, files: tuple[str | Path, ...]
) -> None:
    done = attendo("evaluate", model_folder, *files, "--metric", "word_error_rate, exact_match,word_error_rate")
    assert [line.split()[0] for line in done.output.splitlines()] == ["word_error_rate", "exact_match"]
    assert done.output.splitlines()[1].split()[1] == "11.11"  # only the empty line is correct


@pytest.mark.short(2)
@pytest.mark.parametrize("settings", [{}, {"beam": 3}, {"beam": 3, "length_penalty": 0.0}, {"preset": "marian"}])
def test_translations_match_the_library_in_order(
    attendo: Command, model_folder: Path, files: tuple[str | Path, ...], tmp_path: Path, settings: dict[str, float]
) -> None:
    options = [word for name, value in settings.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    done = attendo("evaluate", model_folder, *files, *options, "--output", tmp_path / "out.zh")
    assert done.code == 0
    assert (tmp_path / "out.zh").read_text("utf-8") == "".join(
        f"{text}\n" for text in generate_texts(model_folder, **settings)
    )


def test_block_size_does_not_change_the_order(
    attendo: Command, model_folder: Path, files: tuple[str | Path, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("attendo.cli.evaluate.LINES_AT_ONCE", 2)
    attendo("evaluate", model_folder, *files, "--output", tmp_path / "out.zh")
    assert (tmp_path / "out.zh").read_text("utf-8").splitlines() == generate_texts(model_folder)


def test_json_is_one_object_with_all_results(attendo: Command, tmp_path: Path, files: tuple[str | Path, ...]) -> None:
    stored = tiny_model().stored_model
    stored.generation.update(beam=2, length_penalty=0.5)
    save_model(tmp_path / "model", stored)
    report = json.loads(attendo("evaluate", tmp_path / "model", *files, "--metric", "chrf", "--json").output)
    chrf = sacrebleu.corpus_chrf(generate_texts(tmp_path / "model"), [REFERENCES])
    assert report["scores"]["chrf"]["value"] == chrf.score
    assert report["scores"]["chrf"]["higher_is_better"] is True
    assert "nc:6" in report["scores"]["chrf"]["signature"]
    assert (report["lines"], report["beam"], report["length_penalty"]) == (9, 2, 0.5)
    assert report["cut"] == sum(result.cut for result in load(tmp_path / "model", "cpu").generate(LINES))


def test_compressed_files_are_read(attendo: Command, model_folder: Path, files: tuple[str | Path, ...]) -> None:
    compressed = []
    for path in files[1::2]:
        compressed.append(Path(f"{path}.gz"))
        compressed[-1].write_bytes(gzip.compress(Path(path).read_bytes()))
    plain = attendo("evaluate", model_folder, *files)
    assert (
        attendo("evaluate", model_folder, "--source", compressed[0], "--reference", compressed[1]).output
        == plain.output
    )


def test_lines_with_unknown_words_are_counted(attendo: Command, model_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("the zebra\nthe cat\na yak\n")
    done = attendo("evaluate", model_folder, "--source", tmp_path / "a", "--reference", tmp_path / "a")
    assert "2 of 3 lines have words that the vocabulary does not have\n" in done.errors


def test_a_line_count_mismatch_exits_with_code_3(
    attendo: Command, model_folder: Path, files: tuple[str | Path, ...], tmp_path: Path
) -> None:
    (tmp_path / "short").write_text("one\n")
    failed = attendo("evaluate", model_folder, *files[:2], "--reference", tmp_path / "short")
    assert failed.code == 3
    assert (
        fragment("file_line_counts_differ", short=tmp_path / "short", short_lines=1, long=files[1], long_lines=2)
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
def test_usage_errors_are_raised_before_the_model_is_loaded(
    attendo: Command, files: tuple[str | Path, ...], tmp_path: Path, options: list[str], message: str
) -> None:
    failed = attendo("evaluate", tmp_path / "no model", *files, *options)
    assert failed.code == 2
    assert message in failed.error


def test_a_missing_package_is_reported_before_the_model_is_loaded(
    attendo: Command, files: tuple[str | Path, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "sacrebleu", None)
    failed = attendo("evaluate", tmp_path / "no model", *files)
    assert failed.code == 2
    assert failed.error == message("package_missing", purpose="BLEU", package="sacrebleu", extra="eval")


def test_an_unwritable_output_is_reported_before_generation(
    attendo: Command, files: tuple[str | Path, ...], tmp_path: Path
) -> None:
    failed = attendo("evaluate", tmp_path / "no model", *files, "--output", tmp_path / "nowhere" / "out")
    assert failed.code == 1
    assert str(tmp_path / "nowhere" / "out") in failed.error


@pytest.mark.parametrize("index", [1, 3])
def test_the_output_never_overwrites_an_input(
    attendo: Command, model_folder: Path, files: tuple[str | Path, ...], index: int
) -> None:
    before = Path(files[index]).read_bytes()
    failed = attendo("evaluate", model_folder, *files, "--output", files[index])
    assert failed.code == 2
    assert message("output_overwrites_input", output=files[index], path=files[index]) in failed.error
    assert Path(files[index]).read_bytes() == before
