"""Preparing running text as windows of ids in shards."""

import json
import tracemalloc
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from error_codes import ErrorCheck, has_code
from running import some_text

from attendo.data import lm_text
from attendo.data.config import DataConfig
from attendo.data.lm_text import WindowBatches
from attendo.data.prepare import prepare
from attendo.data.prepared import PreparedData, open_prepared
from attendo.data.sampler import BatchStream
from attendo.data.scan_pass import ReservoirSample
from attendo.data.shards import ShardWriter
from attendo.errors import DataError, UsageError
from attendo.text import EOS, Tokenizer, Words
from attendo.text.config import TokenizerConfig
from attendo.text.newlines import NEWLINE_SYMBOL, NewlineTokenizer

CHARACTERS = TokenizerConfig(kind="characters")


def prepare_text(
    folder: Path, text: str, tokenizer: TokenizerConfig | tuple[Tokenizer, Tokenizer] = CHARACTERS, /, **settings: Any
) -> PreparedData:
    (folder / "text.txt").write_text(text, "utf-8")
    config = DataConfig(**{"text": "text.txt", "folder": folder, "window": 16, **settings})
    for _ in prepare([], None, config, tokenizer, 1, folder / "data"):
        pass
    return open_prepared(folder / "data", verify=True)


def read_windows(data: PreparedData) -> list[list[int]]:
    _, target = data.corpora[0].shards.read(0, data.pairs)
    return [target[number] for number in range(data.pairs)]


def read_validation(data: PreparedData) -> list[list[int]]:
    assert data.valid_windows is not None
    source, target = data.valid_windows.read(0, len(data.valid_windows))
    assert len(source.ids) == 0
    return [target[number] for number in range(len(target))]


def test_the_end_of_the_text_is_held_out(tmp_path: Path) -> None:
    text = some_text(2005)
    data = prepare_text(tmp_path, text, stride=16)
    training = "".join(map(data.target_tokenizer.decode, read_windows(data)[:-1]))
    assert text[:1804].startswith(training)
    assert data.target_tokenizer.decode(read_windows(data)[-1]) == text[1804 - 16 : 1804]
    rest = read_validation(data)
    assert data.target_tokenizer.decode([rest[0][0], *(token for row in rest for token in row[1:])]) == text[1804:]
    assert (data.window, data.source_tokens) == (16, 0)
    assert data.source_tokenizer is data.target_tokenizer


