"""`attendo doctor`: checks of a run before training."""

import json
import random
from pathlib import Path

import pytest
from error_codes import fragment, message
from tiny import Command, settings

from attendo.nn.masks import Mask

SMALL = ("preset=tiny", "tokenizer.kind=words", "model.d_model=16", "model.num_heads=2", "model.d_ff=24")


@pytest.fixture(autouse=True)
def _quick_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("attendo.doctor.memory.measure_memory", lambda updater, shape: None)
    monkeypatch.setattr("attendo.doctor.training_checks.ATTEMPTS", ((0.02, 40),))


@pytest.fixture
def run_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run file with clean text, in an otherwise empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    write_text(120)
    Path("mine.toml").write_text('[data]\nsource = "a.source"\ntarget = "a.target"\n[train]\nbatch_tokens = 256\n')
    return Path("mine.toml")


def write_text(count: int, misaligned: slice = slice(0)) -> None:
    generator = random.Random(0)
    lengths = [generator.randint(3, 20) for _ in range(count)]
    sources = [" ".join(generator.choice("abcdefghijk") for _ in range(length)) for length in lengths]
    targets = [" ".join(generator.choice("uvwxyz") for _ in range(length)) for length in lengths]
    moved = targets[misaligned]
    targets[misaligned] = moved[1:] + moved[:1]
    Path("a.source").write_text("".join(f"{line}\n" for line in sources))
    Path("a.target").write_text("".join(f"{line}\n" for line in targets))


def test_a_clean_run_prints_a_table_and_exits_with_code_0(attendo: Command, run_file: Path) -> None:
    done = attendo("doctor", run_file, *settings(*SMALL))
    assert done.code == 0
    for check in ("bad lines", "causal leak", "overfitting one batch", "misaligned lines", "unused pieces"):
        assert check in done.output
    assert "fault" not in done.output
    assert done.errors.splitlines()[-1] == "ok       characters a token"
    assert sorted(path.name for path in Path().iterdir()) == ["a.source", "a.target", "mine.toml"], "no file remains"


def test_quick_skips_overfitting(attendo: Command, run_file: Path) -> None:
    done = attendo("doctor", run_file, "--quick", *settings(*SMALL))
    assert done.code == 0
    assert "memory" in done.output
    assert "misaligned" in done.output
    assert "overfitting" not in done.output


def test_json_is_one_object_per_line(attendo: Command, run_file: Path) -> None:
    done = attendo("doctor", run_file, "--quick", "--json", *settings(*SMALL))
    findings = [json.loads(line) for line in done.output.splitlines()]
    assert [finding["check"] for finding in findings][:3] == ["bad lines", "warm-up", "tying"]
    assert all(
        finding.keys() == {"check", "level", "found", "advice", "examples", "values", "about"} for finding in findings
    )
    assert {finding["level"] for finding in findings} == {"ok"}
    assert "causal leak" not in done.errors


@pytest.mark.slow
def test_test_text_in_the_training_text_is_a_fault(attendo: Command, run_file: Path) -> None:
    options = ("--test-source", "a.source", "--test-target", "a.target")
    done = attendo("doctor", run_file, *options, "--json", *settings(*SMALL))
    assert done.code == 3
    leak = next(each for each in map(json.loads, done.output.splitlines()) if each["check"] == "test leak")
    assert (leak["level"], leak["values"]["test"]) == ("fault", 120)
    assert leak["examples"][0].startswith("test pair 1 is line 1: ")


