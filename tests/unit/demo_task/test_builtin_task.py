"""The built-in task maps English to Chinese. Its test pairs have combinations that training lacks."""

from collections import Counter
from itertools import islice
from random import Random

import pytest
from error_codes import has_code

from attendo.demo_task import STUDY_SENTENCES, AlignedPair, BuiltinTask
from attendo.demo_task.task import PATTERNS
from attendo.errors import UsageError
from attendo.text import Words


@pytest.fixture(scope="module")
def training() -> list[AlignedPair]:
    return list(islice(BuiltinTask().train(), 8_000))


@pytest.fixture(scope="module")
def heldout() -> list[AlignedPair]:
    return BuiltinTask().heldout(1000)


@pytest.mark.slow
def test_every_source_has_one_target_and_one_alignment(training: list[AlignedPair], heldout: list[AlignedPair]) -> None:
    known: dict[str, AlignedPair] = {}
    for pair in training + heldout:
        first = known.setdefault(pair.source, pair)
        assert (first.target, first.alignment) == (pair.target, pair.alignment)


@pytest.mark.slow
def test_a_sentence_always_has_the_same_combinations() -> None:
    known: dict[tuple[str, ...], frozenset[str]] = {}
    rng = Random(3)
    for _ in range(300):
        for variants in PATTERNS.values():
            sentence = rng.choice(variants)(rng)
            combinations = frozenset(sentence.combinations)
            assert known.setdefault(sentence.english, combinations) == combinations


@pytest.mark.slow
def test_no_held_out_source_occurs_in_training(training: list[AlignedPair], heldout: list[AlignedPair]) -> None:
    assert len({pair.source for pair in heldout}) == 1000
    assert {pair.source for pair in training}.isdisjoint(pair.source for pair in heldout)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, *(pytest.param(each, marks=pytest.mark.slow) for each in (2, 3))])
def test_every_test_word_occurs_in_training(seed: int) -> None:
    task = BuiltinTask(seed)
    missing = {word for pair in task.heldout(1000) for word in (*pair.source_words, *pair.target_words)}
    for pair in islice(task.train(), 20_000):
        missing.difference_update(pair.source_words, pair.target_words)
        if not missing:
            break
    assert not missing


def test_a_held_out_combination_never_occurs_in_training(training: list[AlignedPair]) -> None:
    sources = {pair.source for pair in training}
    assert any(source.endswith(" natural language processing") for source in sources)
    assert not any(source.split()[1:] == ["loves", "natural", "language", "processing"] for source in sources)


def test_text_and_words_agree(training: list[AlignedPair]) -> None:
    for pair in training[:3000]:
        assert pair.target == " ".join(pair.target_words)
        assert pair.source.replace("?", " ?").replace(",", " ,").split(" ") == list(pair.source_words)
        assert pair.source[0].isupper()
        assert pair.source.endswith("?") == (pair.target_words[-1] == "？")
        assert "." not in pair.source
        assert "。" not in pair.target


def test_alignments_are_sorted_and_stay_inside_the_sentence(training: list[AlignedPair]) -> None:
    for pair in training[:3000]:
        assert list(pair.alignment) == sorted(set(pair.alignment))
        assert all(i < len(pair.source_words) and j < len(pair.target_words) for i, j in pair.alignment)


def test_only_particles_stay_without_a_link(training: list[AlignedPair]) -> None:
    loose = {
        word
        for pair in training
        for position, word in enumerate(pair.target_words)
        if position not in {target for _, target in pair.alignment}
    }
    assert loose == {"的", "了", "吗", "把", "，"}


def test_numbers_and_demonstratives_have_a_measure_word(training: list[AlignedPair]) -> None:
    targets = {word for pair in training for word in pair.target_words}
    assert {"这只", "那本", "这辆", "哪本", "只", "本", "辆", "匹", "棵"} <= targets
    assert targets.isdisjoint({"二", "这", "那", "哪"})


def test_more_than_three_hundred_words_are_reachable_in_each_language(training: list[AlignedPair]) -> None:
    assert len({word for pair in training for word in pair.source_words}) >= 300
    assert len({word for pair in training for word in pair.target_words}) >= 300


def test_no_pattern_is_rare(training: list[AlignedPair]) -> None:
    counts = Counter(pair.pattern for pair in training)
    assert set(counts) == set(PATTERNS)
    assert len(counts) >= 20
    assert min(counts.values()) > 0.017 * len(training)


def test_sentences_are_short(training: list[AlignedPair]) -> None:
    lengths = [len(pair.source_words) for pair in training]
    assert max(lengths) <= 16
    assert sum(length <= 12 for length in lengths) > 0.95 * len(lengths)


def test_the_same_seed_gives_the_same_pairs_and_another_seed_others() -> None:
    task = BuiltinTask(5)
    first = list(islice(task.train(), 50))
    assert first == list(islice(task.train(), 50)) == list(islice(BuiltinTask(5).train(), 50))
    assert first != list(islice(BuiltinTask(6).train(), 50))
    assert task.heldout(50) == BuiltinTask(5).heldout(50) != BuiltinTask(6).heldout(50)


def test_study_sentences_are_exact_and_not_in_training(training: list[AlignedPair]) -> None:
    assert [(pair.source, pair.target) for pair in STUDY_SENTENCES] == [
        ("I love natural language processing", "我 爱 自然 语言 处理"),
        ("The cat sat", "这只 猫 坐下 了"),
        ("I am a student", "我 是 一 个 学生"),
        ("I love you", "我 爱 你"),
        ("You love me", "你 爱 我"),
        ("I love NLP", "我 爱 NLP"),
        ("Hello world", "你好 世界"),
    ]
    assert {pair.source for pair in training}.isdisjoint(pair.source for pair in STUDY_SENTENCES)
    assert BuiltinTask().heldout(7) == list(STUDY_SENTENCES)


def test_the_grammar_generates_every_study_sentence() -> None:
    rng = Random(1)
    for pair in STUDY_SENTENCES:
        words = (pair.source_words[0].lower(), *pair.source_words[1:])
        samples = (rng.choice(PATTERNS[pair.pattern])(rng) for _ in range(20_000))
        sentence = next(
            one for one in samples if (one.english[0].lower(), *one.english[1:]) == (words[0].lower(), *words[1:])
        )
        assert (sentence.chinese, sentence.links) == (pair.target_words, pair.alignment)


def test_a_negative_number_of_pairs_is_rejected() -> None:
    with pytest.raises(UsageError, check=has_code("heldout_count_negative", count=-1)):
        BuiltinTask().heldout(-1)


def test_chinese_typed_without_spaces_is_read_as_the_same_words(
    training: list[AlignedPair], heldout: list[AlignedPair]
) -> None:
    words = Words.build(pair.target for pair in training)
    shown = [*training[:1000], *heldout]
    assert [words.encode(pair.target.replace(" ", "")) for pair in shown] == [
        words.encode(pair.target) for pair in shown
    ]
