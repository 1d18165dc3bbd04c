"""Data checks of the doctor: each fault is put into clean text, and clean text gives no finding."""

import random
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from doctor_runs import TextPair, find_check, parallel_text, prepared_run, write_text
from prepared_data import from_lengths

from attendo.data.batch import Example
from attendo.doctor import Finding
from attendo.doctor.bad_lines import LineLocator, check_bad_lines, report_too_many_bad_lines
from attendo.doctor.checks import examine_data
from attendo.doctor.data_sampling import read_blocks, read_pair, take_middle
from attendo.doctor.finding import format_count, format_share
from attendo.doctor.lengths import PairLengths
from attendo.errors import cut_line
from attendo.runs.run import Run

CLEAN = parallel_text(320)
VALID = parallel_text(40, seed=1)
BPE = {"kind": "bpe", "size": 340}


def findings_for_text(
    folder: Path, pairs: Sequence[TextPair], valid: Sequence[TextPair] = VALID, **changes: Any
) -> list[Finding]:
    return findings_for_run(prepared_run(folder, pairs, valid, **changes))


def findings_for_run(run: Run) -> list[Finding]:
    return list(examine_data(run))


@pytest.mark.parametrize("tokenizer", [{}, BPE, {"kind": "bpe", "size": 500, "joint": True}, {"kind": "characters"}])
def test_clean_text_gives_no_finding(tmp_path: Path, tokenizer: dict[str, Any]) -> None:
    findings = findings_for_text(tmp_path, CLEAN, tokenizer=tokenizer)
    assert [finding.check for finding in findings] == [
        *("misaligned lines", "length ratio", "long sentences"),
        *("repeated pairs", "several targets", "copied sources", "validation leak"),
        *("unknown tokens", "unused pieces", "characters a token"),
    ]
    assert {finding.check: finding.found for finding in findings if finding.level != "ok"} == {}
    assert {finding.about for finding in findings} == {"data"}


# Skipped lines, and the line number of a pair


def with_empty_lines(pairs: Sequence[TextPair]) -> list[TextPair]:
    lines = list(pairs)
    for number in (0, 7, 8, 200, len(lines) - 1):
        lines[number] = (lines[number][0], " ")
    return lines


def test_bad_lines_are_counted_by_reason(tmp_path: Path) -> None:
    run = prepared_run(tmp_path, with_empty_lines(CLEAN), VALID)
    found = check_bad_lines(run.data)
    assert (found.level, found.values["bad"], found.values["empty"], found.values["lines"]) == ("warning", 5, 5, 360)
    assert [example.rsplit("line ")[-1] for example in found.examples] == ["1: empty", "8: empty", "9: empty"]
    assert check_bad_lines(prepared_run(tmp_path / "clean", CLEAN, VALID).data).level == "ok"


def test_a_few_bad_lines_are_a_note(tmp_path: Path) -> None:
    run = prepared_run(tmp_path, [*CLEAN, ("a", "")], VALID)
    assert check_bad_lines(run.data).level == "note"


def test_filtered_pairs_are_a_note_without_advice(tmp_path: Path) -> None:
    found = check_bad_lines(prepared_run(tmp_path, [*CLEAN, *CLEAN[:90]], VALID, data={"drop_duplicates": True}).data)
    assert (found.level, found.advice, found.values["duplicate"]) == ("note", "", 90)


def test_too_many_bad_lines_are_summarised_from_their_list(tmp_path: Path) -> None:
    listing = tmp_path / "data.bad-lines.tsv"
    listing.write_text("a + b\t3\tempty\na + b\t5\tnot UTF-8\na + b\t9\tempty\na + b\t10\tempty\n")
    found = report_too_many_bad_lines(listing, 0.01)
    assert (found.level, found.about, found.values["bad"]) == ("fault", "data", 4)
    assert "3 empty, 1 not UTF-8" in found.found
    assert "now 0.01" in found.advice
    assert found.examples == ("a + b line 3: empty", "a + b line 5: not UTF-8", "a + b line 9: empty")


