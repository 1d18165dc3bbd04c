"""BPE-dropout: exact without refusals, the stated chances with them, and the same for the same key."""

import gzip
import io
from collections import Counter
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from error_codes import has_code
from hypothesis import given
from hypothesis import strategies as some
from sentencepiece import SentencePieceTrainer

from attendo import keyed_random
from attendo.errors import UsageError
from attendo.text import EOS, SentencePiece, bpe_dropout
from attendo.text.bpe_dropout import BPEDropout, MergeTable
from attendo.text.sentencepiece import PieceType, SentencePieceEntry, iter_pieces

ROUND = keyed_random.make_keys("round", 1)
SYMBOLS = ("<2de>", "ca")
TEXTS = [
    "the cat sat on the mat",
    "I love natural language processing",
    "你喜欢猫吗？我也喜欢猫",
    "aaaa aaa  aa  (a)",
] * 3
FRAGMENTS = [
    *(
        "the",
        "cat",
        "nat",
        "language",
        "a",
        "aa",
        "aaa",
        " ",
        "  ",
        "   ",
        "▁",
        "你喜欢",
        "猫",
        "吗？",
        "自然",
        "é",
        "👩",
    ),
    *("<2de>", "</s>", "<0x0A>", "\t", "\x00", "\u3000", "(a)", "I love"),
]
ANY_TEXT = some.lists(some.sampled_from(FRAGMENTS)).map("".join) | some.text(
    some.characters(exclude_categories=["Cs"], exclude_characters="\r\n")
)


@cache
def mixed() -> SentencePiece:
    return SentencePiece.train(TEXTS, 340, "bpe", SYMBOLS)


@cache
def across_spaces() -> SentencePiece:
    """A model of other making, whose pieces run over spaces."""
    model = io.BytesIO()
    SentencePieceTrainer.train(
        sentence_iterator=iter(TEXTS),
        model_writer=model,
        model_type="bpe",
        vocab_size=340,
        pad_id=0,
        unk_id=1,
        bos_id=2,
        eos_id=3,
        byte_fallback=True,
        hard_vocab_limit=False,
        split_by_whitespace=False,
        remove_extra_whitespaces=False,
        normalization_rule_name="identity",
        minloglevel=5,
    )
    return SentencePiece(model.getvalue())


@cache
def ambiguous() -> SentencePiece:
    """Of three letters nearly every two make a piece: which merge comes first decides."""
    letters = np.array(list("aaabbc "))[
        (keyed_random.uniform(keyed_random.make_keys(np.arange(2000, dtype=np.uint64))) * 7).astype(int)
    ]
    return SentencePiece.train(["".join(letters)], 320)


def flat(sentences: list[list[int]]) -> tuple[Any, Any]:
    offsets = np.cumsum([0, *map(len, sentences)])
    return np.array([each for sentence in sentences for each in sentence], np.int32), offsets


def ragged(ids: Any, offsets: Any) -> list[list[int]]:
    return [ids[begin:end].tolist() for begin, end in pairwise(offsets)]


def recut(tokenizer: SentencePiece, rate: float, texts: list[str], seed: int = 0) -> list[list[int]]:
    keys = keyed_random.make_keys(seed, np.arange(len(texts), dtype=np.uint64))
    return ragged(*BPEDropout(tokenizer, rate)(*flat(tokenizer.encode_many(texts)), keys, ROUND))


@pytest.mark.parametrize("model", [mixed, across_spaces])
@given(texts=some.lists(ANY_TEXT))
def test_without_refusals_the_pieces_are_those_of_encode(model: Any, texts: list[str]) -> None:
    assert recut(model(), 0.0, texts) == model().encode_many(texts)


@given(texts=some.lists(some.text("abc ")))
def test_the_order_of_merges_is_that_of_encode(texts: list[str]) -> None:
    assert recut(ambiguous(), 0.0, texts) == ambiguous().encode_many(texts)


def test_pieces_that_run_over_spaces_are_merged_again() -> None:
    tokenizer = across_spaces()
    labels = tokenizer.pieces(tokenizer.encode("sat on the mat"))
    assert any(" " in label for label in labels)
    texts = ["sat on the mat", "cat sat", "on", "", "the mat"]
    assert recut(tokenizer, 0.0, texts) == [tokenizer.encode(text) for text in texts]


