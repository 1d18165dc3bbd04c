"""Generation with a glossary: terms that are met, placed by alignment or found by a constrained search, and reports."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from error_codes import has_code
from tiny import parallel_model, tiny_model, without_source
from varied_models import bytes_model, characters_model, pieces_model, sentences, varied_model

from attendo.errors import DataError, UsageError
from attendo.text_model import Glossary, Result, Term, TextModel
from attendo.text_model.results import result_to_dict

KINDS = [varied_model, pieces_model, bytes_model, characters_model]
# Every source sentence has some of these words. The translations are in every vocabulary.
TERMS = {"cat": "猫", "dog": "狗", "the": "家", "I": "了", "ran": "看见", "small": "小 猫"}


def check_reports(text: str, result: Result) -> None:
    for report in result.terms:
        assert text[slice(*report.source_span)] == report.source
        assert report.met == (report.target_span is not None) == (report.reason == "")
        if report.target_span is not None:
            assert result.text[slice(*report.target_span)].replace(" ", "") == report.target.replace(" ", "")


@pytest.mark.parametrize("make", KINDS)
def test_all_terms_are_met_and_reported(make: Callable[[], TextModel]) -> None:
    model, texts = make(), sentences(8, longest=5)
    glossary = Glossary(TERMS.items())
    results = model.generate(texts, glossary=glossary, max_length=30)
    for text, result in zip(texts, results, strict=True):
        assert [each.source for each in result.terms] == [word for word in text.split() if word in TERMS]
        assert all(each.met for each in result.terms), (text, result.text, result.terms)
        check_reports(text, result)
    assert sum(len(each.terms) for each in results) >= 8


def test_an_output_with_all_terms_is_the_output_without_a_glossary() -> None:
    model, texts = varied_model(), sentences(6, longest=4)
    plain = model.generate(texts, beam=2, n_best=2)
    word = plain[0].text.split()[0]
    found = model.generate(texts, beam=2, n_best=2, glossary=Glossary([(texts[0], word), ("absent", word)]))
    assert [each.hypotheses for each in found] == [each.hypotheses for each in plain]
    assert [len(each.terms) for each in found] == [texts.count(texts[0]) if text == texts[0] else 0 for text in texts]


def test_a_sentence_ignores_its_neighbours() -> None:
    model, texts = pieces_model(), sentences(6, longest=5)
    glossary = Glossary(TERMS.items())
    together = model.generate(texts, glossary=glossary, max_length=30)
    alone = [model.generate([text], glossary=glossary, max_length=30)[0] for text in texts]
    assert [each.text for each in together] == [each.text for each in alone]


def copying_model() -> TextModel:
    """A model whose cross-attention is diagonal, so that output word n aligns with source word n."""
    model = varied_model()

    def align(results: list[Result], sources: Any, *others: Any) -> list[Result]:
        from dataclasses import replace

        from attendo.text_model.results import Alignment

        made = []
        for result, source in zip(results, sources, strict=True):
            (best,) = result.hypotheses
            weights = torch.eye(len(best.ids), len(source) + 1)
            made.append(replace(result, hypotheses=(replace(best, alignment=Alignment(weights)),)))
        return made

    model.fake_align = align  # type: ignore[attr-defined]
    return model


def test_a_missing_term_is_placed_where_the_output_aligns_with_its_source(monkeypatch: pytest.MonkeyPatch) -> None:
    model, text = copying_model(), "the small cat ran home"
    monkeypatch.setattr("attendo.text_model.term_search.align", model.fake_align)  # type: ignore[attr-defined]
    plain = model.generate([text], min_length=5, max_length=9)[0].text.split()
    missing = next(word for word in ("狗", "家", "NLP", "猫") if word not in plain)
    result = model.generate([text], glossary=Glossary([("small", missing)]), min_length=5, max_length=9)[0]
    assert result.text.split()[:2] == [plain[0], missing]
    assert result.terms[0].target_span == (len(plain[0]) + 1, len(plain[0]) + 1 + len(missing))


def test_any_form_of_the_target_is_enough() -> None:
    model, text = varied_model(), "the cat sat"
    plain = model.generate([text])[0].text
    word = plain.split()[0]
    glossary = Glossary([Term("cat", "狗" if word != "狗" else "猫", (), (word,))])
    result = model.generate([text], glossary=glossary)[0]
    assert result.text == plain
    assert result.terms[0].met
    assert result.text[slice(*result.terms[0].target_span or (0, 0))] == word


def test_an_unmet_term_keeps_the_output_and_has_a_reason() -> None:
    model, text = varied_model(), "the cat sat"
    plain = model.generate([text], max_length=3)[0]
    missing = next(word for word in ("狗", "家", "NLP", "猫") if word not in plain.text)
    for target, options, reason in (
        ("Katze", {}, "vocabulary"),
        (missing, {"banned_phrases": [missing]}, "banned"),
        (" ".join([missing] * 4), {}, "length"),
    ):
        result = model.generate([text], glossary=Glossary([("cat", target)]), max_length=3, **options)[0]
        assert [(each.met, each.reason) for each in result.terms] == [(False, reason)]
        if reason != "length":
            assert result.text == model.generate([text], max_length=3, **options)[0].text


def test_terms_of_split_texts_have_positions_in_the_whole_text() -> None:
    model = varied_model()
    text = " the cat sat.\n the dog ran home! I saw the small cat"
    glossary = Glossary([("dog", "狗"), ("cat", "家")])
    (result,) = model.generate([text], glossary=glossary, split=True, max_length=20)
    assert [each.source for each in result.terms] == ["cat", "dog", "cat"]
    assert len(result.sentences) == 3
    assert all(each.met for each in result.terms)
    check_reports(text, result)
    assert "".join(model.stream(text, glossary=glossary, split=True, max_length=20)) == result.text


def test_glossary_constraints_and_kept_text_work_together() -> None:
    model, text = varied_model(), "the cat {x} sat"
    options: dict[str, Any] = {"constraints": ["狗"], "beam": 4, "max_length": 20}
    (result,) = model.generate([text], glossary=Glossary([("cat", "家")]), keep=["placeholders"], **options)
    assert result.constraints == (True,)
    assert [each.met for each in result.terms] == [True, True]
    check_reports(text, result)


def test_reports_are_part_of_the_json_output() -> None:
    (result,) = varied_model().generate(["the cat"], glossary=Glossary([("cat", "Katze")]))
    assert result_to_dict(result, False)["terms"] == [
        {
            "kind": "glossary",
            "source": "cat",
            "source_span": (4, 7),
            "target": "Katze",
            "target_span": None,
            "reason": "vocabulary",
            "met": False,
        }
    ]
    assert "terms" not in result_to_dict(varied_model().generate(["the cat"])[0], False)


def test_a_glossary_is_read_from_its_file(tmp_path: Path) -> None:
    path = tmp_path / "terms.tsv"
    path.write_text("cat\t猫\n", "utf-8")
    results = [
        varied_model().generate(["the cat"], glossary=each)[0] for each in (path, str(path), Glossary.read(path))
    ]
    assert results[0].terms[0].met
    assert [each.text for each in results] == [results[0].text] * 3
    with pytest.raises(UsageError, check=has_code("glossary_type")):
        varied_model().generate(["the cat"], glossary=[("cat", "猫")])
    with pytest.raises(DataError, check=has_code("glossary_unreadable")):
        varied_model().generate(["the cat"], glossary=tmp_path / "other.tsv")


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"sample": True}, "constraints_sample_conflict"),
        ({"beam": 4, "beam_groups": 2}, "constraints_groups_conflict"),
        ({"beam": 2, "stop": "leader"}, "stop_rule_conflict"),
        ({"at_limit": "any"}, "at_limit_any_conflict"),
    ],
)
def test_a_glossary_needs_a_plain_beam(options: dict[str, Any], code: str) -> None:
    with pytest.raises(UsageError, check=has_code(code)) as caught:
        varied_model().generate(["the cat"], glossary=Glossary([("cat", "猫")]), **options)
    assert "glossary" in str(caught.value)


def test_models_without_the_needed_search_reject_a_glossary() -> None:
    glossary = Glossary([("cat", "猫")])
    with pytest.raises(UsageError, check=has_code("source_option_without_encoder")):
        without_source().generate(["the cat"], glossary=glossary)
    for kind in ("masked", "ctc"):
        with pytest.raises(UsageError, check=has_code("option_unsupported_by_kind")):
            parallel_model(kind).generate(["the cat"], glossary=glossary)
    (result,) = parallel_model("graph").generate(["the cat"], glossary=glossary)
    assert [each.source for each in result.terms] == ["cat"]
    model = tiny_model()
    with pytest.raises(UsageError, check=has_code("draft_option_conflict")):
        model.with_draft(tiny_model(seed=1)).generate(["the cat"], glossary=glossary)
    for call in (model.alternatives, model.search_tree):
        with pytest.raises(UsageError, check=has_code("terms_not_supported")):
            call("the cat", glossary=glossary)
    with pytest.raises(UsageError, check=has_code("terms_not_supported", feature="check=repair", option="glossary")):
        model.generate(["the cat"], glossary=glossary, check="repair")
