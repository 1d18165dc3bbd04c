"""Noise in the decoder's input: which tokens are replaced, by what, and what it depends on."""

from collections import Counter
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch
from prepared_data import ListCorpus, prepare_all, sentences

from attendo import keyed_random
from attendo.data import sampler
from attendo.data.batch import Batch, RaggedArray, collate_sequences, collate_windows
from attendo.data.input_noise import InputNoise
from attendo.data.prepared import PreparedData
from attendo.data.sampler import BatchStream, Position
from attendo.text import BOS, EOS, PAD

RATE = 0.3


def make_noise(target: RaggedArray, rate: float = RATE, unigrams: list[int] | None = None) -> InputNoise:
    keys = keyed_random.make_keys(1, np.arange(len(target), dtype=np.uint64))
    return InputNoise(rate, keys, target.ids if unigrams is None else np.array(unigrams, np.int32))


def apply_noise(target: RaggedArray, rate: float = RATE, unigrams: list[int] | None = None) -> RaggedArray:
    return make_noise(target, rate, unigrams).apply(target, np.arange(len(target)))


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PreparedData:
    """Data with several buffers per epoch."""
    monkeypatch.setattr(sampler, "BLOCK_PAIRS", 4)
    monkeypatch.setattr(sampler, "BUFFER_PAIRS", 64)
    return prepare_all(tmp_path / "data", ListCorpus(sentences(150)))


def read_inputs(stream: BatchStream, epoch: int, workers: int = 0) -> dict[int, list[int]]:
    """Return the decoder's input of each pair in one epoch, without padding."""
    found: dict[int, list[int]] = {}
    batches = stream.batches(Position(epoch), workers)
    for item in batches:
        lengths = (item.batch.labels != PAD).sum(-1).tolist()
        rows = zip(item.batch.numbers, item.batch.target_ids.tolist(), lengths, strict=True)
        found |= {number: row[:length] for number, row, length in rows}
        if item.next_position.epoch > epoch:
            break
    batches.close()
    return found


def test_half_of_the_replaced_tokens_are_copies_of_a_neighbour() -> None:
    """Every token of the targets is different, and none is among the unigrams."""
    target = RaggedArray.from_lists([list(range(100 * row, 100 * row + 20)) for row in range(1, 500)])
    noisy, counts = apply_noise(target, unigrams=[7, 8, 8, 8]), Counter[str]()
    for row in range(len(target)):
        for place, (before, after) in enumerate(zip(target[row], noisy[row], strict=True)):
            kind = {before: "same", before - 1: "left", before + 1: "right", 7: "seven", 8: "eight"}[after]
            counts[kind] += 1
            assert (kind, place) not in {("left", 0), ("right", 19)}
    share = {kind: count / counts.total() for kind, count in counts.items()}
    assert share["same"] == pytest.approx(1 - RATE, abs=0.02)
    assert share["left"] == pytest.approx(RATE / 4, abs=0.01)
    assert share["right"] == pytest.approx(RATE / 4, abs=0.01)
    assert share["seven"] == pytest.approx(RATE / 8, abs=0.01)
    assert share["eight"] == pytest.approx(3 * RATE / 8, abs=0.015)


def test_a_target_of_one_token_has_no_neighbour() -> None:
    target = RaggedArray.from_lists([[5]] * 400 + [[]])
    noisy = apply_noise(target, unigrams=[9])
    assert noisy.offsets.tolist() == target.offsets.tolist()
    assert {*noisy.ids.tolist()} == {5, 9}
    assert (noisy.ids == 9).mean() == pytest.approx(RATE, abs=0.07)


def test_labels_sources_bos_and_padding_stay() -> None:
    source, target = RaggedArray.from_lists([[4], [5, 6]]), RaggedArray.from_lists([[7, 8, 9], [10]])
    plain = collate_sequences(source, target)
    noisy = collate_sequences(source, target, inputs=RaggedArray.from_lists([[20, 21, 22], [23]]))
    assert noisy.target_ids.tolist() == [[BOS, 20, 21, 22], [BOS, 23, PAD, PAD]]
    assert noisy.labels.tolist() == plain.labels.tolist() == [[7, 8, 9, EOS], [10, EOS, PAD, PAD]]
    assert torch.equal(noisy.source_ids, plain.source_ids)
    assert (noisy.tokens, noisy.source_tokens) == (plain.tokens, plain.source_tokens)