@given(texts=some.lists(ANY_TEXT), rate=some.floats(0, 0.99), seed=some.integers(0, 9))
def test_the_text_stays_and_so_do_bytes_and_symbols(texts: list[str], rate: float, seed: int) -> None:
    tokenizer = mixed()
    for text, ids in zip(texts, recut(tokenizer, rate, texts, seed), strict=True):
        assert tokenizer.decode(ids) == text
        assert untouched(ids) == untouched(tokenizer.encode(text))


def untouched(ids: list[int]) -> list[int]:
    return [each for each in ids if each < EOS + 1 + len(SYMBOLS) + 256]


@given(texts=some.lists(ANY_TEXT, min_size=1, max_size=4), rate=some.floats(0.05, 0.9), seed=some.integers(0, 99))
def test_one_word_at_a_time_in_plain_python_gives_the_same(texts: list[str], rate: float, seed: int) -> None:
    tokenizer = mixed()
    keys = keyed_random.make_keys(seed, np.arange(len(texts), dtype=np.uint64))
    expected = [
        plainly(tokenizer, rate, tokenizer.encode(text), keys[number : number + 1]) for number, text in enumerate(texts)
    ]
    assert recut(tokenizer, rate, texts, seed) == expected


def plainly(tokenizer: SentencePiece, rate: float, ids: list[int], key: Any) -> list[int]:
    rows = list(iter_pieces(tokenizer.model))
    numbers = {row.text: number for number, row in enumerate(rows) if row.type == PieceType.NORMAL}
    beside = {pair for text in numbers for pair in pairwise(text)}
    result: list[int] = []
    at = 0
    while at < len(ids):
        begin = at
        at += 1
        while (
            at < len(ids)
            and (rows[ids[at - 1]].text[-1], rows[ids[at]].text[0]) in beside
            and both_normal(at, ids, rows)
        ):
            at += 1
        word = ids[begin:at]
        if rows[word[0]].type != PieceType.NORMAL:
            result += word
            continue
        variant = keyed_random.make_keys(key, "variant", begin) % np.uint64(bpe_dropout.MAX_VARIANTS)
        placed = np.array([each + (place << 32) for place, each in enumerate(word)], np.uint64)
        draws = keyed_random.make_keys(
            ROUND, keyed_random.make_keys(keyed_random.make_keys(0, placed).sum(keepdims=True), variant)
        )
        characters = [each for piece in word for each in rows[piece].text]
        result += [numbers[piece] for piece in merged(characters, numbers, rows, (rate, draws))]
    return result


def both_normal(at: int, ids: list[int], rows: list[SentencePieceEntry]) -> bool:
    return rows[ids[at - 1]].type == rows[ids[at]].type == PieceType.NORMAL


def merged(
    word: list[str], numbers: dict[str, int], rows: list[SentencePieceEntry], chance: tuple[float, Any]
) -> list[str]:
    rate, key = chance
    step = 0
    while True:
        possible, place = [], 0
        for at in range(len(word) - 1):
            draw = keyed_random.uniform(keyed_random.make_keys(key, place) + np.uint64(step))[0]
            if word[at] + word[at + 1] in numbers and draw >= rate:
                possible.append((-rows[numbers[word[at] + word[at + 1]]].score, at))
            place += len(word[at])
        if not possible:
            return word
        _, at = min(possible)
        word[at : at + 2] = [word[at] + word[at + 1]]
        step += 1


@cache
def letters() -> SentencePiece:
    """Its pieces of letters are eb, ab, cd and ebc; b and c stand side by side in ebc, but are no piece."""
    texts = ["<x>ab"] * 10 + ["<x>cd"] * 8 + ["<x>eb"] * 6 + ["<x>ebc"] * 5
    tokenizer = SentencePiece.train(texts, 4 + 1 + 256 + 6 + 4, "bpe", ["<x>"])
    assert sorted(row.text for row in iter_pieces(tokenizer.model) if row.type == PieceType.NORMAL) == [
        *("a", "ab", "b", "c", "cd", "d", "e", "eb", "ebc", "▁")
    ]
    return tokenizer


