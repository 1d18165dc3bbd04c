"""Preparation in windows: filters, duplicates, temperature, and work that continues after an interruption."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from error_codes import has_code
from prepared_data import WORDS, ListCorpus, prepare_all, sentences

from attendo.data import corpus_windows, duplicates, line_filters
from attendo.data.config import CorpusConfig, DataConfig
from attendo.data.corpus_files import FileCorpus
from attendo.data.corpus_windows import Window, WindowLines, WindowReader, read_windows
from attendo.data.duplicates import DuplicateMarks, mark_duplicates, pair_keys
from attendo.data.line_filters import PairFilter
from attendo.data.preparation import LocalWorker, Preparation, WindowComputer
from attendo.data.preparation_parts import Pass
from attendo.data.prepare import Tokenizers, prepare
from attendo.data.prepared import open_prepared
from attendo.errors import AttendoError, UsageError
from attendo.text.config import TokenizerConfig

BUILTIN = DataConfig(task="builtin")


@pytest.fixture(autouse=True)
def small_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpus_windows, "WINDOW_LINES", 7)


@dataclass
class OtherOrder:
    """Computes windows in the opposite order, each in a new computer, as another process does."""

    stop_after: int | None = None
    computed: int = 0

    def run(
        self, work: Preparation, name: Pass, windows: Iterator[tuple[Window, WindowLines | None]]
    ) -> Iterator[Window]:
        for window, _ in reversed(list(windows)):
            if self.computed == self.stop_after:
                raise KeyboardInterrupt
            work.parts.write(name, window, WindowComputer(work, name).compute(window))
            self.computed += 1
            yield window


def run(
    folder: Path, settings: DataConfig, workers: Any = None, tokenizer: TokenizerConfig | Tokenizers = WORDS
) -> None:
    corpora = [FileCorpus(each) for each in settings.training]
    valid = next((FileCorpus(each) for each in settings.validation), None)
    for _ in prepare(corpora, valid, settings, tokenizer, 1, folder, workers):
        pass


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def write_corpora(folder: Path, **settings: Any) -> DataConfig:
    """Write two corpora with bad lines, duplicates and conversations."""
    lines = [f"{source}\t{target}" for source, target in sentences(100)]
    (folder / "a.tsv").write_text("\n".join([*lines, "\tempty", "no column", *lines[:20]]) + "\n")
    talk = [f'{{"turns": ["q{n}", "a{n}", "b{n % 5}"]}}' for n in range(30)]
    (folder / "b.jsonl").write_text("\n".join([*talk, "no json", *talk[:3]]) + "\n")
    corpora = (
        CorpusConfig(file=folder / "a.tsv", tag="<a>"),
        CorpusConfig(file=folder / "b.jsonl", turns_field="turns", weight=2.0),
    )
    return DataConfig(corpora=corpora, max_bad_ratio=0.1, **settings)


@pytest.mark.parametrize("drop_duplicates", [False, True])
@pytest.mark.parametrize("tokenizer", [WORDS, TokenizerConfig(kind="bpe", size=300, joint=True)])
def test_windows_in_any_order_give_equal_files(
    tmp_path: Path, drop_duplicates: bool, tokenizer: TokenizerConfig
) -> None:
    settings = write_corpora(tmp_path, drop_duplicates=drop_duplicates)
    run(tmp_path / "whole", settings, None, tokenizer)
    run(tmp_path / "other", settings, OtherOrder(), tokenizer)
    assert contents(tmp_path / "other") == contents(tmp_path / "whole")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.tsv", "b.jsonl", "other", "whole"]


def test_windows_keep_alignments_and_preceding_sentences(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A window begins in the middle of a document, in another process than the window before it."""
    pairs = sentences(40)
    for name, side in (("source", 0), ("target", 1)):
        lines = [pair[side] if number % 5 else "" for number, pair in enumerate(pairs)]  # documents of 4 sentences
        (tmp_path / f"{name}.txt").write_text("\n".join(lines) + "\n")
        (tmp_path / f"plain.{name}.txt").write_text("\n".join(pair[side] for pair in pairs) + "\n")
    (tmp_path / "links.txt").write_text("0-0\n" * len(pairs))
    plain = {"source": tmp_path / "plain.source.txt", "target": tmp_path / "plain.target.txt"}
    files = {"source": tmp_path / "source.txt", "target": tmp_path / "target.txt"}
    settings = DataConfig(
        corpora=(
            CorpusConfig(**plain, alignments=tmp_path / "links.txt"),
            CorpusConfig(**files, context_sentences=2),
        ),
        max_bad_ratio=0.0,
        valid_source=(plain["source"],),
        valid_target=(plain["target"],),
    )
    run(tmp_path / "other", settings, OtherOrder())
    monkeypatch.setattr(corpus_windows, "WINDOW_LINES", 1000)
    run(tmp_path / "whole", settings)
    prepared, whole = open_prepared(tmp_path / "other"), open_prepared(tmp_path / "whole")
    aligned, documents = prepared.corpora
    assert aligned.links is not None
    assert [list(aligned.links.example(number).source) for number in range(40)] == [[0, 0]] * 40
    assert contents(tmp_path / "other") == contents(tmp_path / "whole")
    assert whole.corpora[1].bad == {}
    texts = [prepared.source_tokenizer.decode(list(documents.shards.example(number).source)) for number in range(4)]
    first = [source for source, _ in pairs[1:5]]
    assert [text.count("<context>") for text in texts] == [0, 1, 2, 2]
    assert texts[3].replace(" ", "").endswith(f"{first[1]}<context>{first[2]}<context>{first[3]}".replace(" ", ""))


