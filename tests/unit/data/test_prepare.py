"""Preparing text as a folder of ids; failures leave no folder."""

import errno
import os
import resource
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from error_codes import fragment, has_code
from prepared_data import WORDS, ListCorpus, prepare_all, sentences

from attendo.data import corpus_windows
from attendo.data.config import CorpusConfig, DataConfig
from attendo.data.corpus_files import CorpusRow, FileCorpus
from attendo.data.prepare import Preparing, prepare, settings_hash
from attendo.data.prepared import PreparedData, open_prepared
from attendo.errors import AttendoError, DataError, UsageError
from attendo.text.config import TokenizerConfig

BUILTIN = DataConfig(task="builtin")


@pytest.mark.slow
def test_every_pair_is_training_or_held_out(tmp_path: Path) -> None:
    pairs = sentences(2500)
    prepared = prepare_all(tmp_path / "data", ListCorpus(pairs))
    training = decode_pairs(prepared)
    assert sorted(training + prepared.valid) == sorted(pairs)
    assert training == [pair for pair in pairs if pair in set(training)], "the order of the text is kept"
    assert (prepared.pairs, len(prepared.valid)) == (2375, 125)
    assert prepared.source_tokens == sum(len(source.split()) for source, _ in training)
    assert prepared.target_tokens == sum(len(target.split()) for _, target in training)


def test_equal_sources_are_in_one_split(tmp_path: Path) -> None:
    pairs = [(f"s{n % 60}", f"t{n}") for n in range(1000)]
    prepared = prepare_all(tmp_path / "data", ListCorpus(pairs[:500], "one"), ListCorpus(pairs[500:], "two"))
    held_out = {source for source, _ in prepared.valid}
    assert held_out
    assert not held_out & {source for source, _ in decode_pairs(prepared)}
    assert len(prepared.valid) + prepared.pairs == 1000


def test_the_vocabulary_excludes_held_out_pairs(tmp_path: Path) -> None:
    prepared = prepare_all(tmp_path / "data", ListCorpus(sentences(200)))
    assert prepared.source_tokenizer.unknown(prepared.valid[0][0]) == prepared.valid[0][0].split()[:1]
    assert all(not prepared.source_tokenizer.unknown(source) for source, _ in decode_pairs(prepared))


def test_with_validation_text_all_pairs_are_training(tmp_path: Path) -> None:
    pairs, valid = sentences(50), [("s1 a", "t1"), ("new", "neu")]
    prepared = prepare_all(tmp_path / "data", ListCorpus(pairs), valid=ListCorpus(valid, "valid"))
    assert (decode_pairs(prepared), prepared.valid) == (pairs, valid)


def test_several_corpora_keep_their_weights(tmp_path: Path) -> None:
    first, second = sentences(30), [(f"x{n}", f"y{n}") for n in range(20)]
    corpora = (ListCorpus(first, "one", 0.5), ListCorpus(second, "two", 3.0))
    prepared = prepare_all(tmp_path / "data", *corpora, valid=ListCorpus(first[:1]))
    assert [(each.name, each.weight, len(each.shards)) for each in prepared.corpora] == [
        ("one", 0.5, 30),
        ("two", 3.0, 20),
    ]
    assert decode_pairs(prepared) == first + second


def test_reports_have_stage_and_progress(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpus_windows, "WINDOW_LINES", 1000)
    reports = list(prepare([ListCorpus(sentences(2500))], None, BUILTIN, WORDS, 1, tmp_path / "data"))
    assert reports == [
        Preparing("reading", 1000, None),
        Preparing("reading", 2000, None),
        Preparing("reading", 2500, None),
        Preparing("building the vocabulary", 0, 2375),
        Preparing("writing", 1000, 2500),
        Preparing("writing", 2000, 2500),
        Preparing("writing", 2500, 2500),
    ]


def test_equal_text_settings_and_seed_give_equal_files(tmp_path: Path) -> None:
    tokenizer = TokenizerConfig(kind="bpe", size=320, joint=True)
    for name in ("one", "two"):
        prepare_all(tmp_path / name, ListCorpus(sentences(300)), tokenizer=tokenizer)
    assert read_files(tmp_path / "one") == read_files(tmp_path / "two")
    other = prepare_all(tmp_path / "other", ListCorpus(sentences(300)), tokenizer=tokenizer, seed=2)
    assert other.valid != open_prepared(tmp_path / "one").valid
    assert other.fingerprint != open_prepared(tmp_path / "one").fingerprint


