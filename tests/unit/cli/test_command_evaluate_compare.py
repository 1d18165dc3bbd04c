"""`attendo evaluate --compare`: significance of the difference between two systems."""

import gzip
import json
from pathlib import Path

import pytest
from error_codes import fragment, message
from tiny import SOURCES, TARGETS, Command, tiny_model

from attendo.metrics import METRICS, compare
from attendo.text_model import load

LINES = [*SOURCES, "", *SOURCES[::-1]] * 3
REFERENCES = [*TARGETS, "", *TARGETS[::-1]] * 3
NAMES = [name for name in METRICS if not name.startswith("distinct")]
EVERY = ("--metric", ",".join(NAMES))


@pytest.fixture
def files(tmp_path: Path) -> tuple[str | Path, ...]:
    """The options that name a source and its references."""
    return (
        "--source",
        write_lines(tmp_path / "test.en", LINES),
        "--reference",
        write_lines(tmp_path / "test.zh", REFERENCES),
    )


@pytest.fixture
def right(tmp_path: Path) -> Path:
    """A file of outputs that score better than an untrained model."""
    return write_lines(tmp_path / "right.zh", REFERENCES)


def write_lines(path: Path, lines: list[str]) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines), "utf-8")
    return path


def generate_texts(folder: Path, **settings: int) -> list[str]:
    return [result.text for result in load(folder, "cpu").generate(LINES, **settings)]


def test_the_table_has_scores_difference_interval_and_p_value(
    attendo: Command, model_folder: Path, files: tuple[str | Path, ...], right: Path
) -> None:
    done = attendo("evaluate", model_folder, *files, "--metric", "chrf,ter", "--compare", right)
    assert done.code == 0
    header, *rows = done.output.splitlines()
    assert header.split() == ["score", "model", "other", "difference", "95%", "interval", "p"]
    assert len({len(line) for line in (header, *rows[:2])}) == 1
    for name, row in zip(("chrf", "ter"), rows, strict=False):
        found = compare(name, generate_texts(model_folder), REFERENCES, REFERENCES)
        low, high = found.interval
        assert row.split() == [
            *(name, f"{found.one.value:.2f}", f"{found.other.value:.2f}", f"{found.difference:+.2f}"),
            *(f"{low:+.2f}", "to", f"{high:+.2f}", "0.001"),
        ]
        assert f"{name} {found.signature}" in rows


def test_the_better_system_is_named_for_any_score_direction(
    attendo: Command, model_folder: Path, files: tuple[str | Path, ...], right: Path, tmp_path: Path
) -> None:
    worse = attendo("evaluate", model_folder, *files, "--metric", "chrf,ter", "--compare", right).output.splitlines()
    assert f"chrf: {right} is better than {model_folder}, significant at 0.05" in worse
    assert f"ter: {right} is better than {model_folder}, significant at 0.05" in worse
    empty = write_lines(tmp_path / "empty.zh", [""] * len(LINES))
    better = attendo("evaluate", model_folder, *files, "--metric", "chrf", "--compare", empty).output.splitlines()
    assert f"chrf: {model_folder} is better than {empty}, significant at 0.05" in better


def test_equal_outputs_are_not_significantly_different(
    attendo: Command, model_folder: Path, files: tuple[str | Path, ...], tmp_path: Path
) -> None:
    own = tmp_path / "own.zh"
    first = attendo("evaluate", model_folder, *files, "--output", own)
    done = attendo("evaluate", model_folder, *files, "--compare", own)
    assert done.code == first.code == 0
    assert "bleu: not significant at 0.05" in done.output.splitlines()
    assert done.output.splitlines()[1].split()[3:] == ["+0.00", "+0.00", "to", "+0.00", "1.000"]