def test_a_validation_file_is_used(tmp_path: Path) -> None:
    other = some_text(200, seed=9)
    (tmp_path / "valid.txt").write_text(other, "utf-8")
    data = prepare_text(tmp_path, some_text(500), valid_text="valid.txt", stride=16)
    rest = read_validation(data)
    assert data.target_tokenizer.decode([rest[0][0], *(token for row in rest for token in row[1:])]) == other
    assert data.pairs == -(-(500 - 16) // 16) + 1


def test_the_default_stride_is_a_quarter_of_the_window(tmp_path: Path) -> None:
    rows = read_windows(prepare_text(tmp_path, some_text(1000)))
    assert rows[0][4:] == rows[1][:-4]
    (tmp_path / "other").mkdir()
    rows = read_windows(prepare_text(tmp_path / "other", some_text(1000), stride=3))
    assert rows[0][3:] == rows[1][:-3]


@pytest.mark.parametrize("kind", ["characters", "bytes", "words", "bpe", "unigram"])
def test_windows_do_not_depend_on_the_block_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    text, found = some_text(3000), []
    size = {} if kind == "bytes" else {"size": 300}
    for name, block in (("one", 1 << 18), ("other", 333)):
        monkeypatch.setattr(lm_text, "BLOCK_CHARACTERS", block)
        (tmp_path / name).mkdir()
        found.append(prepare_text(tmp_path / name, text, TokenizerConfig(kind=kind, **size)))  # type: ignore[arg-type]
    one, other = found
    assert (read_windows(one), read_validation(one)) == (read_windows(other), read_validation(other))
    tokenizer = NewlineTokenizer(one.target_tokenizer)
    assert (NEWLINE_SYMBOL in tokenizer.symbols) == (kind != "characters")
    ids = [*read_windows(one)[0], *(token for row in read_windows(one)[1:-1] for token in row[-4:])]
    assert text.startswith(tokenizer.decode(ids))
    assert "\n" in tokenizer.decode(ids)


def test_some_validation_beginnings_are_stored_as_text(tmp_path: Path) -> None:
    text = some_text(2000)
    data = prepare_text(tmp_path, text)
    assert data.valid[0] == (text[1800:1808], text[1808:1816])
    assert all(beginning + rest in text for beginning, rest in data.valid)


def test_batches_are_windows_without_padding(tmp_path: Path) -> None:
    data = prepare_text(tmp_path, some_text(3000))
    items = list(islice(BatchStream(data, 128, seed=1).batches(), 20))
    assert {tuple(each.batch.labels.shape) for each in items} == {(8, 16)}
    assert all(each.batch.padding == 0 and each.batch.tokens == 128 for each in items)
    numbers = [number for each in items for number in each.batch.numbers]
    assert len(set(numbers)) == len(numbers)
    stored = read_windows(data)
    for each in items:
        for number, labels in zip(each.batch.numbers, each.batch.labels.tolist(), strict=True):
            assert labels == stored[number]
    again = next(BatchStream(data, 128, seed=1).batches(items[6].next_position)).batch
    assert again.numbers == items[7].batch.numbers


def test_validation_batches_cover_the_validation_text(tmp_path: Path) -> None:
    data = prepare_text(tmp_path, some_text(3000))
    assert data.valid_windows is not None
    batches = WindowBatches(data.valid_windows, 4)
    for _ in range(2):
        assert sum(batch.tokens for batch in batches) == 300 - 1
        assert all(len(batch.labels) <= 4 for batch in batches)


def test_given_tokenizers_are_used(tmp_path: Path) -> None:
    words = Words.build([some_text(1000)], symbols=(NEWLINE_SYMBOL,))
    assert prepare_text(tmp_path, some_text(1000), (words, words)).target_tokenizer == words
    with pytest.raises(UsageError, check=has_code("tokenizer_lacks_line_symbol", symbol="<line>")):
        prepare_text(tmp_path, some_text(1000), (Words.build(["a"]), Words.build(["a"])))


@pytest.mark.parametrize(
    ("characters", "settings", "error"),
    [
        (
            34,
            {},
            has_code("training_text_too_short", tokens=30, window=16),
        ),
        (100, {}, has_code("validation_text_too_short", tokens=10, window=16)),
        (0, {}, has_code("file_is_empty")),
    ],
)
def test_too_little_text_is_refused(
    tmp_path: Path, characters: int, settings: dict[str, Any], error: ErrorCheck
) -> None:
    with pytest.raises(DataError, check=error):
        prepare_text(tmp_path, some_text(characters), **settings)
    assert not (tmp_path / "data").exists()


def test_text_without_a_line_break_is_rejected(tmp_path: Path) -> None:
    text = some_text(1000).replace("\n", " ")
    with pytest.raises(DataError, check=has_code("validation_part_without_line_break")):
        prepare_text(tmp_path, text, TokenizerConfig(kind="words"))


def test_a_too_long_line_is_rejected_for_word_tokenizers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lm_text, "BLOCK_CHARACTERS", 100)
    text = "a b c\n" + "abc " * 60 + "\nd\n" * 50
    assert prepare_text(tmp_path, text).pairs
    with pytest.raises(DataError, check=has_code("line_too_long_to_tokenize", line=2)):
        prepare_text(tmp_path, text, TokenizerConfig(kind="words"))


