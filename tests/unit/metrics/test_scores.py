"""Corpus scores compared with sacrebleu or with numbers computed by hand."""

import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest
import sacrebleu
from error_codes import has_code

from attendo import __version__
from attendo.data.corpus_files import read_lines
from attendo.errors import UsageError
from attendo.metrics import METRICS, Score, check_metric, score
from attendo.train.config import MetricName

ENGLISH = ["The cat sat on the mat.", "A dog ran home, quickly.", "I saw the small cat yesterday evening."]
NEARLY = ["The cat sat on a mat.", "A dog ran home quickly.", "I saw a small cat yesterday evening."]
CHINESE = ["那只小猫坐在垫子上。", "一只狗很快地跑回家了。", "我昨天晚上看见了那只小猫。"]
NEARLY_CHINESE = ["那只猫坐在垫子上。", "一只狗跑回家了。", "我昨天看见了那只小猫。"]
JAPANESE = ["猫がマットの上に座っていた。", "犬は急いで家に帰った。"]
KOREAN = ["고양이가 매트 위에 앉아 있었다.", "개는 서둘러 집으로 돌아갔다."]
THAI = ["แมวนั่งอยู่บนเสื่อ", "สุนัขวิ่งกลับบ้าน"]


def test_metrics_of_a_run_file_exist() -> None:
    assert set(get_args(MetricName)) <= set(METRICS)


@pytest.mark.parametrize(
    ("outputs", "references", "tokeniser"),
    [
        (NEARLY, ENGLISH, "13a"),
        (NEARLY_CHINESE, CHINESE, "zh"),
        (JAPANESE[::-1], JAPANESE, "char"),
        (KOREAN[::-1], KOREAN, "char"),
        (THAI[::-1], THAI, "char"),
    ],
)
def test_bleu_equals_sacrebleu_with_the_tokeniser_of_the_script(
    outputs: list[str], references: list[str], tokeniser: str
) -> None:
    found = score("bleu", outputs, references)
    assert found.value == sacrebleu.corpus_bleu(outputs, [references], tokenize=tokeniser).score
    assert f"|tok:{tokeniser}|" in found.signature
    assert f"version:{sacrebleu.__version__}" in found.signature
    assert (found.name, found.higher_is_better) == ("bleu", True)


def test_the_tokeniser_follows_the_references_not_the_outputs() -> None:
    assert "|tok:zh|" in score("bleu", ENGLISH, CHINESE).signature
    assert "|tok:13a|" in score("bleu", CHINESE, ENGLISH).signature


def test_bleu_accepts_a_tokeniser() -> None:
    found = score("bleu", NEARLY_CHINESE, CHINESE, tokenize="char")
    assert found.value == sacrebleu.corpus_bleu(NEARLY_CHINESE, [CHINESE], tokenize="char").score
    assert "|tok:char|" in found.signature
    assert found.value != score("bleu", NEARLY, ENGLISH, tokenize="char").value


def test_chrf_equals_sacrebleu() -> None:
    found = score("chrf", NEARLY, ENGLISH)
    assert found.value == sacrebleu.corpus_chrf(NEARLY, [ENGLISH]).score
    assert "nc:6" in found.signature
    assert found.higher_is_better


def test_ter_equals_sacrebleu() -> None:
    found = score("ter", NEARLY, ENGLISH)
    assert found.value == sacrebleu.corpus_ter(NEARLY, [ENGLISH]).score > 0
    assert "|tok:tercom|norm:no|" in found.signature
    assert not found.higher_is_better


@pytest.mark.parametrize("references", [CHINESE, JAPANESE])
def test_ter_separates_characters_in_scripts_without_spaces(references: list[str]) -> None:
    """Otherwise a line is one word, and one wrong character makes the complete line wrong."""
    outputs = [text[1:] for text in references]
    found = score("ter", outputs, references)
    assert found.value == sacrebleu.corpus_ter(outputs, [references], normalized=True, asian_support=True).score
    assert 0 < found.value < 50
    assert "|norm:yes|punct:yes|asian:yes|" in found.signature


def test_exact_match_is_in_percent_and_strips_white_space() -> None:
    outputs = ["a b", " a b\t", "a  b", "A b"]
    found = score("exact_match", outputs, ["a b"] * 4)
    assert found == Score("exact_match", 50.0, f"exact|strip|attendo:{__version__}", True)


def test_exact_match_ignores_all_white_space_in_scripts_without_spaces() -> None:
    found = score("exact_match", ["我 爱 NLP", "猫 坐下 了", "狗 跑 了"], ["我爱NLP", "猫坐下了", "猫坐下了"])
    assert found.value == pytest.approx(200 / 3)
    assert found.signature == f"exact|spaces:no|attendo:{__version__}"
    assert score("exact_match", ["a b"], ["ab"]).value == 0


def test_the_word_error_rate_equals_that_computed_by_hand() -> None:
    """Two substitutions, one deletion, three insertions: six errors in ten words."""
    outputs = ["the cat sits in the mat", "a dog", "I see it now"]
    references = ["the cat sat on the mat", "a dog barks", "I"]
    found = score("word_error_rate", outputs, references)
    assert found.value == pytest.approx(100 * (2 + 1 + 3) / 10)
    assert found.signature == f"wer|tok:space|attendo:{__version__}"
    assert not found.higher_is_better