def test_a_low_p_value_with_0_in_the_interval_is_not_significant(
    attendo: Command, model_folder: Path, files: tuple[str | Path, ...], right: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("attendo.metrics.significance.p_value", lambda differences, real: 0.04)
    done = attendo("evaluate", model_folder, *files, "--metric", "exact_match", "--compare", files[1])
    assert "exact_match: not significant at 0.05: p is below it, but the interval holds 0" in done.output.splitlines()
    done = attendo("evaluate", model_folder, *files, "--metric", "exact_match", "--compare", right)
    assert "significant at 0.05" in done.output
    assert "holds 0" not in done.output


@pytest.mark.slow
def test_another_model_is_decoded_with_the_same_options(
    attendo: Command, model_folder: Path, files: tuple[str | Path, ...], tmp_path: Path
) -> None:
    other = tmp_path / "other"
    tiny_model(seed=5).save(other)
    done = attendo("evaluate", model_folder, *files, *EVERY, "--compare", other, "--beam", "2", "--json")
    report = json.loads(done.output)
    texts, others = generate_texts(model_folder, beam=2), generate_texts(other, beam=2)
    assert texts != others
    assert report["scores"].keys() == report["comparisons"].keys() == set(NAMES)
    for name in NAMES:
        found = compare(name, texts, others, REFERENCES)
        assert report["scores"][name]["value"] == found.one.value
        assert report["scores"][name]["signature"] == found.one.signature
        assert report["comparisons"][name] == {
            "other": found.other.value,
            "difference": found.difference,
            "interval": list(found.interval),
            "p_value": found.p_value,
            "significant": found.significant,
            "signature": found.signature,
        }
    assert (report["model"], report["other"]) == (str(model_folder), str(other))
    assert f"{model_folder}: " in done.errors
    assert f"{other}: " in done.errors


@pytest.mark.slow
def test_the_other_model_keeps_its_own_generation_settings(
    attendo: Command, model_folder: Path, files: tuple[str | Path, ...], tmp_path: Path
) -> None:
    model = tiny_model()
    model.stored_model.generation.update(beam=4, length_penalty=0.0)
    model.save(tmp_path / "other")
    assert generate_texts(tmp_path / "other") != generate_texts(model_folder)
    done = attendo("evaluate", model_folder, *files, "--metric", "chrf", "--compare", tmp_path / "other", "--json")
    found = compare("chrf", generate_texts(model_folder), generate_texts(tmp_path / "other"), REFERENCES)
    assert json.loads(done.output)["comparisons"]["chrf"]["difference"] == found.difference


def test_a_compressed_output_file_is_read(
    attendo: Command, model_folder: Path, files: tuple[str | Path, ...], right: Path, tmp_path: Path
) -> None:
    compressed = tmp_path / "right.zh.gz"
    compressed.write_bytes(gzip.compress(right.read_bytes()))
    options = (*files, "--json", "--compare")
    plain = json.loads(attendo("evaluate", model_folder, *options, right).output)
    assert json.loads(attendo("evaluate", model_folder, *options, compressed).output) == {
        **plain,
        "other": str(compressed),
    }


def test_a_line_count_mismatch_names_both_files(
    attendo: Command, files: tuple[str | Path, ...], tmp_path: Path
) -> None:
    short = write_lines(tmp_path / "short", ["one"])
    failed = attendo("evaluate", tmp_path / "no model", *files, "--compare", short)
    assert failed.code == 3
    assert failed.error == message("file_line_counts_differ", short=short, short_lines=1, long=files[1], long_lines=2)


def test_a_missing_comparison_path_is_a_usage_error(
    attendo: Command, files: tuple[str | Path, ...], tmp_path: Path
) -> None:
    failed = attendo("evaluate", tmp_path / "no model", *files, "--compare", tmp_path / "none")
    assert failed.code == 2
    assert failed.error == message("comparison_not_found", path=tmp_path / "none")


def test_a_folder_without_a_model_is_reported_before_generation(
    attendo: Command, model_folder: Path, files: tuple[str | Path, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "nothing").mkdir()
    monkeypatch.setattr("attendo.text_model.TextModel.generate", lambda *_, **__: pytest.fail("it translated"))
    failed = attendo("evaluate", model_folder, *files, "--compare", tmp_path / "nothing")
    assert failed.code == 4
    assert str(tmp_path / "nothing") in failed.error


def test_the_output_never_overwrites_the_compared_file(
    attendo: Command, model_folder: Path, files: tuple[str | Path, ...], right: Path
) -> None:
    before = right.read_bytes()
    failed = attendo("evaluate", model_folder, *files, "--compare", right, "--output", right)
    assert failed.code == 2
    assert fragment("output_overwrites_input", output=right, path=right) in failed.error
    assert right.read_bytes() == before