def test_a_joint_vocabulary_is_one_object(tmp_path: Path) -> None:
    joint = prepare_all(tmp_path / "data", ListCorpus(sentences(50)), tokenizer=WORDS.replace(joint=True))
    assert joint.source_tokenizer is joint.target_tokenizer
    assert (tmp_path / "data" / "joint.tokenizer.json").is_file()


def test_given_tokenizers_are_used_unchanged(tmp_path: Path) -> None:
    first = prepare_all(tmp_path / "first", ListCorpus(sentences(50)))
    given = (first.source_tokenizer, first.target_tokenizer)
    second = prepare_all(tmp_path / "second", ListCorpus([("s1 a", "t2 u"), ("a", "u")] * 5), tokenizer=given)
    assert (second.source_tokenizer, second.target_tokenizer) == given
    assert second.settings_hash == settings_hash(BUILTIN, given, 1) != first.settings_hash


def test_R7_bad_lines_are_skipped_counted_and_listed(tmp_path: Path) -> None:
    pairs = sentences(1500)
    pairs[2] = ("", "t2")
    pairs[1200] = ("s1200 " + "a " * 200, "t1200")
    pairs[1300] = ("s1300", "t1300 " + "u " * 30)
    corpus = ListCorpus(pairs, "mine", faults={1001: "NUL"})
    limits = {"max_length": 100, "max_length_ratio": 10.0}
    prepared = prepare_all(tmp_path / "data", corpus, valid=ListCorpus(sentences(1)), **limits)
    assert prepared.corpora[0].bad == {"empty": 1, "NUL": 1, "too long": 1, "length ratio": 1}
    assert (tmp_path / "data" / "bad-lines.tsv").read_text() == (
        "mine\t3\tempty\nmine\t1001\tNUL\nmine\t1201\ttoo long\nmine\t1301\tlength ratio\n"
    )
    assert prepared.pairs == 1496
    assert list_names(tmp_path) == ["data"]


@pytest.mark.parametrize("late", [False, True])
def test_R7_too_many_bad_lines_leave_only_their_list(tmp_path: Path, late: bool) -> None:
    pairs = sentences(100)
    pairs[4] = pairs[9] = ("a " * 50, "u" * 3) if late else (" ", "u")
    with pytest.raises(DataError) as caught:
        prepare_all(tmp_path / "data", ListCorpus(pairs, "mine"), max_length=40)
    assert has_code("too_many_bad_lines", corpus="mine", bad=2, lines=100, share=0.02)(caught.value)
    assert str(tmp_path / "data.bad-lines.tsv") in str(caught.value)
    reason = "too long" if late else "empty"
    assert (tmp_path / "data.bad-lines.tsv").read_text() == f"mine\t5\t{reason}\nmine\t10\t{reason}\n"
    assert list_names(tmp_path) == ["data.bad-lines.tsv"]
    prepared = prepare_all(tmp_path / "data", ListCorpus(pairs, "mine"), max_length=40, max_bad_ratio=0.02)
    assert prepared.pairs + len(prepared.valid) == 98
    assert list_names(tmp_path) == ["data"], "the list is moved into the folder"


def test_R7_bad_validation_text_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(DataError, check=has_code("too_many_bad_lines", corpus="held out", bad=1, lines=2)):
        prepare_all(tmp_path / "data", ListCorpus(sentences(9)), valid=ListCorpus([("a", "u"), ("", "u")], "held out"))


def test_text_without_a_good_pair_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(DataError):
        prepare_all(tmp_path / "data", ListCorpus([("a", "")] * 5), max_bad_ratio=1.0)
    assert list_names(tmp_path) == []