@pytest.mark.parametrize("stop_after", [0, 3, 21, 25, 40])
def test_an_interrupted_preparation_continues(tmp_path: Path, stop_after: int) -> None:
    settings = write_corpora(tmp_path, drop_duplicates=True)
    run(tmp_path / "whole", settings)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "data", settings, OtherOrder(stop_after))
    rest, whole = OtherOrder(), OtherOrder()
    run(tmp_path / "data", settings, rest)
    run(tmp_path / "again", settings, whole)
    assert rest.computed == whole.computed - stop_after
    assert contents(tmp_path / "data") == contents(tmp_path / "whole")


@pytest.mark.parametrize("change", ["text", "settings"])
def test_parts_of_other_text_or_settings_are_not_used(tmp_path: Path, change: str) -> None:
    settings = write_corpora(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "data", settings, OtherOrder(30))
    if change == "text":
        (tmp_path / "a.tsv").write_text((tmp_path / "a.tsv").read_text().replace("s19", "s2222"))
    else:
        settings = settings.replace(max_length=5, max_bad_ratio=1.0)
    run(tmp_path / "data", settings, OtherOrder())
    run(tmp_path / "whole", settings)
    assert contents(tmp_path / "data") == contents(tmp_path / "whole")


def test_bad_data_leaves_no_parts(tmp_path: Path) -> None:
    settings = write_corpora(tmp_path).replace(max_bad_ratio=0.0)
    with pytest.raises(AttendoError, check=has_code("too_many_bad_lines")):
        run(tmp_path / "data", settings, LocalWorker())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.tsv", "b.jsonl", "data.bad-lines.tsv"]


def test_a_reader_finds_any_window(tmp_path: Path) -> None:
    corpora = [FileCorpus(each) for each in write_corpora(tmp_path).training]
    found = [each for index, corpus in enumerate(corpora) for each in read_windows(corpus, index)]
    reader = WindowReader(corpora)
    for window, lines in [*found[3::2], *found[::3], *found[::-1]]:
        assert reader.read(window).rows() == lines.rows()
    rows = [row for window, lines in found if window.corpus == 1 for row in lines.rows()]
    assert rows == [(row.source, row.target, row.fault, row.links) for row in corpora[1].rows()]


@pytest.mark.parametrize("bucket_pairs", [1, 10, 10_000])
def test_marks_are_those_of_a_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bucket_pairs: int) -> None:
    monkeypatch.setattr(duplicates, "BUCKET_PAIRS", bucket_pairs)
    monkeypatch.setattr(duplicates, "_CHUNK_PAIRS", 17)
    dice = np.random.default_rng(1)
    pairs = [(f"s{a}", f"t{b}") for a, b in dice.integers(0, 9, (203, 2)).tolist()]
    blocks = [(first, pair_keys(pairs[first : first + 10])) for first in range(0, 203, 10)]
    mark_duplicates(blocks, 203, tmp_path / "marks")
    seen: set[tuple[str, str]] = set()
    expected = [pair in seen or seen.add(pair) is not None for pair in pairs]
    marks = DuplicateMarks(tmp_path / "marks")
    assert marks.read(0, 203).tolist() == expected
    for first, count in ((0, 1), (5, 9), (8, 8), (200, 3), (50, 0)):
        assert marks.read(first, count).tolist() == expected[first : first + count]


def test_no_pairs_have_no_marks(tmp_path: Path) -> None:
    mark_duplicates([], 0, tmp_path / "marks")
    assert DuplicateMarks(tmp_path / "marks").read(0, 0).tolist() == []