def test_windows_of_running_text_have_noise_too() -> None:
    windows = RaggedArray.from_lists([[7, 8, 9], [10, 11]])
    batch = collate_windows(windows, inputs=RaggedArray.from_lists([[20, 21, 22], [23, 24]]))
    assert batch.target_ids.tolist() == [[BOS, 20, 21], [BOS, 23, PAD]]
    assert batch.labels.tolist() == [[7, 8, 9], [10, 11, PAD]]


def test_noise_depends_on_seed_epoch_and_pair_alone(data: PreparedData) -> None:
    first = read_inputs(BatchStream(data, 60, 1, input_noise=RATE), 0)
    assert len(first) == data.pairs
    assert read_inputs(BatchStream(data, 60, 1, input_noise=RATE), 0, workers=3) == first
    assert read_inputs(BatchStream(data, 200, 1, input_noise=RATE), 0) == first
    plain = read_inputs(BatchStream(data, 60, 1), 0)
    places = find_changes(first, plain)
    for other in (
        read_inputs(BatchStream(data, 60, 1, input_noise=RATE), 1),
        read_inputs(BatchStream(data, 60, 2, input_noise=RATE), 0),
    ):
        assert len(places & find_changes(other, plain)) < 0.6 * len(places)


def test_a_resumed_stream_has_the_same_noise(data: PreparedData) -> None:
    stream = BatchStream(data, 60, 1, input_noise=RATE)
    items = list(islice(stream.batches(), 12))
    again = list(islice(BatchStream(data, 60, 1, input_noise=RATE).batches(items[4].next_position), 7))
    assert all(is_equal(one.batch, other.batch) for one, other in zip(items[5:], again, strict=True))


def test_every_process_reads_its_rows_of_the_same_noise(data: PreparedData) -> None:
    batch = next(BatchStream(data, 60, 1, input_noise=RATE).batches()).batch
    parts = [batch.shard(rank, 2) for rank in range(2)]
    assert torch.equal(
        torch.cat([part.target_ids for part in parts]), torch.cat([batch.target_ids[r::2] for r in (0, 1)])
    )


def test_copies_of_a_pair_have_different_noise(tmp_path: Path) -> None:
    """A corpus of weight 2 has every pair twice in an epoch."""
    prepared = prepare_all(tmp_path / "twice", ListCorpus(sentences(40), weight=2.0))
    found: dict[int, list[list[int]]] = {}
    for item in BatchStream(prepared, 100, 1, input_noise=0.5).batches():
        for number, row in zip(item.batch.numbers, item.batch.target_ids.tolist(), strict=True):
            found.setdefault(number, []).append([each for each in row if each != PAD])
        if item.next_position.epoch:
            break
    assert {len(rows) for rows in found.values()} == {2}
    assert any(one != other for one, other in found.values())


def find_changes(inputs: dict[int, list[int]], plain: dict[int, list[int]]) -> set[tuple[int, int]]:
    """Return pair and position of every token that was replaced by another one."""
    return {
        (number, place)
        for number, row in plain.items()
        for place, token in enumerate(row)
        if inputs[number][place] != token
    }


def is_equal(one: Batch, other: Batch) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one.tensors().values(), other.tensors().values(), strict=True))


def test_the_ends_of_documents_stay_and_no_other_appears() -> None:
    target = RaggedArray.from_lists([[5, EOS, 6, 7, EOS, EOS, 8] for _ in range(200)])
    noisy = apply_noise(target, rate=0.9)
    assert [[token == EOS for token in row] for row in noisy] == [[token == EOS for token in row] for row in target]
    assert any(
        after != before
        for one, other in zip(noisy, target, strict=True)
        for after, before in zip(one, other, strict=True)
    )
