"""Several references per line: any of them is right, and the best one counts."""

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
def test_bleu_chrf_and_ter_equal_sacrebleu(name: str, corpus_score: object) -> None:
    assert callable(corpus_score)
    found = score(name, OUTPUTS, BOTH)
    assert found.value == corpus_score(OUTPUTS, [FIRST, SECOND]).score
    assert found.signature.startswith("nrefs:2|")
    assert found.value != score(name, OUTPUTS, FIRST).value


def test_lines_may_have_different_numbers_of_references() -> None:
    references = [[FIRST[0]], BOTH[1], BOTH[2]]
    streams = [FIRST, [None, *SECOND[1:]]]
    found = score("bleu", OUTPUTS, references)
    assert found.value == sacrebleu.corpus_bleu(OUTPUTS, streams).score  # type: ignore[arg-type]
    assert found.signature.startswith("nrefs:var|")
    assert score("exact_match", OUTPUTS, references).signature == f"exact|nrefs:var|strip|attendo:{__version__}"


def test_an_output_matches_any_reference() -> None:
    assert score("exact_match", OUTPUTS, BOTH).value == pytest.approx(100 / 3)
    assert score("exact_match", OUTPUTS, FIRST).value == 0
    assert score("exact_match", OUTPUTS, BOTH).signature == f"exact|nrefs:2|strip|attendo:{__version__}"


def test_the_error_rate_is_100_minus_exact_match() -> None:
    for references in (FIRST, SECOND, BOTH):
        right, wrong = (score(name, OUTPUTS, references) for name in ("exact_match", "error_rate"))
        assert wrong.value == pytest.approx(100 - right.value)
        assert not wrong.higher_is_better
    assert score("error_rate", OUTPUTS, BOTH).signature == f"error|nrefs:2|strip|attendo:{__version__}"
    assert score("error_rate", [" a "], ["a"]).value == 0


@pytest.mark.parametrize("name", ["rouge1", "rouge2", "rougeL"])
def test_rouge_uses_the_best_reference_as_rouge_score_does(name: str) -> None:
    from rouge_score import rouge_scorer

    scorer = rouge_scorer.RougeScorer([name], use_stemmer=False)
    pairs = zip(OUTPUTS, BOTH, strict=True)
    expected = [scorer.score_multi(references, output)[name].fmeasure for output, references in pairs]
    found = score(name, OUTPUTS, BOTH)
    assert found.value == pytest.approx(100 * sum(expected) / 3)
    assert found.signature.startswith(f"{name}|nrefs:2|f1|")


def test_word_errors_use_the_reference_with_the_lowest_rate() -> None:
    """3 errors in 5 words are a lower rate than 1 error in 1 word. The length is that of the same reference."""
    found = score("word_error_rate", ["a b"], [("a", "a b c d e", "")])
    assert found.value == pytest.approx(60)
    assert found.signature == f"wer|nrefs:3|tok:space|attendo:{__version__}"
    assert score("word_error_rate", ["a", ""], [("b", "a"), ("", "b")]).value == 0


@pytest.mark.parametrize("name", METRICS)
def test_a_list_of_one_reference_equals_one_reference(name: str) -> None:
    assert score(name, OUTPUTS, [[line] for line in FIRST]) == score(name, OUTPUTS, FIRST)


def test_the_script_is_detected_from_all_references() -> None:
    assert "|tok:zh|" in score("bleu", ["我爱你"], [("I", "我爱你们", "我爱他们")]).signature


def test_compare_accepts_several_references() -> None:
    found = compare("rouge1", OUTPUTS, FIRST, BOTH, samples=20)
    assert found.one == score("rouge1", OUTPUTS, BOTH)
    assert found.other.value == 100


def test_a_line_without_a_reference_is_rejected() -> None:
    with pytest.raises(UsageError, check=has_code("line_without_reference", line=2)):
        score("exact_match", ["a", "b"], [("a",), ()])
    with pytest.raises(UsageError, check=has_code("metric_texts_not_list")):
        score("exact_match", ["a"], "a")
