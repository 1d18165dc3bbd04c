"""Shards: reading, writing and detecting damage."""

import random
from pathlib import Path

import numpy as np
import pytest
from error_codes import ErrorCheck, fragment, has_code, message
from hypothesis import given
from hypothesis import strategies as st

from attendo.data import shards as shards_module
from attendo.data.batch import RaggedArray
from attendo.data.shards import CHUNK_BYTES, ShardRecord, ShardSet, ShardWriter
from attendo.errors import DataError

Lists = list[list[int]]
sides = st.lists(st.lists(st.integers(0, 99), max_size=6), min_size=1, max_size=30)


@given(sides, st.integers(1, 300), st.sampled_from([2, 4]), st.data())
def test_written_pairs_are_read_back(
    tmp_path_factory: pytest.TempPathFactory, pairs: Lists, limit: int, width: int, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("shards")
    records = write_shards(folder, pairs, [each[::-1] for each in pairs], width, limit)
    opened = ShardSet(folder, records, (100, 100), verify=True)
    assert len(opened) == len(pairs)
    first = data.draw(st.integers(0, len(pairs)))
    last = data.draw(st.integers(first, len(pairs)))
    source, target = opened.read(first, last)
    assert to_lists(source) == pairs[first:last]
    assert to_lists(target) == [each[::-1] for each in pairs[first:last]]
    number = data.draw(st.integers(0, len(pairs) - 1))
    assert (opened.example(number).source, opened.example(number).target) == (pairs[number], pairs[number][::-1])


def test_shards_are_split_by_size(tmp_path: Path) -> None:
    records = write_shards(tmp_path, [[5] * 100] * 50, [[6]] * 50, 2, limit=2000)
    assert len(records) > 3
    assert all(record.bytes < 2500 for record in records)
    assert sorted(path.name for path in tmp_path.iterdir()) == [record.file for record in records]
    assert [(tmp_path / record.file).stat().st_size for record in records] == [record.bytes for record in records]


@pytest.mark.parametrize(("width", "largest"), [(2, 2**16 - 1), (4, 2**31 - 1)])
def test_the_largest_id_of_each_width_round_trips(tmp_path: Path, width: int, largest: int) -> None:
    records = write_shards(tmp_path, [[largest, 4]], [[largest]], width)
    source, _ = ShardSet(tmp_path, records, (largest + 1, largest + 1)).read(0, 1)
    assert to_lists(source) == [[largest, 4]]
    assert (source.ids.dtype, source.offsets.dtype) == (np.int32, np.int64)


def test_the_size_includes_buffered_pairs(tmp_path: Path) -> None:
    writer = ShardWriter(tmp_path, "train", 2)
    assert writer.size == 0
    writer.add(RaggedArray.from_lists([[5, 6]]), RaggedArray.from_lists([[7]]))
    expected = writer.size
    (record,) = writer.close()
    assert (expected, writer.size) == (record.bytes, record.bytes)


def test_no_pairs_give_no_shard(tmp_path: Path) -> None:
    writer = ShardWriter(tmp_path, "train", 2)
    writer.add(RaggedArray.from_lists([]), RaggedArray.from_lists([]))
    assert writer.close() == ()
    assert len(ShardSet(tmp_path, (), (9, 9))) == 0


def test_a_missing_pair_raises_index_error(tmp_path: Path) -> None:
    opened = ShardSet(tmp_path, write_shards(tmp_path, [[5]], [[5]]), (9, 9))
    with pytest.raises(IndexError):
        opened.read(0, 2)
    with pytest.raises(IndexError):
        opened.example(-1)


def test_R7_verify_finds_every_flipped_bit(tmp_path: Path) -> None:
    (record,) = write_shards(tmp_path, [[5, 6, 7]] * 40, [[8]] * 40)
    path = tmp_path / record.file
    intact = path.read_bytes()
    generator = random.Random(0)
    header = range(8 * 40)
    for bit in (*header, *(generator.randrange(len(intact) * 8) for _ in range(200))):
        damaged = bytearray(intact)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        assert_refused(tmp_path, record, verify=True)


def test_R7_a_shard_of_another_size_is_found_on_open(tmp_path: Path) -> None:
    (record,) = write_shards(tmp_path, [[5, 6, 7]] * 40, [[8]] * 40)
    path = tmp_path / record.file
    intact = path.read_bytes()
    for content in (b"", intact[:20], intact[: len(intact) // 2], intact[:-1], intact + b"\0"):
        path.write_bytes(content)
        assert fragment("shard_size_mismatch") in assert_refused(tmp_path, record)
    path.unlink()
    assert "cannot be read" in assert_refused(tmp_path, record)


def test_opening_checks_a_sample_and_verify_checks_all(tmp_path: Path) -> None:
    (record,) = write_large_shard(tmp_path)
    assert len(record.chunks) >= 5
    path = tmp_path / record.file
    intact = bytearray(path.read_bytes())
    detected = []
    for chunk in range(len(record.chunks)):
        damaged = bytearray(intact)
        damaged[min(chunk * CHUNK_BYTES + 9000, len(intact) - 1)] ^= 1
        path.write_bytes(damaged)
        assert_refused(tmp_path, record, verify=True)
        try:
            ShardSet(tmp_path, [record], (9, 9))
        except DataError:
            detected.append(chunk)
    assert {0, len(record.chunks) - 1} <= set(detected)
    assert len(detected) == shards_module.SAMPLED_CHUNKS


def test_invalid_ids_and_offsets_are_rejected_when_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (record,) = write_shards(tmp_path, [[5, 6, 7]] * 4, [[8]] * 4)
    monkeypatch.setattr(shards_module, "_sample_chunks", lambda chunks: [])  # the damage is outside the sample
    path = tmp_path / record.file
    intact = path.read_bytes()
    assert_unreadable(tmp_path, record, intact, offset=len(intact) - 1, error=has_code("prepared_data_damaged"))
    assert_unreadable(tmp_path, record, intact, offset=40 + 3, error=has_code("prepared_data_damaged"))
    assert_unreadable(tmp_path, record, intact, offset=40 + 4 * 4 + 1, error=has_code("prepared_data_damaged"))


def test_an_invalid_header_is_an_error(tmp_path: Path) -> None:
    (record,) = write_shards(tmp_path, [[5]], [[5]])
    path = tmp_path / record.file
    intact = path.read_bytes()
    path.write_bytes(b"x" + intact[1:])
    assert fragment("not_a_shard") in assert_refused(tmp_path, record)
    path.write_bytes(intact[:8] + b"\7" + intact[9:])
    assert "version 7" in assert_refused(tmp_path, record)
    path.write_bytes(intact)
    for change in ({"pairs": 2}, {"source_tokens": 0}, {"chunks": ()}):
        assert fragment("shard_header_mismatch") in assert_refused(tmp_path, record.replace(**change))


def test_reading_keeps_no_pages_mapped(tmp_path: Path) -> None:
    (record,) = write_large_shard(tmp_path)
    opened = ShardSet(tmp_path, [record], (9, 9))
    assert mapped_bytes(tmp_path) == 0
    opened.read(0, len(opened))
    assert mapped_bytes(tmp_path) == 0


def write_shards(
    folder: Path, sources: Lists, targets: Lists, width: int = 2, limit: int = 1 << 26
) -> list[ShardRecord]:
    writer = ShardWriter(folder, "train", width, limit)
    for source, target in zip(sources, targets, strict=True):
        writer.add(RaggedArray.from_lists([source]), RaggedArray.from_lists([target]))
    return list(writer.close())


def write_large_shard(folder: Path) -> tuple[ShardRecord, ...]:
    """A shard of more than five chunks."""
    many = RaggedArray(np.full(11 << 18, 8, np.int32), np.arange(1001, dtype=np.int64) * ((11 << 18) // 1000))
    writer = ShardWriter(folder, "train", 2)
    writer.add(RaggedArray(many.ids[: many.offsets[-1]], many.offsets), RaggedArray.from_lists([[8]] * 1000))
    return writer.close()


def to_lists(sequences: RaggedArray) -> Lists:
    return [sequences[row] for row in range(len(sequences))]


def assert_refused(folder: Path, record: ShardRecord, verify: bool = False) -> str:
    with pytest.raises(DataError) as caught:
        ShardSet(folder, [record], (100, 100), verify)
    assert str(caught.value).startswith(f"{folder / record.file} is damaged: ")
    assert str(caught.value).endswith(message("prepared_data_damaged", fault=""))
    return str(caught.value)


def assert_unreadable(folder: Path, record: ShardRecord, intact: bytes, offset: int, error: ErrorCheck) -> None:
    damaged = bytearray(intact)
    damaged[offset] = 0xFF
    (folder / record.file).write_bytes(damaged)
    opened = ShardSet(folder, [record], (9, 9))
    with pytest.raises(DataError, check=error):
        opened.read(0, 4)


def mapped_bytes(folder: Path) -> int:
    """Resident bytes of memory-mapped files of this folder."""
    if not Path("/proc/self/smaps").exists():
        pytest.skip("only Linux tells what is mapped")
    inside, total = False, 0
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if "-" in line.split(" ")[0]:
            inside = str(folder) in line
        elif inside and line.startswith("Rss:"):
            total += int(line.split()[1]) * 1024
    return total