@pytest.mark.parametrize(
    ("tokenizer", "error"),
    [
        ({"kind": "spaced"}, has_code("spaced_tokenizer_loses_whitespace")),
        ({"kind": "bpe", "dropout": 0.1}, has_code("dropout_with_running_text")),
        ({"kind": "bpe", "target_kind": "words"}, has_code("tokenizer_setting_needs_pairs", option="target_kind")),
        ({"kind": "bpe", "joint": True}, has_code("tokenizer_setting_needs_pairs", option="joint")),
    ],
)
def test_unsuitable_tokenizers_are_usage_errors(tmp_path: Path, tokenizer: dict[str, Any], error: ErrorCheck) -> None:
    with pytest.raises(UsageError, check=error):
        prepare_text(tmp_path, some_text(1000), TokenizerConfig(**tokenizer))


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"text": "a", "window": 8, "stride": 9}, has_code("stride_exceeds_window", stride=9, window=8)),
        (
            {"text": "a", "window": 1},
            has_code("setting_invalid", fault=has_code("field_greater_than_equal", name="window", ge=2)),
        ),
        ({"task": "builtin", "window": 8}, has_code("text_setting_without_text", option="window")),
        (
            {"source": "a", "target": "b", "valid_share": 0.2},
            has_code("text_setting_without_text", option="valid_share"),
        ),
        ({"text": "a", "source": "b", "target": "c"}, has_code("multiple_data_sources")),
    ],
)
def test_invalid_window_settings_are_usage_errors(settings: dict[str, Any], error: ErrorCheck) -> None:
    with pytest.raises(UsageError, check=error):
        DataConfig(**settings)


def test_memory_does_not_grow_with_the_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lm_text, "BLOCK_CHARACTERS", 2000)
    monkeypatch.setattr(lm_text, "ShardWriter", partial(ShardWriter, shard_bytes=20_000))
    monkeypatch.setattr(lm_text, "ReservoirSample", partial(ReservoirSample, max_pairs=10))
    peaks = []
    for number, times in enumerate((8, 1, 8)):  # the first run is a warm-up
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "text.txt").write_text(some_text(10_000) * times, "utf-8")
        config = DataConfig(text=folder / "text.txt", window=16, stride=8)
        tracemalloc.start()
        for _ in prepare([], None, config, CHARACTERS, 1, folder / "data"):
            pass
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[2] < 1.5 * peaks[1]


@pytest.mark.parametrize("kind", ["characters", "bytes"])
def test_each_document_ends_with_eos(tmp_path: Path, kind: str) -> None:
    texts = [some_text(200, seed) for seed in range(4)]
    (tmp_path / "more.jsonl").write_text("".join(json.dumps({"body": each}) + "\n" for each in texts[1:]), "utf-8")
    settings = {"text": ["text.txt", "more.jsonl"], "text_field": "body", "stride": 16}
    data = prepare_text(tmp_path, texts[0], TokenizerConfig(kind=kind), **settings)
    ids = [token for row in read_windows(data)[:-1] for token in row]
    ends = [position for position, token in enumerate(ids) if token == EOS]
    assert len(ends) == 3
    assert data.target_tokenizer.decode(ids[: ends[0]]).replace("<line>", "\n") == texts[0]
    assert data.target_tokenizer.decode(ids[ends[0] : ends[1]]).replace("<line>", "\n") == texts[1]
    assert sum(row.count(EOS) for row in read_validation(data)) == 1, "the last document has EOS too"


def test_one_line_documents_can_be_split_for_validation(tmp_path: Path) -> None:
    lines = some_text(4000).split()
    (tmp_path / "d.jsonl").write_text("".join(json.dumps({"text": each}) + "\n" for each in lines), "utf-8")
    data = prepare_text(tmp_path, "", TokenizerConfig(kind="words", size=100), text="d.jsonl", window=4)
    assert data.pairs > 0
    assert read_validation(data)[0][1] == EOS, "validation begins at the start of a document"