def test_tags_become_vocabulary_symbols(tmp_path: Path) -> None:
    (tmp_path / "text.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in sentences(60)))
    corpora = [CorpusConfig(file=tmp_path / "text.tsv", tag=tag) for tag in ("<2de>", "<2fr>", "<2de>")]
    settings = DataConfig(corpora=tuple(corpora))
    tokenizer = TokenizerConfig(size=400, symbols=("<sep>",))
    prepare_files(settings, tokenizer, tmp_path / "data")
    prepared = open_prepared(tmp_path / "data")
    assert prepared.source_tokenizer.symbols == ("<sep>", "<2de>", "<2fr>")
    assert [corpus.shards.example(0).source[0] for corpus in prepared.corpora] == [5, 6, 5]
    assert all(source.startswith("<2") for source, _ in prepared.valid)
    assert prepared.settings_hash == settings_hash(settings, tokenizer, 1)


def test_features_and_turns_become_vocabulary_symbols(tmp_path: Path) -> None:
    (tmp_path / "forms.tsv").write_text("go\twent\tV;PST\ngo\tgoing\tV;V.PTCP\n" * 30, encoding="utf-8")
    (tmp_path / "talk.jsonl").write_text('{"turns": ["go", "went", "going"]}\n' * 30, encoding="utf-8")
    corpora = (
        CorpusConfig(file=tmp_path / "forms.tsv", features_field="3"),
        CorpusConfig(file=tmp_path / "talk.jsonl", turns_field="turns"),
    )
    settings = DataConfig(corpora=corpora)
    characters = TokenizerConfig(kind="characters", joint=True)
    for _ in prepare([FileCorpus(each) for each in corpora], None, settings, characters, 1, tmp_path / "data"):
        pass
    prepared = open_prepared(tmp_path / "data")
    assert prepared.source_tokenizer.symbols == ("<PST>", "<V.PTCP>", "<V>", "<turn>")
    assert prepared.source_tokenizer.pieces(prepared.source_tokenizer.encode("<V><PST>go")) == [
        "<V>",
        "<PST>",
        "g",
        "o",
    ]
    assert prepared.settings_hash == settings_hash(settings, characters, 1)


def test_truncated_sources_are_counted(tmp_path: Path) -> None:
    pairs = [(f"a b c {number}", "x") for number in range(30)] + [(f"a {number}", "y") for number in range(30)]
    prepared = prepare_all(tmp_path / "data", ListCorpus(pairs), cut_source=3)
    (corpus,) = prepared.corpora
    sources, _ = corpus.shards.read(0, len(corpus.shards))
    lengths = sources.lengths.tolist()
    assert set(lengths) == {2, 3}
    assert corpus.cut == lengths.count(3)


def test_a_tag_missing_in_given_tokenizers_is_rejected_first(tmp_path: Path) -> None:
    given = prepare_all(tmp_path / "ready", ListCorpus(sentences(20)))
    settings = DataConfig(file=tmp_path / "missing.tsv", tag="<2de>")
    with pytest.raises(UsageError, check=has_code("symbol_not_in_tokenizer", symbol="<2de>")):
        prepare_files(settings, (given.source_tokenizer, given.target_tokenizer), tmp_path / "data")


def test_a_file_that_changes_while_reading_is_rejected(tmp_path: Path) -> None:
    @dataclass
    class Growing:
        name: str = "growing"
        weight: float = 1.0
        lines: int = 10

        def rows(self) -> Iterator[CorpusRow]:
            self.lines += 1
            return ListCorpus(sentences(self.lines)).rows()

    with pytest.raises(
        DataError, check=has_code("corpus_changed_while_reading", corpus="growing", before=11, after=12)
    ):
        prepare_all(tmp_path / "data", Growing())
    assert list_names(tmp_path) == []


def test_an_existing_folder_is_replaced_only_on_success(tmp_path: Path) -> None:
    prepare_all(tmp_path / "data", ListCorpus(sentences(30)))
    before = read_files(tmp_path / "data")
    with pytest.raises(DataError):
        prepare_all(tmp_path / "data", ListCorpus([("a", "u"), ("", "")]))
    assert read_files(tmp_path / "data") == before
    assert prepare_all(tmp_path / "data", ListCorpus(sentences(60))).pairs == 57


def test_a_folder_with_other_files_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "diary.txt").write_text("mine")
    with pytest.raises(UsageError, check=has_code("folder_not_prepared_data")):
        prepare_all(tmp_path / "data", ListCorpus(sentences(30)))
    assert list_names(tmp_path / "data") == ["diary.txt"]


@pytest.mark.parametrize("reports", range(1, 8))
def test_closing_the_generator_leaves_no_files(tmp_path: Path, reports: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpus_windows, "WINDOW_LINES", 1000)
    preparing = prepare([ListCorpus(sentences(2500))], None, BUILTIN, WORDS, 1, tmp_path / "data")
    for _ in range(reports):
        next(preparing)
    preparing.close()  # type: ignore[attr-defined]
    assert list_names(tmp_path) == []


