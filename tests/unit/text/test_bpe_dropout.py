"""BPE-dropout: exact at rate 0, the expected probabilities at other rates, and reproducible by key."""

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
from hypothesis import strategies as st
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
ANY_TEXT = st.lists(st.sampled_from(FRAGMENTS)).map("".join) | st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\r\n")
)


@cache
def mixed() -> SentencePiece:
    return SentencePiece.train(TEXTS, 340, "bpe", SYMBOLS)


@cache
def across_spaces() -> SentencePiece:
    """A model trained without splitting at spaces, whose pieces contain spaces."""
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
    """With three letters, nearly every pair is a piece, so the order of merges matters."""
    letters = np.array(list("aaabbc "))[
        (keyed_random.uniform(keyed_random.make_keys(np.arange(2000, dtype=np.uint64))) * 7).astype(int)
    ]
    return SentencePiece.train(["".join(letters)], 320)


def flat(sentences: list[list[int]]) -> tuple[Any, Any]:
    offsets = np.cumsum([0, *map(len, sentences)])
    return np.array([each for sentence in sentences for each in sentence], np.int32), offsets


def ragged(ids: Any, offsets: Any) -> list[list[int]]:
    return [ids[begin:end].tolist() for begin, end in pairwise(offsets)]


def retokenize(tokenizer: SentencePiece, rate: float, texts: list[str], seed: int = 0) -> list[list[int]]:
    keys = keyed_random.make_keys(seed, np.arange(len(texts), dtype=np.uint64))
    return ragged(*BPEDropout(tokenizer, rate)(*flat(tokenizer.encode_many(texts)), keys, ROUND))


@pytest.mark.parametrize("model", [mixed, across_spaces])
@given(texts=st.lists(ANY_TEXT))
def test_rate_zero_gives_the_pieces_of_encode(model: Any, texts: list[str]) -> None:
    assert retokenize(model(), 0.0, texts) == model().encode_many(texts)


@given(texts=st.lists(st.text("abc ")))
def test_the_order_of_merges_equals_that_of_encode(texts: list[str]) -> None:
    assert retokenize(ambiguous(), 0.0, texts) == ambiguous().encode_many(texts)


def test_pieces_with_spaces_are_merged_again() -> None:
    tokenizer = across_spaces()
    labels = tokenizer.pieces(tokenizer.encode("sat on the mat"))
    assert any(" " in label for label in labels)
    texts = ["sat on the mat", "cat sat", "on", "", "the mat"]
    assert retokenize(tokenizer, 0.0, texts) == [tokenizer.encode(text) for text in texts]


@given(texts=st.lists(ANY_TEXT), rate=st.floats(0, 0.99), seed=st.integers(0, 9))
def test_dropout_keeps_the_text_bytes_and_symbols(texts: list[str], rate: float, seed: int) -> None:
    tokenizer = mixed()
    for text, ids in zip(texts, retokenize(tokenizer, rate, texts, seed), strict=True):
        assert tokenizer.decode(ids) == text
        assert keep_bytes_and_symbols(ids) == keep_bytes_and_symbols(tokenizer.encode(text))


def keep_bytes_and_symbols(ids: list[int]) -> list[int]:
    return [each for each in ids if each < EOS + 1 + len(SYMBOLS) + 256]


@given(texts=st.lists(ANY_TEXT, min_size=1, max_size=4), rate=st.floats(0.05, 0.9), seed=st.integers(0, 99))
def test_dropout_equals_plain_python_word_by_word(texts: list[str], rate: float, seed: int) -> None:
    tokenizer = mixed()
    keys = keyed_random.make_keys(seed, np.arange(len(texts), dtype=np.uint64))
    expected = [
        retokenize_in_plain_python(tokenizer, rate, tokenizer.encode(text), keys[number : number + 1])
        for number, text in enumerate(texts)
    ]
    assert retokenize(tokenizer, rate, texts, seed) == expected


def retokenize_in_plain_python(tokenizer: SentencePiece, rate: float, ids: list[int], key: Any) -> list[int]:
    rows = list(iter_pieces(tokenizer.model))
    numbers = {row.text: number for number, row in enumerate(rows) if row.type == PieceType.NORMAL}
    adjacent = {pair for text in numbers for pair in pairwise(text)}
    result: list[int] = []
    at = 0
    while at < len(ids):
        begin = at
        at += 1
        while (
            at < len(ids)
            and (rows[ids[at - 1]].text[-1], rows[ids[at]].text[0]) in adjacent
            and both_normal(at, ids, rows)
        ):
            at += 1
        word = ids[begin:at]
        if rows[word[0]].type != PieceType.NORMAL:
            result += word
            continue
        variant = keyed_random.make_keys(key, "variant", begin) % np.uint64(bpe_dropout.MAX_VARIANTS)
        hashed = np.array([each + (index << 32) for index, each in enumerate(word)], np.uint64)
        draws = keyed_random.make_keys(
            ROUND, keyed_random.make_keys(keyed_random.make_keys(0, hashed).sum(keepdims=True), variant)
        )
        characters = [each for piece in word for each in rows[piece].text]
        result += [numbers[piece] for piece in merge_characters(characters, numbers, rows, (rate, draws))]
    return result