@pytest.mark.parametrize("valid", [(), VALID])
@pytest.mark.parametrize("tag", [None, "<2x>"])
def test_every_pair_is_mapped_to_its_line(tmp_path: Path, valid: Sequence[TextPair], tag: str | None) -> None:
    """With bad lines and held-out validation pairs between the training pairs."""
    lines = with_empty_lines(CLEAN)
    run = prepared_run(tmp_path, lines, valid, data={} if tag is None else {"tag": tag})
    locator, shards = LineLocator(run.data), run.data.corpora[0].shards
    assert len(shards) == (315 if valid else 315 - len(run.data.valid))
    for pair in range(len(shards)):
        line = locator.find_line(0, pair)
        assert line is not None
        text = run.data.source_tokenizer.decode(shards.example(pair).source)
        assert text == (f"{tag} " if tag else "") + lines[line - 1][0]
    assert locator.quote(0, 0).startswith(f"line {locator.find_line(0, 0)}: {'' if tag is None else tag}")
    assert " → " in locator.quote(0, 0)
    assert locator.describe_span(0, 1, 3) == f"lines {locator.find_line(0, 1)} to {locator.find_line(0, 3)}"


def test_without_the_text_pairs_are_named_by_number(tmp_path: Path) -> None:
    run = prepared_run(tmp_path, CLEAN)
    write_text(tmp_path, CLEAN[:-100])
    assert LineLocator(run.data).describe(0, 6) == "pair 7"
    for name in ("train.source", "train.target"):
        (tmp_path / name).unlink()
    assert LineLocator(run.data).describe_span(0, 6, 9) == "pairs 7 to 10"


def test_locations_name_their_corpus(tmp_path: Path) -> None:
    corpora = [write_text(tmp_path, parallel_text(50, seed), f"c{seed}") for seed in (3, 4)]
    run = prepared_run(tmp_path, CLEAN, VALID, data={"source": None, "target": None, "corpora": corpora})
    assert LineLocator(run.data).describe(1, 4) == f"{corpora[1]['source']} + {corpora[1]['target']} line 5"


# Lengths


def test_a_misaligned_block_is_found_despite_bad_lines(tmp_path: Path) -> None:
    pairs = parallel_text(1500)
    targets = [target for _, target in pairs]
    targets[1000:1100] = [*targets[1001:1100], targets[1000]]
    lines = with_empty_lines([(source, target) for (source, _), target in zip(pairs, targets, strict=True)])
    found = find_check(findings_for_text(tmp_path, lines, valid=()), "misaligned lines")
    assert (found.level, found.about, found.values["spans"]) == ("fault", "data", 1)
    (example,) = found.examples
    first, last = (int(each.replace(",", "")) for each in example.split(":")[0].removeprefix("lines ").split(" to "))
    assert abs(first - 1001) <= 8
    assert abs(last - 1100) <= 8
    assert example.endswith("the targets fit when moved 1 line down")


def test_few_misaligned_lines_are_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("attendo.doctor.lengths.MISALIGNED_FAULT_SHARE", 0.1)
    pairs = parallel_text(1000)
    targets = [target for _, target in pairs]
    targets[500:580] = [targets[579], *targets[500:579]]
    lines = [(source, target) for (source, _), target in zip(pairs, targets, strict=True)]
    found = find_check(findings_for_text(tmp_path, lines), "misaligned lines")
    assert (found.level, found.values["spans"]) == ("warning", 1)
    assert found.examples[0].endswith("1 line up")


def test_shuffled_targets_are_a_warning_except_for_summarization(tmp_path: Path) -> None:
    generator = random.Random(0)
    shuffled = generator.sample([target for _, target in CLEAN], len(CLEAN))
    lines = [(source, target) for (source, _), target in zip(CLEAN, shuffled, strict=True)]
    found = find_check(findings_for_text(tmp_path, lines), "misaligned lines")
    assert (found.level, len(found.examples)) == ("warning", 3)
    summaries = findings_for_text(tmp_path / "summaries", lines, about={"task": "summarization"})
    assert find_check(summaries, "misaligned lines").level == "ok"
    assert find_check(findings_for_text(tmp_path / "few", lines[:50]), "misaligned lines").level == "ok"


def test_targets_of_equal_length_give_no_finding(tmp_path: Path) -> None:
    found = find_check(findings_for_text(tmp_path, [(source, "qq") for source, _ in CLEAN]), "misaligned lines")
    assert found.level == "ok"