@pytest.mark.parametrize(
    ("references", "tokeniser"), [(CHINESE, "char"), (JAPANESE, "char"), (THAI, "char"), (KOREAN, "space")]
)
def test_word_errors_use_characters_in_scripts_without_spaces(references: list[str], tokeniser: str) -> None:
    outputs = [text[1:] for text in references]
    words = [text.split() if tokeniser == "space" else list(text) for text in references]
    found = score("word_error_rate", outputs, references)
    assert found.value == pytest.approx(100 * len(references) / sum(map(len, words)))
    assert f"|tok:{tokeniser}|" in found.signature


def test_white_space_between_characters_is_not_an_error() -> None:
    assert score("word_error_rate", ["我 爱 你"], ["我爱你"]).value == 0.0


@pytest.mark.parametrize("name", [name for name in METRICS if not name.startswith("distinct")])
def test_a_perfect_output_has_the_best_score(name: str) -> None:
    for references in (ENGLISH, CHINESE, JAPANESE, KOREAN):
        found = score(name, references, references)
        assert found.value == pytest.approx(100.0 if found.higher_is_better else 0.0)


@pytest.mark.parametrize("name", METRICS)
def test_an_empty_output_has_the_worst_score(name: str) -> None:
    found = score(name, ["", ""], ENGLISH[:2])
    assert found.value == pytest.approx(0.0 if found.higher_is_better else 100.0)


@pytest.mark.parametrize("name", METRICS)
def test_each_output_needs_its_reference(name: str) -> None:
    with pytest.raises(UsageError, check=has_code("output_reference_count_mismatch", outputs=2, references=3)):
        score(name, ENGLISH[:2], ENGLISH)
    with pytest.raises(UsageError, check=has_code("no_outputs_to_score")):
        score(name, [], [])
    with pytest.raises(UsageError, check=has_code("metric_texts_not_list")):
        score(name, "a cat", "a dog")


def test_references_without_words_are_rejected() -> None:
    with pytest.raises(UsageError, check=has_code("references_without_words", count=2)):
        score("word_error_rate", ["a", "b"], ["", " "])


def test_unknown_names_are_rejected_with_a_suggestion() -> None:
    with pytest.raises(UsageError, check=has_code("unknown_metric", name="belu", suggestion=" (did you mean bleu?)")):
        score("belu", ENGLISH, ENGLISH)
    with pytest.raises(UsageError, check=has_code("unknown_bleu_tokeniser", name="flores200")):
        score("bleu", ENGLISH, ENGLISH, tokenize="flores200")
    with pytest.raises(UsageError, check=has_code("tokenize_only_for_bleu")):
        score("chrf", ENGLISH, ENGLISH, tokenize="13a")


def test_a_missing_tokeniser_package_raises_an_error_with_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "MeCab", None)
    with pytest.raises(UsageError, check=has_code("bleu_tokeniser_package_missing", extra="ja")):
        score("bleu", JAPANESE, JAPANESE, tokenize="ja-mecab")


@pytest.mark.parametrize(("name", "display_name"), [("bleu", "BLEU"), ("chrf", "chrF"), ("ter", "TER")])
def test_without_sacrebleu_the_error_names_the_extra(
    name: str, display_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "sacrebleu", None)
    with pytest.raises(
        UsageError, check=has_code("package_missing", package="sacrebleu", extra="eval", purpose=display_name)
    ):
        check_metric(name)
    assert score("exact_match", ENGLISH, ENGLISH).value == 100.0
    assert score("word_error_rate", ENGLISH, ENGLISH).value == 0.0
    assert score("rougeL", ENGLISH, ENGLISH).value == 100.0


def test_other_packages_are_imported_lazily() -> None:
    code = "import sys, attendo.metrics; attendo.metrics.score('rouge1', ['a'], ['a']); print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "attendo.metrics" in loaded
    assert {"numpy", "sacrebleu", "torch"}.isdisjoint(loaded)


def test_outputs_that_look_tokenised_log_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    texts = ["a cat sat down ."] * 200
    assert score("bleu", texts, texts).value > 99
    assert caplog.messages == []


@pytest.mark.parametrize(
    ("name", "tokeniser"),
    [
        ("msctd_en_zh/enzh.dev.zh.gz", "zh"),
        ("msctd_en_zh/enzh.dev.seg.zh.gz", "zh"),
        ("msctd_en_zh/enzh.dev.tok.lc.en.gz", "13a"),
    ],
)
def test_real_text_gets_its_tokeniser(shared: Path, name: str, tokeniser: str) -> None:
    lines = list(read_lines(shared / "data" / name))[:200]
    found = score("bleu", lines[1:], lines[:-1])
    assert found.value == sacrebleu.corpus_bleu(lines[1:], [lines[:-1]], tokenize=tokeniser, force=True).score
    assert found.value > 0
