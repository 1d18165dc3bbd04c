"""Word alignments of a corpus: read with the pairs, checked, and kept through preparation and sampling."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from error_codes import has_code
from prepared_data import WORDS, ListCorpus, prepare_all, sentences

from attendo.data.batch import RaggedArray
from attendo.data.config import CorpusConfig, DataConfig
from attendo.data.corpus_files import CorpusRow, FileCorpus, read_rows
from attendo.data.prepare import prepare
from attendo.data.prepared import open_prepared
from attendo.data.sampler import BatchStream
from attendo.data.token_links import TokenLinker, flatten_links, unflatten_links
from attendo.errors import DataError, UsageError
from attendo.text import Words
from attendo.text.config import TokenizerConfig


def write(folder: Path, links: str, source: str = "a b\nc\n", target: str = "x\ny z\n") -> CorpusConfig:
    for name, text in (("s", source), ("t", target), ("l", links)):
        (folder / name).write_text(text, "utf-8")
    return CorpusConfig(source=folder / "s", target=folder / "t", alignments=folder / "l")


def test_links_are_read_with_their_pairs(tmp_path: Path) -> None:
    rows = list(read_rows(write(tmp_path, "0-0 1-0 1?0\n0-1\n")))
    assert [row.links for row in rows] == [frozenset({(0, 0), (1, 0)}), frozenset({(0, 1)})]
    tagged = write(tmp_path, "0-0 1-0\n\n").replace(tag="<2x>")
    assert [row.links for row in read_rows(tagged)] == [frozenset({(1, 0), (2, 0)}), frozenset()]
    assert [row.links for row in read_rows(tagged.replace(alignments=None))] == [None, None]


@pytest.mark.parametrize("links", ["0-0 1_0\n\n", "0-0 2-0\n\n", "0-1\n\n"])
def test_an_invalid_line_is_a_bad_line(tmp_path: Path, links: str) -> None:
    first, second = read_rows(write(tmp_path, links))
    assert first.fault is not None
    assert first.fault.startswith("alignment")
    assert (second.fault, second.links) == (None, frozenset())


def test_another_number_of_lines_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, check=has_code("file_line_counts_differ", short_lines=1)):
        list(read_rows(write(tmp_path, "0-0\n")))


@pytest.mark.parametrize(
    ("settings", "code"),
    [
        ({"source": "s", "target": "t", "alignments": "l", "without_spaces": True}, "alignments_without_words"),
        ({"file": "x.jsonl", "turns_field": "turns", "alignments": "l"}, "alignments_without_words"),
        ({"source": ["s", "u"], "target": ["t", "v"], "alignments": "l"}, "alignment_file_count_mismatch"),
        ({"task": "builtin", "alignments": "l"}, "alignments_without_files"),
        ({"source": "s", "target": "t", "valid_alignments": "l"}, "alignments_without_files"),
    ],
)
def test_alignments_without_words_or_files_are_rejected(settings: dict[str, Any], code: str) -> None:
    with pytest.raises(UsageError, check=has_code(code)):
        DataConfig(**settings)


def test_paths_of_alignments_become_absolute() -> None:
    config = DataConfig(source="/s", target="/t", alignments="l").resolve_paths()
    assert config.training[0].alignments == Path.cwd() / "l"


def make_corpus(folder: Path, count: int = 300) -> FileCorpus:
    """Pairs whose first words are linked, and whose last words are linked."""
    pairs = sentences(count)
    links = [f"0-0 {len(one.split()) - 1}-{len(other.split()) - 1}" for one, other in pairs]
    sides = ("".join(f"{pair[side]}\n" for pair in pairs) for side in (0, 1))
    return FileCorpus(write(folder, "".join(f"{each}\n" for each in links), *sides))


@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_each_batch_has_the_links_of_its_pairs(tmp_path: Path, dropout: float) -> None:
    kind = TokenizerConfig(kind="bpe", size=300) if dropout else WORDS
    data = prepare_all(tmp_path / "data", make_corpus(tmp_path), ListCorpus([("a b", "c d")]), tokenizer=kind)
    aligned, plain = data.corpora
    assert aligned.links is not None
    assert plain.links is None
    assert len(aligned.links) == len(aligned.shards)
    linker, seen = TokenLinker.of(data.source_tokenizer, data.target_tokenizer), 0
    for placed, _ in zip(BatchStream(data, 200, 1, dropout).batches(), range(8), strict=False):
        batch = placed.batch
        assert batch.links is not None
        assert batch.links.shape == (*batch.labels.shape, batch.source_ids.size(1))
        for row, number in enumerate(batch.numbers):
            words = (
                unflatten_links(aligned.links.read(number, number + 1)[0][0]) if number < len(aligned.shards) else []
            )
            source, target = (
                RaggedArray.from_lists([[each for each in ids[row].tolist() if each > 3 or each == 1]])
                for ids in (batch.source_ids, batch.labels)
            )
            alone = linker.link(source, target, flatten_links([words]))[0]
            assert batch.links[row].sum() == alone.sum()
            assert batch.links[row, : alone.size(0), : alone.size(1)].equal(alone)
            seen += bool(words)
    assert seen > 20


def test_held_out_pairs_keep_their_links(tmp_path: Path) -> None:
    data = prepare_all(tmp_path / "data", make_corpus(tmp_path))
    assert len(data.valid_links) == len(data.valid) > 0
    for (source, target), links in zip(data.valid, data.valid_links, strict=True):
        assert links == {(0, 0), (len(source.split()) - 1, len(target.split()) - 1)}
    without = prepare_all(tmp_path / "plain", ListCorpus(sentences(300)))
    assert (without.valid_links, without.has_links) == ((), False)


class FirstWordsLinked(ListCorpus):
    def rows(self) -> Iterator[CorpusRow]:
        for number, (source, target) in enumerate(self.pairs, start=1):
            yield CorpusRow(number, source, target, None, frozenset({(0, 0)}))


@pytest.mark.parametrize("right", [0, 5])
def test_pairs_whose_words_the_tokenizer_changes_have_no_links(tmp_path: Path, right: int) -> None:
    """An unknown mark is decoded with a space before it, so it counts as a word of its own."""
    words = Words.build(["a b", "x"])
    corpus, valid = FirstWordsLinked([("a b", "x")] * right + [("a b@", "x")] * 3), ListCorpus([("a", "x")])
    preparing = prepare([corpus], valid, DataConfig(task="builtin"), (words, words), 1, tmp_path / "data")
    if not right:
        with pytest.raises(DataError, check=has_code("no_alignment_matches_tokens", corpus="list")):
            list(preparing)
        return
    list(preparing)
    (prepared,) = open_prepared(tmp_path / "data").corpora
    assert prepared.links is not None
    assert (prepared.unlinked, prepared.links.read(0, 8)[0].lengths.tolist()) == (3, [2] * right + [0] * 3)


def test_damaged_links_are_found(tmp_path: Path) -> None:
    prepare_all(tmp_path / "data", make_corpus(tmp_path))
    path = tmp_path / "data" / "train-00-links-0000.shard"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(DataError):
        open_prepared(tmp_path / "data", verify=True)