@pytest.mark.slow
def test_test_files_of_a_recipe_are_checked(attendo: Command, run_file: Path) -> None:
    test = 'name = "last"\nsource = "t.source"\ntarget = "t.target"\nmetric = "bleu"\n'
    table = f'[reproduce]\nabout = "x"\n[[reproduce.test]]\n{test}'
    run_file.write_text(run_file.read_text() + table)
    for side in ("source", "target"):
        Path(f"t.{side}").write_text("".join(Path(f"a.{side}").read_text().splitlines(keepends=True)[:3]) + "u v w\n")
    done = attendo("doctor", run_file, "--json", *settings(*SMALL))
    leak = next(each for each in map(json.loads, done.output.splitlines()) if each["check"] == "last leak")
    assert (done.code, leak["level"], leak["values"]) == (
        3,
        "fault",
        {"last": 4, "sources": 3, "pairs": 3, "not_compared": 1},
    )


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("--test-source", "a.source"), message("test_pair_incomplete")),
        (("--test-source", "a.source", "--test-target", "a.target", "--quick"), fragment("quick_with_test_text")),
    ],
)
def test_an_incomplete_test_set_is_a_usage_error(
    attendo: Command, run_file: Path, options: tuple[str, ...], expected: str
) -> None:
    done = attendo("doctor", run_file, *options, *settings(*SMALL))
    assert done.code == 2
    assert expected in done.error


def test_data_sets_the_folder_of_the_files(attendo: Command, run_file: Path) -> None:
    Path("text").mkdir()
    for side in ("a.source", "a.target"):
        Path(side).rename(Path("text") / side)
    assert attendo("doctor", run_file, *settings(*SMALL), "--quick").code == 3
    assert attendo("doctor", run_file, "--data", "text", *settings(*SMALL), "--quick").code == 0


def test_chosen_settings_are_printed_only_with_show(attendo: Command, run_file: Path) -> None:
    plain = attendo("doctor", run_file, "--quick", *settings(*SMALL))
    assert "train.steps = " not in plain.errors
    shown = attendo("doctor", run_file, "--quick", "--show", *settings(*SMALL))
    assert shown.errors.startswith(plain.errors)
    assert "train.steps = " in shown.errors


def test_source_and_target_options_are_enough(attendo: Command, run_file: Path) -> None:
    done = attendo("doctor", "--source", "a.source", "--target", "a.target", "--quick", *settings(*SMALL))
    assert (done.code, "first loss" in done.output) == (0, True)


def test_a_data_fault_exits_with_code_3(attendo: Command, run_file: Path) -> None:
    write_text(800, slice(400, 550))
    done = attendo("doctor", run_file, "--json", *settings(*SMALL))
    assert done.code == 3
    (fault,) = (json.loads(line) for line in done.output.splitlines() if '"fault"' in line)
    assert fault["check"] == "misaligned lines"
    assert fault["examples"][0].startswith(("lines 39", "lines 40"))


def test_a_network_fault_exits_with_code_4(attendo: Command, run_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("attendo.model.transformer.padding_mask", lambda is_token: Mask())
    done = attendo("doctor", run_file, "--quick", *settings(*SMALL))
    assert done.code == 4
    assert "mend the padding mask" in done.output
    assert "fault    padding\n" in done.errors


def test_too_many_bad_lines_are_a_fault_with_examples(attendo: Command, run_file: Path) -> None:
    with Path("a.source").open("a") as source, Path("a.target").open("a") as target:
        source.write("\n" * 20)
        target.write("[red]x\n" * 20)
    done = attendo("doctor", run_file, *settings(*SMALL))
    assert done.code == 3
    assert "20 lines are bad" in done.output
    assert "line 121: empty" in done.output
    assert "(now 0.01)" in done.output


@pytest.mark.slow
def test_text_that_looks_like_markup_is_shown_unchanged(attendo: Command, run_file: Path) -> None:
    for name in ("a.source", "a.target"):
        with Path(name).open("a") as file:
            file.write("[red]same[/nothing]\n" * 10)
    done = attendo("doctor", run_file, *settings(*SMALL))
    assert done.code == 0
    assert "[red]same[/nothing] → [red]same[/nothing]" in done.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], message("doctor_input_missing")),
        (["--source", "a.source"], message("doctor_input_missing")),
        (["missing.toml"], message("run_file_not_found", path="missing.toml")),
        (["mine.toml", "--set", "train.setps=1"], "did you mean steps?"),
    ],
)
def test_a_usage_error_is_one_line_with_exit_code_2(
    attendo: Command, run_file: Path, arguments: list[str], message: str
) -> None:
    failed = attendo("doctor", *arguments)
    assert failed.code == 2
    assert message in failed.error
