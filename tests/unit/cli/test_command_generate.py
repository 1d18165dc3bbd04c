"""`attendo generate`: one output line for each input line."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from error_codes import fragment
from tiny import SIZES, SOURCES, TARGETS, Command, Outcome, tiny_model

from attendo.cli import output
from attendo.errors import AttendoError
from attendo.model.config import ModelConfig
from attendo.model.transformer import Transformer
from attendo.model_folder import StoredModel, save_model
from attendo.settings import RenamedSettingWarning
from attendo.text import SentencePiece
from attendo.text_model import Hypothesis, HypothesisScore, Result, TextModel

PROGRAM = "from attendo.cli.main import main; main()"

LINES = [
    "I love NLP",
    "",
    "   ",
    "\t",
    "😀 the cat 👩‍👩‍👧",
    "the\x00cat",
    "unknown words here",
    "a" * 3000,
    "the\u2028cat\u2029sat\x85\x0b\x0c",
    "<s> </s> <pad> <unk>",
    "the\rcat",
    "\ufeffthe cat",
    "é e\u0301",
    "▁the ▁cat",
    " the  cat ",
    "",
]


def join_lines(lines: list[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()


def test_each_input_line_gives_one_output_line(attendo: Command, model_folder: Path) -> None:
    done = attendo("generate", model_folder, given=join_lines(LINES))
    assert done.code == 0
    assert done.output.endswith("\n")
    output = done.output.removesuffix("\n").split("\n")
    assert len(output) == len(LINES)
    assert [answer == "" for answer, line in zip(output, LINES, strict=True) if not line] == [True, True]


def test_outputs_match_the_library_in_order(attendo: Command, model_folder: Path) -> None:
    expected = [result.text for result in tiny_model().generate(SOURCES)]
    done = attendo("generate", model_folder, given=join_lines(list(SOURCES)))
    assert done.output.splitlines() == expected
    assert attendo("translate", model_folder, given=join_lines(list(SOURCES))).output == done.output


@pytest.mark.short(2)
@pytest.mark.parametrize(
    ("options", "settings"),
    [
        (["--beam", "3"], {"beam": 3}),
        (["--beam", "3", "--length-penalty", "0"], {"beam": 3, "length_penalty": 0.0}),
        (["--beam", "3", "--length-penalty", "-2.5"], {"beam": 3, "length_penalty": -2.5}),
        (["--beam", "1"], {}),
    ],
)
def test_beam_options_match_the_library(
    attendo: Command, model_folder: Path, options: list[str], settings: dict[str, Any]
) -> None:
    lines = [*SOURCES, *SOURCES[::-1]]
    expected = [result.text for result in tiny_model().generate(lines, **settings)]
    assert attendo("generate", model_folder, *options, given=join_lines(lines)).output.splitlines() == expected


def test_the_default_beam_is_that_of_the_model(attendo: Command, tmp_path: Path) -> None:
    stored = tiny_model().stored_model
    stored.generation.update(beam=4)
    save_model(tmp_path / "model", stored)
    done = attendo("generate", tmp_path / "model", given=join_lines(list(SOURCES)))
    wide = [result.text for result in tiny_model().generate(SOURCES, beam=4)]
    greedy = [result.text for result in tiny_model().generate(SOURCES)]
    assert done.output.splitlines() == wide != greedy


def test_subword_models_give_one_output_line_per_input_line(attendo: Command, tmp_path: Path) -> None:
    pieces = SentencePiece.train([*SOURCES, *TARGETS] * 4, 330)
    network = Transformer(ModelConfig(**SIZES, vocab_size=pieces.vocab_size), torch.Generator().manual_seed(1))
    TextModel(StoredModel(network, pieces, pieces)).save(tmp_path / "model")
    lines = [line for line in LINES if len(line) < 100]
    done = attendo("generate", tmp_path / "model", "--max-length", "30", given=join_lines(lines))
    assert done.code == 0
    assert done.output.count("\n") == len(lines)


def test_a_final_line_feed_is_optional(attendo: Command, model_folder: Path) -> None:
    assert attendo("generate", model_folder, given=b"the cat\nthe cat").output.count("\n") == 2
    assert attendo("generate", model_folder, given=b"").output == ""
    assert attendo("generate", model_folder, given=b"\n\n").output == "\n\n"
    assert attendo("generate", model_folder, given=b"\r\n").output == "\n"


def test_block_size_does_not_change_the_output(
    attendo: Command, model_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [*SOURCES, "", *SOURCES[::-1]]
    complete = attendo("generate", model_folder, given=join_lines(lines))
    monkeypatch.setattr("attendo.cli.stdin.FIRST_LINES", 2)
    monkeypatch.setattr("attendo.cli.stdin.LINES_AT_ONCE", 4)
    assert attendo("generate", model_folder, given=join_lines(lines)).output == complete.output
    samples = attendo("generate", model_folder, "--sample", given=join_lines(lines))
    monkeypatch.setattr("attendo.cli.stdin.LINES_AT_ONCE", 5)
    assert (
        attendo("generate", model_folder, "--sample", given=join_lines(lines)).output
        == samples.output
        != complete.output
    )


def test_warnings_name_the_line(attendo: Command, model_folder: Path) -> None:
    done = attendo("generate", model_folder, "--max-length", "2", given=b"the cat\n\na zebra sat\n")
    assert "line 3: not in the vocabulary: 'zebra'\n" in done.errors
    assert "line 1: not" not in done.errors
    assert "line 1: cut at 2 tokens; see --max-length\n" in done.errors
    assert "line 2" not in done.errors


def test_an_invalid_utf8_line_is_named(attendo: Command, model_folder: Path) -> None:
    failed = attendo("generate", model_folder, given=b"the cat\nGr\xfc\xdfe\n")
    assert failed.code == 3
    assert "attendo: " + fragment("stdin_line_not_utf8", line=2) in failed.errors


@pytest.mark.slow
@pytest.mark.parametrize("encoding", ["ascii", pytest.param("latin-1", marks=pytest.mark.slow)])
def test_output_is_utf_8_in_every_locale(model_folder: Path, encoding: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, "generate", str(model_folder)],
        input=join_lines(list(SOURCES)),
        capture_output=True,
        env={**os.environ, "PYTHONIOENCODING": encoding},
        check=False,
    )
    assert done.returncode == 0
    assert done.stdout.decode("utf-8").splitlines() == [result.text for result in tiny_model().generate(SOURCES)]


@pytest.mark.slow
def test_an_interrupt_exits_with_code_130(model_folder: Path, tmp_path: Path) -> None:
    """Standard error goes to a file, because an unread pipe may fill up before the first answer."""
    with (
        (tmp_path / "errors").open("wb") as messages,
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM, "generate", str(model_folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=messages,
        ) as process,
    ):
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(join_lines(["the cat"] * 2000))
        process.stdin.flush()
        process.stdout.readline()  # the first block is answered; it waits for the next block
        process.send_signal(signal.SIGINT)
        process.stdin.close()
        process.stdout.read()
    errors = [line for line in (tmp_path / "errors").read_text("utf-8").splitlines() if "cut at" not in line]
    assert process.returncode == 130
    assert errors in ([], ["attendo: interrupted"])


OPTIONS: list[tuple[list[str], dict[str, Any]]] = [
    (["--sample", "--seed", "3", "--temperature", "0.7"], {"sample": True, "seed": 3, "temperature": 0.7}),
    (["--sample", "--top-k", "3", "--min-p", "0.1"], {"sample": True, "top_k": 3, "min_p": 0.1}),
    (["--sample", "--top-p", "0.8", "--typical-p", "0.9"], {"sample": True, "top_p": 0.8, "typical_p": 0.9}),
    (
        ["--beam", "4", "--beam-groups", "2", "--diversity-penalty", "2"],
        {"beam": 4, "beam_groups": 2, "diversity_penalty": 2.0},
    ),
    (
        ["--beam", "3", "--normalise", "gnmt", "--stop", "exhaustive"],
        {"beam": 3, "normalise": "gnmt", "stop": "exhaustive"},
    ),
    (["--beam", "2", "--stop", "first", "--patience", "2"], {"beam": 2, "stop": "first", "patience": 2.0}),
    (["--no-repeat-ngram-size", "1"], {"no_repeat_ngram_size": 1}),
    (["--repetition-penalty", "3"], {"repetition_penalty": 3.0}),
    (["--beam", "3", "--coverage-penalty", "1"], {"beam": 3, "coverage_penalty": 1.0}),
    (["--min-length", "4", "--max-length", "5"], {"min_length": 4, "max_length": 5}),
    (["--max-length-factor", "1", "--max-length-extra", "1"], {"max_length_factor": 1.0, "max_length_extra": 1}),
    (["--min-length-factor", "1", "--min-length-extra", "2"], {"min_length_factor": 1.0, "min_length_extra": 2}),
    (["--preset", "fairseq"], {"preset": "fairseq"}),
    (
        ["--preset", "marian", "--beam", "3", "--word-penalty", "0.5"],
        {"preset": "marian", "beam": 3, "word_penalty": 0.5},
    ),
    (
        ["--beam", "3", "--at-limit", "any", "--stop", "first_come"],
        {"beam": 3, "at_limit": "any", "stop": "first_come"},
    ),
    (["--no-allow-unk", "--renormalise"], {"allow_unk": False, "renormalise": True}),
    (
        ["--repetition-penalty", "2", "--repetition-of", "logits"],
        {"repetition_penalty": 2.0, "repetition_of": "logits"},
    ),
    (["--prefix", "我 爱"], {"prefix": "我 爱"}),
    (["--beam", "3", "--constraint", "猫", "--constraint", "狗"], {"beam": 3, "constraints": ["猫", "狗"]}),
    (["--banned-phrase", "猫", "--banned-phrase", "NLP"], {"banned_phrases": ["猫", "NLP"]}),
    (["--mbr", "chrf", "--mbr-candidates", "5"], {"mbr": "chrf", "mbr_candidates": 5}),
    (["--split", "--max-source", "4"], {"split": True, "max_source": 4}),
    (["--engine", "textbook", "--precision", "fp32"], {"engine": "textbook", "precision": "fp32"}),
    (["--batch-tokens", "20", "--no-counts-eos", "--beam", "3"], {"batch_tokens": 20, "counts_eos": False, "beam": 3}),
]


@pytest.mark.short(4)
@pytest.mark.parametrize(("options", "settings"), OPTIONS, ids=lambda each: " ".join(map(str, each)))
def test_every_option_matches_the_library(
    attendo: Command, model_folder: Path, options: list[str], settings: dict[str, Any]
) -> None:
    lines = [SOURCES[0], "the cat. a dog."]
    if not {"min_length", "max_length_factor", "min_length_factor"} & settings.keys():
        options, settings = [*options, "--max-length", "6"], {**settings, "max_length": 6}
    expected = [result.text for result in tiny_model().generate(lines, **settings)]
    done = attendo("generate", model_folder, *options, given=join_lines(lines))
    assert done.code == 0, done.errors
    assert done.output.splitlines() == expected


@pytest.mark.parametrize(
    ("old", "new", "warning"),
    [
        (["--like", "hf"], ["--preset", "hf"], "--like is now called --preset"),
        (["--ban", "猫", "--ban", "NLP"], ["--banned-phrase", "猫", "--banned-phrase", "NLP"], "--ban is now called"),
        (["--beam", "4", "--groups", "2"], ["--beam", "4", "--beam-groups", "2"], "--groups is now called"),
        (["--at-limit", "free"], ["--at-limit", "any"], "the value free of at_limit is now called any"),
    ],
)
def test_old_options_work_with_one_warning(
    attendo: Command, model_folder: Path, old: list[str], new: list[str], warning: str
) -> None:
    with pytest.warns(RenamedSettingWarning, match=warning) as seen:
        done = attendo("generate", model_folder, *old, given=join_lines(SOURCES[:2]))
    assert len(seen) == 1
    assert done.code == 0, done.errors
    assert done.output == attendo("generate", model_folder, *new, given=join_lines(SOURCES[:2])).output
    assert old[0] == "--at-limit" or old[-2] not in attendo("generate", "--help").output.split()


def test_both_names_of_an_option_are_a_usage_error(attendo: Command, model_folder: Path) -> None:
    done = attendo("generate", model_folder, "--like", "hf", "--preset", "hf", given=b"")
    assert done.code == 2
    assert done.error == AttendoError("setting_given_by_both_names", old="--like", new="--preset").text("en")


def test_every_generation_setting_has_an_option() -> None:
    from inspect import signature

    from attendo.cli.generate import generate
    from attendo.decode.config import GenerationConfig

    assert set(GenerationConfig.model_fields) - set(signature(generate).parameters) == set()


def test_n_best_uses_the_marian_format(attendo: Command, model_folder: Path) -> None:
    done = attendo("generate", model_folder, "--beam", "3", "--n-best", "2", given=join_lines(["the cat", "", "a dog"]))
    expected = tiny_model().generate(["the cat", "", "a dog"], beam=3, n_best=2)
    lines = done.output.splitlines()
    assert len(lines) == 5
    rows = [line.split(" ||| ") for line in lines]
    assert [row[0] for row in rows] == ["0", "0", "1", "2", "2"]
    hypotheses = [each for result in expected for each in result.hypotheses]
    assert [row[1] for row in rows] == [each.text for each in hypotheses]
    assert [float(row[2].removeprefix("F0= ")) for row in rows] == pytest.approx(
        [each.log_probability for each in hypotheses], abs=1e-5
    )
    assert [float(row[3]) for row in rows] == pytest.approx([each.score for each in hypotheses], abs=1e-5)


def test_texts_can_be_given_as_arguments(attendo: Command, model_folder: Path) -> None:
    expected = [result.text for result in tiny_model().generate(SOURCES[:2])]
    done = attendo("generate", model_folder, *SOURCES[:2], given=b"not read\n")
    assert done.output.splitlines() == expected
    assert attendo("translate", model_folder, SOURCES[0], "--beam", "1", given=b"").output.splitlines() == expected[:1]


def test_an_output_file_is_replaced_only_on_success(attendo: Command, model_folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "out.txt"
    file.write_text("before\n", "utf-8")
    failed = attendo("generate", model_folder, "-o", file, given=b"the cat\n\xff\n")
    assert (failed.code, file.read_text("utf-8")) == (3, "before\n")
    done = attendo("generate", model_folder, "--output", file, given=b"the cat\n")
    assert (done.code, done.output) == (0, "")
    assert file.read_text("utf-8") == f"{tiny_model().generate(['the cat'])[0].text}\n"
    assert [each.name for each in tmp_path.glob(".tmp-*")] == []
    failed = attendo("generate", model_folder, "-o", tmp_path / "none" / "out.txt", given=b"the cat\n")
    assert failed.code == 2
    assert fragment("output_file_not_writable") in failed.error


def test_split_lines_are_counted(attendo: Command, model_folder: Path) -> None:
    done = attendo("generate", model_folder, "--split", "--json", given=b"the cat. a dog.\nthe cat\n")
    assert "1 of 2 lines split into 2 sentences\n" in done.errors
    first, second = (json.loads(line) for line in done.output.splitlines())
    assert len(first["sentences"]) == 2
    assert "sentences" not in second


def test_alignments_refer_to_words_of_the_output_text(attendo: Command, tmp_path: Path) -> None:
    pieces = SentencePiece.train([*SOURCES, *TARGETS] * 4, 330)
    network = Transformer(ModelConfig(**SIZES, vocab_size=pieces.vocab_size), torch.Generator().manual_seed(1))
    model = TextModel(StoredModel(network, pieces, pieces))
    model.save(tmp_path / "model")
    line, options = "the small cat ran home", {"max_length": 12, "alignments": True}
    (expected,) = model.generate([line], **options)
    assert expected.alignment is not None
    shown, links = parse_alignments(attendo("generate", tmp_path / "model", "--alignments", "--max-length", "12", line))
    assert len(expected.pieces) > len(shown.split())  # words are cut into pieces
    assert links == [*expected.alignment.word_links]
    assert all(source < len(line.split()) and target < len(shown.split()) for source, target in links)
    piece_options = ("--alignments-of", "pieces", "--max-length", "12")
    _, links = parse_alignments(attendo("generate", tmp_path / "model", *piece_options, line))
    assert links == [*expected.alignment.links]
    found = json.loads(attendo("generate", tmp_path / "model", "--json", *piece_options, line).output)
    assert "".join(found["source_pieces"]) == line.replace(" ", "")
    assert found["word_alignments"] == [list(each) for each in expected.alignment.word_links]


def parse_alignments(done: Outcome) -> tuple[str, list[tuple[int, int]]]:
    shown, links = done.output.rstrip("\n").split(" ||| ")
    pairs = [each.split("-") for each in links.split()]
    return shown, [(int(source), int(target)) for source, target in pairs]


def test_alignments_follow_the_text(attendo: Command, model_folder: Path) -> None:
    expected = tiny_model().generate(["the cat", ""], alignments=True)
    plain = attendo("generate", model_folder, "--alignments", given=join_lines(["the cat", ""]))
    assert plain.output.splitlines() == [f"{expected[0].text} ||| {expected[0].alignment}", ""]
    listed = attendo("generate", model_folder, "--alignments", "--n-best", "1", given=join_lines(["the cat", ""]))
    assert [line.split(" ||| ")[2] for line in listed.output.splitlines()] == [str(each.alignment) for each in expected]


def test_json_has_all_fields(attendo: Command, model_folder: Path) -> None:
    options = ["--json", "--beam", "3", "--n-best", "3", "--alignments", "--constraint", "猫"]
    done = attendo("generate", model_folder, *options, given=join_lines(["the zebra", ""]))
    first, second = (json.loads(line) for line in done.output.splitlines())
    (expected, _) = tiny_model().generate(["the zebra", ""], beam=3, n_best=3, alignments=True, constraints=["猫"])
    assert (first["line"], first["text"], first["cut"]) == (1, expected.text, expected.cut)
    assert first["ids"] == list(expected.ids)
    assert first["pieces"] == list(expected.pieces)
    assert first["score"] == pytest.approx(expected.score)
    parts = first["parts"]
    total = (parts["log_probability"] + parts["penalty"]) / parts["divisor"] + parts["reward"] + parts["coverage"]
    assert total == pytest.approx(first["score"])
    assert first["unknown"] == ["zebra"]
    assert first["constraints"] == [True]
    assert len(first["attention"]) == len(first["ids"])
    assert [each["text"] for each in first["hypotheses"]] == [each.text for each in expected.hypotheses]
    assert (second["line"], second["text"], second["constraints"]) == (2, "", [False])
    assert "hypotheses" not in json.loads(attendo("generate", model_folder, "--json", given=b"the cat\n").output)


def test_ensemble_loads_several_models(attendo: Command, model_folder: Path, tmp_path: Path) -> None:
    tiny_model(5).save(tmp_path / "other")
    done = attendo("generate", model_folder, "--ensemble", tmp_path / "other", given=join_lines(list(SOURCES)))
    expected = tiny_model().ensemble([tiny_model(5)]).generate(SOURCES)
    assert done.output.splitlines() == [result.text for result in expected]


def test_a_too_long_line_is_named_after_earlier_lines_are_answered(attendo: Command, model_folder: Path) -> None:
    given = join_lines(["the cat"] * 20 + ["I saw the small cat"])
    failed = attendo("generate", model_folder, "--max-source", "4", given=given)
    assert failed.code == 3
    assert failed.output.count("\n") == 20
    assert "attendo: line 21 has 5 tokens; the model reads at most 4" in failed.errors


def test_an_unmet_constraint_is_reported_with_its_line(attendo: Command, model_folder: Path) -> None:
    options = ["--beam", "2", "--constraint", "看见 小 猫", "--max-length", "1"]
    done = attendo("generate", model_folder, *options, given=b"the cat\n")
    assert "line 1: 1 of 1 constraints not met" in done.errors


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--top-k", "3"], "--top-k applies only to sampling: set --sample too, or leave it out"),
        (["--sample", "--beam", "2"], "leave --beam out; --n-best sets the number of samples"),
        (["--beam", "2", "--n-best", "3"], "--n-best must be from 1 to --beam (2), not 3"),
        (["--stop", "never"], "--stop"),
        (["--sample", "--constraint", "猫"], "--constraint and --sample cannot be used together"),
        (["--top-p", "2", "--sample"], "--top-p"),
        (
            ["--beam", "2", "--length-penalty", "400"],
            "'--length-penalty': 400 is too large: give 10 or less",
        ),
        (
            ["--max-length-factor", "1e300"],
            "'--max-length-factor': 1e300 is too large: give 100 or less",
        ),
    ],
)
def test_incompatible_options_are_usage_errors(
    attendo: Command, model_folder: Path, options: list[str], message: str
) -> None:
    failed = attendo("generate", model_folder, *options, given=b"the cat\n")
    assert failed.code == 2
    assert message in failed.error


def test_line_separators_in_an_output_are_replaced() -> None:
    text = "a\nb\rc\x0bd\x0ce\x85f\u2028g\u2029h\x1ci\x1dj\x1ek"
    result = Result((Hypothesis(text, (), (), HypothesisScore(0.0), False),))
    assert output.format_plain(result) == "a b c d e f g h i j k"
    (line,) = output.format_n_best(0, result)
    assert line.splitlines() == [line]
    assert output.format_json(0, result, all_hypotheses=True).count("\n") == 0


def test_help_shows_complete_option_names_at_80_columns(attendo: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert "…" not in attendo("generate", "--help").output


def test_a_glossary_and_kept_text_are_used(attendo: Command, model_folder: Path, tmp_path: Path) -> None:
    terms = tmp_path / "terms.tsv"
    terms.write_text("cat\t狗\nsat\tKatze\n", "utf-8")
    options = ["--glossary", terms, "--keep", "placeholders", "--do-not-translate", "NLP", "--max-length", "12"]
    done = attendo("generate", model_folder, *options, given=b"the cat sat\nNLP %s\n")
    settings: dict[str, Any] = {"keep": ["placeholders"], "do_not_translate": ["NLP"], "max_length": 12}
    expected = tiny_model().generate(["the cat sat", "NLP %s"], glossary=terms, **settings)
    assert (done.code, done.output.splitlines()) == (0, [result.text for result in expected])
    assert "狗" in done.output
    assert done.output.count("%s") == done.output.count("NLP") == 1
    assert done.errors.splitlines()[0] == (
        "line 1: sat is not translated as Katze: the target vocabulary does not have it"
    )
    terms.write_text("cat\n", "utf-8")
    failed = attendo("generate", model_folder, "--glossary", terms, given=b"the cat\n")
    assert (failed.code, f"{terms} line 1" in failed.error) == (3, True)