def test_lopsided_pairs_are_listed_by_ratio(tmp_path: Path) -> None:
    lines = list(CLEAN)
    lines[99] = ("ab " * 15, "qr")
    lines[200] = ("ab", "qr " * 18)
    found = find_check(findings_for_text(tmp_path, lines), "length ratio")
    assert (found.level, found.values["lopsided"]) == ("note", 2)
    assert [example.split(":")[0] for example in found.examples] == ["line 201", "line 100"]
    assert "data.max_length_ratio" in found.advice


def test_short_pairs_are_not_lopsided(tmp_path: Path) -> None:
    found = find_check(
        findings_for_text(tmp_path, [*CLEAN, *[("ab", "qr qs qt qu qv"), ("ab ac ad ae af ag", "qr")] * 9]),
        "length ratio",
    )
    assert (found.level, found.values["lopsided"]) == ("ok", 0)


def test_adjacent_blocks_are_joined(tmp_path: Path) -> None:
    """A misaligned span may cross the border between two blocks."""
    data = from_lengths(tmp_path, [[(1 + n, 2) for n in range(70)], [(1, 1)] * 9])
    lengths = PairLengths()
    for block in read_blocks(data, block_pairs=32):
        lengths.add(block)
    assert [(part.corpus, part.first, len(part)) for part in lengths.contiguous_blocks] == [(0, 0, 70), (1, 0, 9)]
    assert lengths.contiguous_blocks[0].source.tolist() == list(range(1, 71))
    assert [lengths.locate(number) for number in (0, 33, 69, 70, 78)] == [(0, 0), (0, 33), (0, 69), (1, 0), (1, 8)]
    apart = PairLengths()
    for block in [*read_blocks(data, block_pairs=32)][::2]:
        apart.add(block)
    assert [(part.corpus, part.first, len(part)) for part in apart.contiguous_blocks] == [(0, 0, 32), (0, 64, 6)]


def test_many_lopsided_pairs_are_a_warning(tmp_path: Path) -> None:
    found = find_check(findings_for_text(tmp_path, [*CLEAN, *[("ab " * 12, "qr")] * 10]), "length ratio")
    assert (found.level, len(found.examples)) == ("warning", 3)


def test_pairs_longer_than_batch_tokens_are_a_warning(tmp_path: Path) -> None:
    found = find_check(findings_for_text(tmp_path, CLEAN, train={"batch_tokens": 20}), "long sentences")
    assert found.level == "warning"
    assert found.values["above_batch_tokens"] > 0
    assert found.values["longest"] == 1 + max(len(side.split()) for pair in CLEAN for side in pair)
    assert "data.max_length to 19" in found.advice


# Repeats


def test_repeated_pairs_are_counted_and_the_most_frequent_listed(tmp_path: Path) -> None:
    findings = findings_for_text(tmp_path, [*CLEAN, *CLEAN[5:8], *[CLEAN[9]] * 2])
    found = find_check(findings, "repeated pairs")
    assert (found.level, found.values["repeated"]) == ("note", 5)
    assert found.examples[0].startswith("3 times: line 10: ")
    assert find_check(findings, "several targets").level == "ok"
    assert find_check(findings_for_text(tmp_path / "twice", [*CLEAN, *CLEAN]), "repeated pairs").level == "warning"


def test_a_unique_pair_is_not_an_example_of_repeats(tmp_path: Path) -> None:
    found = find_check(findings_for_text(tmp_path, [*CLEAN, *[CLEAN[9]] * 6]), "repeated pairs")
    assert [example.split(":")[0] for example in found.examples] == ["7 times"]


def test_a_source_with_several_targets_is_a_note(tmp_path: Path) -> None:
    findings = findings_for_text(tmp_path, [*CLEAN, *((source, "qq rr ss") for source, _ in CLEAN[:10])])
    found = find_check(findings, "several targets")
    assert (found.level, found.values["with_several_targets"]) == ("note", 10)
    assert find_check(findings, "repeated pairs").level == "ok"