def both_normal(at: int, ids: list[int], rows: list[SentencePieceEntry]) -> bool:
    return rows[ids[at - 1]].type == rows[ids[at]].type == PieceType.NORMAL


def merge_characters(
    word: list[str], numbers: dict[str, int], rows: list[SentencePieceEntry], rate_and_key: tuple[float, Any]
) -> list[str]:
    rate, key = rate_and_key
    step = 0
    while True:
        possible, position = [], 0
        for at in range(len(word) - 1):
            draw = keyed_random.uniform(keyed_random.make_keys(key, position) + np.uint64(step))[0]
            if word[at] + word[at + 1] in numbers and draw >= rate:
                possible.append((-rows[numbers[word[at] + word[at + 1]]].score, at))
            position += len(word[at])
        if not possible:
            return word
        _, at = min(possible)
        word[at : at + 2] = [word[at] + word[at + 1]]
        step += 1


@cache
def letters() -> SentencePiece:
    """Its merged pieces are eb, ab, cd and ebc. bc is part of ebc, but is not a piece."""
    texts = ["<x>ab"] * 10 + ["<x>cd"] * 8 + ["<x>eb"] * 6 + ["<x>ebc"] * 5
    tokenizer = SentencePiece.train(texts, 4 + 1 + 256 + 6 + 4, "bpe", ["<x>"])
    assert sorted(row.text for row in iter_pieces(tokenizer.model) if row.type == PieceType.NORMAL) == [
        *("a", "ab", "b", "c", "cd", "d", "e", "eb", "ebc", "▁")
    ]
    return tokenizer


@pytest.fixture(params=[200, pytest.param(1_000, marks=pytest.mark.slow)])
def rounds(request: pytest.FixtureRequest) -> int:
    return request.param


def approximate(expected: dict[str, float], rounds: int) -> Any:
    return pytest.approx(expected, abs=0.03 if rounds < 1_000 else 0.015)


def tokenization_shares(text: str, rate: float, rounds: int, count: int = 20) -> dict[str, float]:
    dropout, (ids, offsets) = BPEDropout(letters(), rate), flat(letters().encode_many([f"<x>{text}"] * count))
    counts: Counter[str] = Counter()
    for number in range(rounds):
        round_key, keys = (
            keyed_random.make_keys(number),
            keyed_random.make_keys(number, np.arange(count, dtype=np.uint64)),
        )
        counts.update("|".join(letters().pieces(each[1:])) for each in ragged(*dropout(ids, offsets, keys, round_key)))
    return {pieces: number / counts.total() for pieces, number in counts.items()}


def test_a_single_merge_is_dropped_at_the_rate(rounds: int) -> None:
    assert tokenization_shares("ab", 0.1, rounds) == approximate({"ab": 0.9, "a|b": 0.1}, rounds)
    assert tokenization_shares("ab", 0.7, rounds) == approximate({"ab": 0.3, "a|b": 0.7}, rounds)


def test_a_merge_dropped_in_one_step_may_come_in_the_next(rounds: int) -> None:
    rate, kept = 0.3, 0.7
    both = (kept + rate * kept) * kept  # first ab, or cd if ab is dropped; then the other
    expected = {"ab|cd": both, "ab|c|d": kept * rate, "a|b|cd": rate * kept * rate, "a|b|c|d": rate**2}
    assert tokenization_shares("abcd", rate, rounds) == approximate(expected, rounds)


def test_a_longer_piece_needs_the_shorter_one_first(rounds: int) -> None:
    assert tokenization_shares("ebc", 0.5, rounds) == approximate({"e|b|c": 0.5, "eb|c": 0.25, "ebc": 0.25}, rounds)


def test_merges_of_separate_words_are_dropped_independently(rounds: int) -> None:
    expected = {"ab|ab": 0.25, "a|b|ab": 0.25, "ab|a|b": 0.25, "a|b|a|b": 0.25}
    assert tokenization_shares("abab", 0.5, rounds) == approximate(expected, rounds)


def test_a_sentence_is_tokenized_the_same_alone_and_in_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_equal_keys_give_equal_pieces_and_other_keys_others() -> None:
    texts = ["I love natural language processing"] * 8
    assert retokenize(mixed(), 0.3, texts, seed=1) == retokenize(mixed(), 0.3, texts, seed=1)
    assert retokenize(mixed(), 0.3, texts, seed=1) != retokenize(mixed(), 0.3, texts, seed=2)
    assert len({tuple(ids) for ids in retokenize(mixed(), 0.3, texts)}) > 4