def test_the_sides_of_a_pair_do_not_run_together() -> None:
    first, second = pair_keys([("a b", "c"), ("a", "b c")])
    assert first != second


def test_equal_pairs_of_all_corpora_and_of_validation_are_dropped(tmp_path: Path) -> None:
    one, two = sentences(20), [*sentences(5), ("x", "y"), ("x", "y"), ("x", "z")]
    prepared = prepare_all(
        tmp_path / "data",
        ListCorpus(one, "one"),
        ListCorpus(two, "two"),
        valid=ListCorpus([*one[3:5], ("x", "z"), ("x", "z")]),
        drop_duplicates=True,
    )
    assert [len(corpus.shards) for corpus in prepared.corpora] == [18, 1]
    assert [corpus.bad for corpus in prepared.corpora] == [{"duplicate": 2}, {"duplicate": 7}]
    assert len(prepared.valid) == 4, "validation pairs stay"


def test_copies_are_dropped_from_training_only(tmp_path: Path) -> None:
    pairs = [*sentences(20), ("same", "same "), ("a", "b")]
    prepared = prepare_all(tmp_path / "data", ListCorpus(pairs), valid=ListCorpus(pairs[-2:]), drop_copies=True)
    assert (prepared.pairs, len(prepared.valid)) == (21, 2)
    assert prepared.corpora[0].bad == {"copied source": 1}


def test_pairs_in_another_language_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    scores = {"ja": {"de": 0.0, "en": -9.0, "zh": -20.0}, "yes": {"en": 0.0, "de": -4.9, "zh": -9.0}}
    rank = lambda text: list(scores.get(text, dict.fromkeys(("en", "de", "zh"), 0.0)).items())  # noqa: E731
    monkeypatch.setattr(line_filters, "_load_rank", lambda: rank)
    found = PairFilter(DataConfig(task="builtin", languages=("en", "de")))
    assert found.find_reason("yes", "ja") is None
    assert found.find_reason("ja", "ja") == "other language"
    assert found.find_reason("yes", "yes") is None, "4.9 is not certain"
    with pytest.raises(UsageError, check=has_code("language_not_identified", language="xx", known="de, en, zh")):
        PairFilter(DataConfig(task="builtin", languages=("en", "xx")))
    assert PairFilter(DataConfig(task="builtin", languages=("zh-Hans", "EN"))).find_reason("?", "?") is None


def test_language_filter_knows_real_languages() -> None:
    pytest.importorskip("py3langid")
    found = PairFilter(DataConfig(task="builtin", languages=("en", "de")))
    english, german = "The weather is very nice today.", "Das Wetter ist heute sehr schön."
    assert found.find_reason(english, german) is None
    for pair in ((german, english), (english, english), (german, german)):
        assert found.find_reason(*pair) == "other language"


def test_temperature_raises_the_shares_of_small_corpora(tmp_path: Path) -> None:
    names = {"big": 400, "small": 50, "half 1": 60, "half 2": 40}
    for name, count in names.items():
        lines = [f"{name[:1]}{source}\t{target}\n" for source, target in sentences(count)]
        (tmp_path / f"{name}.tsv").write_text("".join(lines))
    tags = {"half 1": "<h>", "half 2": "<h>"}
    corpora = tuple(CorpusConfig(file=tmp_path / f"{name}.tsv", tag=tags.get(name)) for name in names)
    valid = {"valid_source": tmp_path / "v", "valid_target": tmp_path / "w"}
    for path in valid.values():
        path.write_text("v\n")
    settings = DataConfig(corpora=corpora, **valid)
    run(tmp_path / "plain", settings)
    assert [corpus.weight for corpus in open_prepared(tmp_path / "plain").corpora] == [1, 1, 1, 1]
    run(tmp_path / "warm", settings.replace(temperature=2.0))
    found = open_prepared(tmp_path / "warm").corpora
    shares = np.array([corpus.weight * len(corpus.shards) for corpus in found])
    groups = np.array([shares[0], shares[1], shares[2] + shares[3]])
    roots = np.sqrt([400, 50, 100])
    assert groups / groups.sum() == pytest.approx(roots / roots.sum())
    assert found[0].weight == 1
    assert found[2].weight == found[3].weight


def test_a_missing_package_for_languages_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    line_filters._load_rank.cache_clear()
    monkeypatch.setattr("attendo.errors.find_spec", lambda _: None)
    with pytest.raises(UsageError, check=has_code("package_missing", package="py3langid", extra="detect")):
        PairFilter(DataConfig(task="builtin", languages=("en", "de")))