@pytest.mark.parametrize("joint", [True, False])
def test_targets_that_copy_their_source_are_found(tmp_path: Path, joint: bool) -> None:
    copies = [(source, source) for source, _ in VALID[:9]]
    found = find_check(findings_for_text(tmp_path, [*CLEAN, *copies], tokenizer={"joint": joint}), "copied sources")
    assert (found.level, found.values["copied"]) == ("warning", 9)
    assert found.examples[0].startswith("line 321: ")
    fewer = find_check(
        findings_for_text(tmp_path / "fewer", [*CLEAN, *copies[:2]], tokenizer={"joint": joint}), "copied sources"
    )
    assert (fewer.level, fewer.values["copied"]) == ("note", 2)


@pytest.mark.parametrize("joint", [True, False])
def test_only_copies_are_a_fault_unless_allowed(tmp_path: Path, joint: bool) -> None:
    copies = [(source, source) for source, _ in CLEAN]
    found = find_check(findings_for_text(tmp_path, copies, tokenizer={"joint": joint}), "copied sources")
    assert (found.level, found.stops, "data.allow_copies" in found.advice) == ("fault", True, True)
    allowed = findings_for_text(tmp_path / "meant", copies, tokenizer={"joint": joint}, data={"allow_copies": True})
    assert find_check(allowed, "copied sources").level == "ok"


def test_subpieces_count_as_used_with_bpe_dropout(tmp_path: Path) -> None:
    """A word that is always one piece leaves its subpieces unused, unless BPE-dropout splits it."""
    generator = random.Random(0)
    names = ["abcdefghij", "klmnopqrst", "bdfhjlnprt"]
    lines = [(" ".join(generator.choices(names, k=generator.randint(3, 9))),) * 2 for _ in range(300)]
    plain, dropped = (
        find_check(
            findings_for_text(
                tmp_path / str(dropout), lines, tokenizer={"kind": "bpe", "size": 400, "dropout": dropout}
            ),
            "unused pieces",
        )
        for dropout in (0.0, 0.1)
    )
    assert (plain.level, dropped.level) == ("warning", "ok")


def test_validation_text_in_the_training_text_is_found(tmp_path: Path) -> None:
    valid = [*VALID, CLEAN[123], (CLEAN[77][0], "zz zz zz")]
    found = find_check(findings_for_text(tmp_path, CLEAN, valid), "validation leak")
    assert (found.level, found.values["sources"], found.values["pairs"]) == ("warning", 2, 1)
    assert found.examples[0].startswith("validation pair 41 is line 124: ")


def test_leak_level_depends_on_the_share(tmp_path: Path) -> None:
    valid = parallel_text(200, seed=2)
    assert find_check(findings_for_text(tmp_path, CLEAN, [*valid, CLEAN[0]]), "validation leak").level == "note"
    found = find_check(findings_for_text(tmp_path / "all", CLEAN, CLEAN[100:150]), "validation leak")
    assert (found.level, found.about, found.values["pairs"]) == ("fault", "data", 50)


def test_held_out_pairs_do_not_leak(tmp_path: Path) -> None:
    found = find_check(findings_for_text(tmp_path, [*CLEAN, *CLEAN[:50]], valid=()), "validation leak")
    assert (found.level, found.values["sources"]) == ("ok", 0)
    assert found.values["validation"] > 10


def test_sources_equal_only_by_unknown_words_do_not_leak(tmp_path: Path) -> None:
    lines = [*CLEAN, ("rare1 rare2", "qq rr")]
    size = {"size": 200}  # fewer than the number of words
    found = find_check(
        findings_for_text(tmp_path, lines, [("other1 other2", "qq rr")], tokenizer=size), "validation leak"
    )
    assert (found.level, found.values["sources"], found.values["not_compared"]) == ("note", 0, 1)
    assert "1 with unknown tokens cannot be compared" in found.found
    assert "tokenizer.size" in found.advice


def test_the_leak_share_excludes_sources_with_unknown_tokens(tmp_path: Path) -> None:
    unknown = [("newword ab", "qr"), ("ab newword", "qr")]
    found = find_check(findings_for_text(tmp_path, CLEAN, [*VALID[:8], *CLEAN[:2], *unknown]), "validation leak")
    assert found.found.startswith("2 of 10 validation sources (20%) are in the training data, 2 of them with the same")
    assert found.found.endswith("; 2 with unknown tokens cannot be compared")
    assert found.values["validation"] == 12
    alone = find_check(findings_for_text(tmp_path / "alone", CLEAN, [CLEAN[0], *unknown]), "validation leak")
    assert alone.level == "warning", "one of three pairs is below the fault threshold"