def test_files_of_a_killed_preparation_are_removed(tmp_path: Path) -> None:
    (tmp_path / ".tmp-data").mkdir()
    (tmp_path / ".tmp-data" / "train-09-0000.shard").write_text("half")
    (tmp_path / "data.bad-lines.tsv").write_text("old")
    prepare_all(tmp_path / "data", ListCorpus(sentences(30)))
    assert list_names(tmp_path) == ["data"]
    assert "train-09-0000.shard" not in list_names(tmp_path / "data")


def test_R5_too_little_disk_space_leaves_no_files(tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    pairs = [(f"s{n} " + "a " * 20, f"t{n} " + "u " * 20) for n in range(1000)]
    resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, before[1]))
    try:
        with pytest.raises(AttendoError) as caught:
            prepare_all(tmp_path / "data", ListCorpus(pairs), valid=ListCorpus(pairs[:1]))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert caught.value.exit_code == 1
    assert str(caught.value).startswith(
        fragment("prepared_data_write_failed", folder=tmp_path / "data", reason="File too large")
    )
    needed = int(str(caught.value).split("about ")[1].split()[0])
    assert list_names(tmp_path) == []
    prepare_all(tmp_path / "data", ListCorpus(pairs), valid=ListCorpus(pairs[:1]))
    assert needed == pytest.approx((tmp_path / "data" / "train-00-0000.shard").stat().st_size, rel=0.01)


@pytest.mark.parametrize("call", range(9))
def test_R5_a_disk_full_at_any_call_keeps_the_old_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: int
) -> None:
    calls, real = [], os.fsync

    def fail_when_full(handle: int) -> None:
        calls.append(handle)
        if len(calls) > call:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(handle)

    prepare_all(tmp_path / "data", ListCorpus(sentences(30)))
    before = read_files(tmp_path / "data")
    monkeypatch.setattr(os, "fsync", fail_when_full)
    with pytest.raises(AttendoError, check=has_code("prepared_data_write_failed", reason="No space left on device")):
        prepare_all(tmp_path / "data", ListCorpus(sentences(60)))
    # The last call syncs the parent folder, when the new data is already in place but may not be durable.
    assert list_names(tmp_path) == (["data"] if call < 8 else [".old-data", "data"])
    assert (read_files(tmp_path / "data") == before) == (call < 8)
    assert open_prepared(tmp_path / "data", verify=True).pairs == (29 if call < 8 else 57)


def test_R7_unequal_line_counts_leave_no_files(tmp_path: Path) -> None:
    (tmp_path / "source").write_text("a\nb\n")
    (tmp_path / "target").write_text("u\n")
    settings = DataConfig(source=tmp_path / "source", target=tmp_path / "target")
    with pytest.raises(DataError, check=has_code("file_line_counts_differ", short_lines=1)):
        prepare_files(settings, WORDS, tmp_path / "data")
    assert list_names(tmp_path) == ["source", "target"]


def test_the_settings_hash_covers_text_tokenizer_and_seed() -> None:
    first = settings_hash(BUILTIN, WORDS, 1)
    assert settings_hash(BUILTIN, WORDS, 1) == first
    assert settings_hash(BUILTIN, WORDS, 2) != first
    assert settings_hash(DataConfig(task="builtin", max_length=9), WORDS, 1) != first
    bpe = TokenizerConfig()
    assert settings_hash(BUILTIN, bpe, 1) == settings_hash(BUILTIN, TokenizerConfig(dropout=0.1), 1)


def prepare_files(settings: DataConfig, tokenizer: object, folder: Path) -> None:
    for _ in prepare([FileCorpus(each) for each in settings.training], None, settings, tokenizer, 1, folder):  # type: ignore[arg-type]
        pass


def decode_pairs(prepared: PreparedData) -> list[tuple[str, str]]:
    """The training pairs decoded to text."""
    examples = [corpus.shards.example(n) for corpus in prepared.corpora for n in range(len(corpus.shards))]
    source, target = prepared.source_tokenizer, prepared.target_tokenizer
    return [(source.decode(example.source), target.decode(example.target)) for example in examples]


def read_files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def list_names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())
