"""Several references of a line: any of them is right, and the nearest counts."""

import pytest
import sacrebleu
from error_codes import has_code

from attendo import __version__
from attendo.errors import UsageError
from attendo.metrics import METRICS, compare, score

OUTPUTS = ["the cat sat on a mat", "a dog ran home", "we saw him"]
FIRST = ["the cat sat on the mat", "one dog went home", "we met him yesterday"]
SECOND = ["a cat was on a mat", "a dog ran home", "we saw this man"]
BOTH = list(zip(FIRST, SECOND, strict=True))


@pytest.mark.parametrize(
    ("name", "corpus_score"),
    [("bleu", sacrebleu.corpus_bleu), ("chrf", sacrebleu.corpus_chrf), ("ter", sacrebleu.corpus_ter)],
)
def test_bleu_chrf_and_ter_are_those_of_sacrebleu(name: str, corpus_score: object) -> None:
    assert callable(corpus_score)
    found = score(name, OUTPUTS, BOTH)
    assert found.value == corpus_score(OUTPUTS, [FIRST, SECOND]).score
    assert found.signature.startswith("nrefs:2|")
    assert found.value != score(name, OUTPUTS, FIRST).value


def test_lines_may_have_different_numbers_of_references() -> None:
    some = [[FIRST[0]], BOTH[1], BOTH[2]]
    streams = [FIRST, [None, *SECOND[1:]]]
    found = score("bleu", OUTPUTS, some)
    assert found.value == sacrebleu.corpus_bleu(OUTPUTS, streams).score  # type: ignore[arg-type]
    assert found.signature.startswith("nrefs:var|")
    assert score("exact_match", OUTPUTS, some).signature == f"exact|nrefs:var|strip|attendo:{__version__}"


def test_an_output_is_right_when_it_is_any_of_them() -> None:
    assert score("exact_match", OUTPUTS, BOTH).value == pytest.approx(100 / 3)
    assert score("exact_match", OUTPUTS, FIRST).value == 0
    assert score("exact_match", OUTPUTS, BOTH).signature == f"exact|nrefs:2|strip|attendo:{__version__}"


def test_the_error_rate_is_what_exact_match_leaves() -> None:
    for references in (FIRST, SECOND, BOTH):
        right, wrong = (score(name, OUTPUTS, references) for name in ("exact_match", "error_rate"))
        assert wrong.value == pytest.approx(100 - right.value)
        assert not wrong.higher_is_better
    assert score("error_rate", OUTPUTS, BOTH).signature == f"error|nrefs:2|strip|attendo:{__version__}"
    assert score("error_rate", [" a "], ["a"]).value == 0


@pytest.mark.parametrize("name", ["rouge1", "rouge2", "rougeL"])
def test_rouge_takes_the_best_reference_of_each_line_as_rouge_score_does(name: str) -> None:
    from rouge_score import rouge_scorer

    scorer = rouge_scorer.RougeScorer([name], use_stemmer=False)
    pairs = zip(OUTPUTS, BOTH, strict=True)
    expected = [scorer.score_multi(references, output)[name].fmeasure for output, references in pairs]
    found = score(name, OUTPUTS, BOTH)
    assert found.value == pytest.approx(100 * sum(expected) / 3)
    assert found.signature.startswith(f"{name}|nrefs:2|f1|")


def test_word_errors_are_counted_against_the_reference_with_the_fewest_for_its_length() -> None:
    """Three errors in five words are less than one in one; the length that counts is that of the same reference."""
    found = score("word_error_rate", ["a b"], [("a", "a b c d e", "")])
    assert found.value == pytest.approx(60)
    assert found.signature == f"wer|nrefs:3|tok:space|attendo:{__version__}"
    assert score("word_error_rate", ["a", ""], [("b", "a"), ("", "b")]).value == 0


@pytest.mark.parametrize("name", METRICS)
def test_one_reference_in_a_list_is_one_reference(name: str) -> None:
    assert score(name, OUTPUTS, [[line] for line in FIRST]) == score(name, OUTPUTS, FIRST)


def test_the_script_is_that_of_all_references() -> None:
    assert "|tok:zh|" in score("bleu", ["我爱你"], [("I", "我爱你们", "我爱他们")]).signature


def test_comparisons_take_several_too() -> None:
    found = compare("rouge1", OUTPUTS, FIRST, BOTH, samples=20)
    assert found.one == score("rouge1", OUTPUTS, BOTH)
    assert found.other.value == 100


def test_a_line_without_a_reference_is_told() -> None:
    with pytest.raises(UsageError, check=has_code("line_without_reference", line=2)):
        score("exact_match", ["a", "b"], [("a",), ()])
    with pytest.raises(UsageError, check=has_code("metric_texts_not_list")):
        score("exact_match", ["a"], "a")