def test_a_frequent_word_has_a_limited_number_of_variants_per_round() -> None:
    texts = ["processing"] * 1000
    ids, offsets = flat(mixed().encode_many(texts))
    keys = keyed_random.make_keys(np.arange(len(texts), dtype=np.uint64))
    rounds = [
        {tuple(each) for each in ragged(*BPEDropout(mixed(), 0.5)(ids, offsets, keys, keyed_random.make_keys(number)))}
        for number in range(20)
    ]
    assert all(4 < len(variants) <= bpe_dropout.MAX_VARIANTS for variants in rounds)
    assert len(set().union(*rounds)) > bpe_dropout.MAX_VARIANTS


def test_hash_collisions_do_not_change_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a 4-bit hash, most words share their hash with other words."""

    def short_hash(numbers: Any, starts: Any) -> Any:
        return sums(numbers, starts) % np.uint64(16)

    sums = bpe_dropout._sum_runs
    tokenizer, texts = mixed(), ["the cat", "natural language", "on mat", "love"]
    monkeypatch.setattr(bpe_dropout, "_sum_runs", short_hash)
    for text, ids in zip(texts, retokenize(tokenizer, 0.3, texts), strict=True):
        assert tokenizer.decode(ids) == text


def test_empty_input_gives_empty_output() -> None:
    no_keys = np.zeros(0, np.uint64)
    ids, offsets = BPEDropout(mixed(), 0.1)(np.zeros(0, np.int32), np.zeros(1, np.int64), no_keys, ROUND)
    assert (ids.tolist(), offsets.tolist(), ids.dtype, offsets.dtype) == ([], [0], np.int32, np.int64)
    assert retokenize(mixed(), 0.1, ["", ""]) == [[], []]


def test_the_input_arrays_are_not_changed() -> None:
    ids, offsets = flat(mixed().encode_many(TEXTS))
    before = ids.copy()
    BPEDropout(mixed(), 0.5)(ids, offsets, keyed_random.make_keys(np.arange(len(TEXTS), dtype=np.uint64)), ROUND)
    assert np.array_equal(ids, before)


def test_only_a_bpe_model_has_merges() -> None:
    with pytest.raises(UsageError, check=has_code("dropout_without_merges", kind="unigram")):
        BPEDropout(SentencePiece.train(TEXTS, 300, "unigram"), 0.1)


@pytest.mark.parametrize("rate", [-0.1, 1.0, float("nan")])
def test_a_rate_out_of_range_is_rejected(rate: float) -> None:
    with pytest.raises(UsageError, check=has_code("dropout_out_of_range", rate=rate)):
        BPEDropout(mixed(), rate)


def test_a_sentence_without_a_key_is_rejected() -> None:
    with pytest.raises(UsageError, check=has_code("dropout_key_count_mismatch", keys=1, sentences=2)):
        BPEDropout(mixed(), 0.1)(*flat([[7], [8]]), keyed_random.make_keys(1), ROUND)


def test_a_piece_with_an_unknown_character_is_not_split() -> None:
    rows = [SentencePieceEntry(text, -number, PieceType.NORMAL) for number, text in enumerate(["ab", "a", "aab", "aa"])]
    table = MergeTable.from_pieces(rows)
    ids, edges = table.split_into_characters(np.array([3, 0, 2], np.int32), np.array([0, 1, 3]))
    assert (ids.tolist(), edges.tolist()) == ([1, 1, 0, 2], [0, 2, 4])
    assert table.merge(np.array([1, 1], np.int32), np.array([1, 0], np.int32)).tolist() == [3, -1]


def test_unused_pieces_are_rejected() -> None:
    with pytest.raises(UsageError, check=has_code("dropout_with_unused_piece", piece="ab")):
        MergeTable.from_pieces([SentencePieceEntry("ab", 0.0, PieceType.UNUSED)])


def test_a_corpus_is_exact_at_rate_zero_and_longer_at_higher_rates(shared: Path) -> None:
    lines = gzip.decompress((shared / "data/multi30k/test_2016_flickr.de.gz").read_bytes()).decode().split("\n")[:-1]
    tokenizer = SentencePiece.train(lines, 2000)
    sizes = [sum(map(len, retokenize(tokenizer, rate, lines))) for rate in (0.0, 0.1, 0.2)]
    assert retokenize(tokenizer, 0.0, lines) == tokenizer.encode_many(lines)
    assert 1.05 < sizes[1] / sizes[0] < 1.4
    assert sizes[2] > sizes[1]