@pytest.fixture(params=[200, pytest.param(1_000, marks=pytest.mark.slow)])
def rounds(request: pytest.FixtureRequest) -> int:
    return request.param


def near(expected: dict[str, float], rounds: int) -> Any:
    return pytest.approx(expected, abs=0.03 if rounds < 1_000 else 0.015)


def shares(text: str, rate: float, rounds: int, count: int = 20) -> dict[str, float]:
    dropout, (ids, offsets) = BPEDropout(letters(), rate), flat(letters().encode_many([f"<x>{text}"] * count))
    cut: Counter[str] = Counter()
    for number in range(rounds):
        of_round, keys = (
            keyed_random.make_keys(number),
            keyed_random.make_keys(number, np.arange(count, dtype=np.uint64)),
        )
        cut.update("|".join(letters().pieces(each[1:])) for each in ragged(*dropout(ids, offsets, keys, of_round)))
    return {way: number / cut.total() for way, number in cut.items()}


def test_the_only_merge_of_a_word_is_refused_at_the_rate(rounds: int) -> None:
    assert shares("ab", 0.1, rounds) == near({"ab": 0.9, "a|b": 0.1}, rounds)
    assert shares("ab", 0.7, rounds) == near({"ab": 0.3, "a|b": 0.7}, rounds)


def test_a_merge_refused_in_one_step_may_come_in_the_next(rounds: int) -> None:
    rate, done = 0.3, 0.7
    both = (done + rate * done) * done  # first ab, or cd where ab is refused; then the other
    expected = {"ab|cd": both, "ab|c|d": done * rate, "a|b|cd": rate * done * rate, "a|b|c|d": rate**2}
    assert shares("abcd", rate, rounds) == near(expected, rounds)


def test_a_longer_piece_needs_the_shorter_one_first(rounds: int) -> None:
    assert shares("ebc", 0.5, rounds) == near({"e|b|c": 0.5, "eb|c": 0.25, "ebc": 0.25}, rounds)


def test_words_that_cannot_meet_are_refused_independently(rounds: int) -> None:
    expected = {"ab|ab": 0.25, "a|b|ab": 0.25, "ab|a|b": 0.25, "a|b|a|b": 0.25}
    assert shares("abab", 0.5, rounds) == near(expected, rounds)