# Vocabulary


def test_unknown_words_are_counted_per_side_with_examples(tmp_path: Path) -> None:
    valid = [*VALID, *[("newword ab", "qr")] * 3]
    found = find_check(findings_for_text(tmp_path, CLEAN, valid), "unknown tokens")
    tokens = sum(len(source.split()) for source, _ in valid)
    assert (found.level, found.values["source_training"], found.values["target_validation"]) == ("note", 0.0, 0.0)
    assert found.values["source_validation"] == pytest.approx(3 / tokens)
    assert found.examples[0] == "'newword', 3 times in the source of the validation text"


def test_many_unknown_words_in_training_are_a_warning(tmp_path: Path) -> None:
    found = find_check(findings_for_text(tmp_path, CLEAN, tokenizer={"size": 60}), "unknown tokens")
    assert (found.level, found.values["target_training"] > 0.1) == ("warning", True)
    assert "tokenizer.size" in found.advice


@pytest.mark.parametrize(("symbols", "level"), [(10, "ok"), (60, "note"), (400, "warning")])
def test_unused_pieces_are_counted(tmp_path: Path, symbols: int, level: str) -> None:
    tokenizer = {"symbols": [f"<symbol{n}>" for n in range(symbols)]}
    run = prepared_run(tmp_path, CLEAN, VALID, tokenizer=tokenizer)
    found = find_check(findings_for_run(run), "unused pieces")
    assert found.level == level
    unused = symbols + 1  # the space is never a piece of its own in these texts
    assert found.values["source_unused"] == pytest.approx(unused / (run.data.source_tokenizer.vocab_size - 4))
    assert f"source: {unused:,} of " in found.found
    if level != "ok":
        assert "tokenizer.size" in found.advice
        assert found.examples[0] == "'<symbol0>' is never used"


def test_pieces_of_one_character_are_a_note(tmp_path: Path) -> None:
    generator = random.Random(0)
    letters = [chr(0x4E00 + n) for n in range(150)]

    def random_text() -> str:
        return "".join(generator.sample(letters, 12))

    lines = [(random_text(), random_text()) for _ in range(300)]
    found = find_check(
        findings_for_text(tmp_path, lines, lines[:10], tokenizer={"kind": "bpe", "size": 500}), "characters a token"
    )
    assert (found.level, found.values["source"] < 1.2) == ("note", True)


# Reading


def test_all_pairs_are_read_in_order_below_the_limit(tmp_path: Path) -> None:
    data = from_lengths(tmp_path, [[(1 + n % 3, 2) for n in range(70)], [(1, 1)] * 9])
    read = [(part.corpus, part.first, len(part)) for part in read_blocks(data, max_pairs=1000, block_pairs=32)]
    assert read == [(0, 0, 32), (0, 32, 32), (0, 64, 6), (1, 0, 9)]


def test_above_the_limit_blocks_are_spread_evenly(tmp_path: Path) -> None:
    data = from_lengths(tmp_path, [[(1, 1)] * 1000])
    read = [part.first for part in read_blocks(data, max_pairs=200, block_pairs=20)]
    assert len(read) == 10
    assert (read[0], read[-1]) == (0, 980)
    assert max(after - before for before, after in pairwise(read)) <= 120


def test_a_pair_is_read_by_its_global_number(tmp_path: Path) -> None:
    data = from_lengths(tmp_path, [[(1, 2)] * 5, [(3, 1)] * 5])
    assert read_pair(data, 6) == Example([10] * 3, [10])
    some = take_middle(data, 3)
    assert [read_pair(some, number).source[0] - 4 for number in range(some.pairs)] == [1, 2, 3, 6, 7, 8]
    with pytest.raises(IndexError):
        read_pair(data, 10)


def test_counts_and_shares_are_formatted() -> None:
    assert (format_count(1, "pairs"), format_count(2000, "pairs")) == ("1 pair", "2,000 pairs")
    assert [format_share(part) for part in (0, 0.00012, 0.034, 0.5)] == ["0%", "0.012%", "3.4%", "50%"]
    assert cut_line("a\tb " * 30) == cut_line("a b " * 30) == ("a b " * 30)[:59] + "…"