def test_a_sentence_is_cut_alike_alone_and_among_others(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [*TEXTS, "", "the", "", *TEXTS]
    keys = keyed_random.make_keys(3, np.arange(len(texts), dtype=np.uint64))
    dropout = BPEDropout(mixed(), 0.4)
    ids, offsets = flat(mixed().encode_many(texts))
    together = ragged(*dropout(ids, offsets, keys, ROUND))
    alone = [
        ragged(*dropout(ids, offsets[each : each + 2], keys[each : each + 1], ROUND))[0] for each in range(len(texts))
    ]
    assert together == alone
    monkeypatch.setattr(bpe_dropout, "_MAX_BATCH_PIECES", 20)
    assert ragged(*dropout(ids, offsets, keys, ROUND)) == together


def test_the_same_key_cuts_alike_and_another_differently() -> None:
    texts = ["I love natural language processing"] * 8
    assert recut(mixed(), 0.3, texts, seed=1) == recut(mixed(), 0.3, texts, seed=1)
    assert recut(mixed(), 0.3, texts, seed=1) != recut(mixed(), 0.3, texts, seed=2)
    assert len({tuple(ids) for ids in recut(mixed(), 0.3, texts)}) > 4


def test_a_word_that_is_met_often_is_cut_in_a_few_ways_a_round_and_in_others_in_the_next() -> None:
    texts = ["processing"] * 1000
    ids, offsets = flat(mixed().encode_many(texts))
    keys = keyed_random.make_keys(np.arange(len(texts), dtype=np.uint64))
    rounds = [
        {tuple(each) for each in ragged(*BPEDropout(mixed(), 0.5)(ids, offsets, keys, keyed_random.make_keys(number)))}
        for number in range(20)
    ]
    assert all(4 < len(ways) <= bpe_dropout.MAX_VARIANTS for ways in rounds)
    assert len(set().union(*rounds)) > bpe_dropout.MAX_VARIANTS


def test_no_word_becomes_another_that_happens_to_have_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """With four bits for a number most words share theirs with others."""

    def few(numbers: Any, starts: Any) -> Any:
        return sums(numbers, starts) % np.uint64(16)

    sums = bpe_dropout._sum_runs
    tokenizer, texts = mixed(), ["the cat", "natural language", "on mat", "love"]
    monkeypatch.setattr(bpe_dropout, "_sum_runs", few)
    for text, ids in zip(texts, recut(tokenizer, 0.3, texts), strict=True):
        assert tokenizer.decode(ids) == text


def test_nothing_in_is_nothing_out() -> None:
    no_keys = np.zeros(0, np.uint64)
    ids, offsets = BPEDropout(mixed(), 0.1)(np.zeros(0, np.int32), np.zeros(1, np.int64), no_keys, ROUND)
    assert (ids.tolist(), offsets.tolist(), ids.dtype, offsets.dtype) == ([], [0], np.int32, np.int64)
    assert recut(mixed(), 0.1, ["", ""]) == [[], []]


def test_the_arrays_handed_in_are_left_alone() -> None:
    ids, offsets = flat(mixed().encode_many(TEXTS))
    before = ids.copy()
    BPEDropout(mixed(), 0.5)(ids, offsets, keyed_random.make_keys(np.arange(len(TEXTS), dtype=np.uint64)), ROUND)
    assert np.array_equal(ids, before)


def test_only_a_bpe_model_has_merges() -> None:
    with pytest.raises(UsageError, check=has_code("dropout_without_merges", kind="unigram")):
        BPEDropout(SentencePiece.train(TEXTS, 300, "unigram"), 0.1)


@pytest.mark.parametrize("rate", [-0.1, 1.0, float("nan")])
def test_a_rate_that_cannot_be_is_named(rate: float) -> None:
    with pytest.raises(UsageError, check=has_code("dropout_out_of_range", rate=rate)):
        BPEDropout(mixed(), rate)


def test_a_sentence_without_a_key_is_named() -> None:
    with pytest.raises(UsageError, check=has_code("dropout_key_count_mismatch", keys=1, sentences=2)):
        BPEDropout(mixed(), 0.1)(*flat([[7], [8]]), keyed_random.make_keys(1), ROUND)


def test_a_piece_with_a_character_that_is_no_piece_stays_whole() -> None:
    rows = [SentencePieceEntry(text, -number, PieceType.NORMAL) for number, text in enumerate(["ab", "a", "aab", "aa"])]
    table = MergeTable.from_pieces(rows)
    ids, edges = table.split_into_characters(np.array([3, 0, 2], np.int32), np.array([0, 1, 3]))
    assert (ids.tolist(), edges.tolist()) == ([1, 1, 0, 2], [0, 2, 4])
    assert table.merge(np.array([1, 1], np.int32), np.array([1, 0], np.int32)).tolist() == [3, -1]


def test_unused_pieces_are_refused() -> None:
    with pytest.raises(UsageError, check=has_code("dropout_with_unused_piece", piece="ab")):
        MergeTable.from_pieces([SentencePieceEntry("ab", 0.0, PieceType.UNUSED)])


def test_a_corpus_is_cut_exactly_without_refusals_and_longer_with_them(shared: Path) -> None:
    lines = gzip.decompress((shared / "data/multi30k/test_2016_flickr.de.gz").read_bytes()).decode().split("\n")[:-1]
    tokenizer = SentencePiece.train(lines, 2000)
    sizes = [sum(map(len, recut(tokenizer, rate, lines))) for rate in (0.0, 0.1, 0.2)]
    assert recut(tokenizer, 0.0, lines) == tokenizer.encode_many(lines)
    assert 1.05 < sizes[1] / sizes[0] < 1.4
    assert sizes[2] > sizes[1]
