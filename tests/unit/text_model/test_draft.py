"""Models with a draft: outputs of greedy search, refusals, and `verify`."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from error_codes import has_code
from tiny import SIZES, SOURCES, TARGETS, Command, tiny_model

from attendo.errors import UsageError
from attendo.model.config import ModelConfig
from attendo.model.factory import make_network
from attendo.runs.verify import verify
from attendo.text import Words
from attendo.text_model import TextModel

KINDS = ("autoregressive", "masked", "ctc", "graph")


def make_draft(kind: str) -> TextModel:
    source, target = Words.build(SOURCES), Words.build(TARGETS)
    sizes = {"source_vocab_size": source.vocab_size, "target_vocab_size": target.vocab_size}
    config = ModelConfig(**SIZES, **sizes, kind=kind)
    return TextModel(make_network(config, torch.Generator().manual_seed(3)), (source, target))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("engine", ["cached", "fast"])
@pytest.mark.parametrize("options", [{}, {"sample": True, "seed": 4}, {"prefix": "我", "no_repeat_ngram_size": 2}])
def test_a_draft_does_not_change_outputs(kind: str, engine: str, options: dict[str, Any]) -> None:
    model = tiny_model()
    expected = model.generate(SOURCES, **options)
    found = model.with_draft(make_draft(kind)).generate(SOURCES, engine=engine, **options)
    assert [each.ids for each in found] == [each.ids for each in expected]
    scores = [[each.best.log_probability for each in results] for results in (found, expected)]
    assert scores[0] == pytest.approx(scores[1], abs=1e-4)


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"beam": 4}, "beam"),
        ({"sample": True, "n_best": 2}, "n_best"),
        ({"constraints": ["猫"], "beam": 4}, "beam"),
        ({"mbr": "chrf", "sample": True}, "mbr"),
    ],
)
def test_other_searches_are_refused_by_name(options: dict[str, Any], name: str) -> None:
    with pytest.raises(UsageError, check=has_code("draft_option_conflict", option=name)):
        tiny_model().with_draft(make_draft("ctc")).generate(SOURCES, **options)


def test_a_beam_of_the_model_does_not_matter_for_samples() -> None:
    model = tiny_model()
    wide = TextModel(replace(model.stored_model, generation={**model.stored_model.generation, "beam": 4}))
    found = wide.with_draft(make_draft("ctc")).generate(SOURCES, sample=True)
    assert [each.ids for each in found] == [each.ids for each in model.generate(SOURCES, sample=True)]


def test_the_textbook_engine_has_no_drafts() -> None:
    with pytest.raises(UsageError, check=has_code("draft_engine_conflict", engine="textbook")):
        tiny_model().with_draft(make_draft("ctc")).generate(SOURCES, engine="textbook")


def test_models_that_cannot_work_together_are_refused() -> None:
    model, draft = tiny_model(), make_draft("graph")
    with pytest.raises(UsageError, check=has_code("draft_tokenizer_mismatch", side="source")):
        model.with_draft(tiny_model(joint=True))
    with pytest.raises(UsageError, check=has_code("draft_with_ensemble", role="verifier")):
        model.ensemble([tiny_model(5)]).with_draft(draft)
    with pytest.raises(UsageError, check=has_code("draft_with_ensemble", role="draft")):
        model.with_draft(model.ensemble([tiny_model(5)]))
    with pytest.raises(UsageError, check=has_code("draft_with_scaled_heads")):
        model.with_heads({"decoder.0.cross": {0: 0.0}}).with_draft(draft)
    with pytest.raises(UsageError, check=has_code("parallel_feature_unsupported", kind="graph")):
        draft.with_draft(model)


@pytest.mark.parametrize("kind", ["autoregressive", "graph"])
def test_verify_compares_drafted_outputs_on_both_engines(kind: str) -> None:
    found = [each for each in verify(tiny_model(), SOURCES[:2], draft=make_draft(kind)) if "draft" in each.path]
    assert [each.path for each in found] == ["cached, with a draft", "fast, with a draft"]
    assert all(each.equal and each.count == 2 for each in found)


def test_verify_finds_other_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    """The verifier chooses the neighbour of the best token."""
    monkeypatch.setattr("attendo.decode.speculative.apply_rules", lambda logits, rows, *_: (logits, logits.roll(1, -1)))
    found = [each for each in verify(tiny_model(), SOURCES[:2], draft=make_draft("ctc")) if "draft" in each.path]
    assert not any(each.equal for each in found)


def test_the_command_takes_a_draft(attendo: Command, model_folder: Path, tmp_path: Path) -> None:
    make_draft("ctc").save(tmp_path / "draft")
    given = "".join(f"{each}\n" for each in SOURCES).encode()
    plain = attendo("generate", model_folder, given=given)
    drafted = attendo("generate", model_folder, "--draft", tmp_path / "draft", given=given)
    assert (drafted.code, drafted.output) == (0, plain.output)
    refused = attendo("generate", model_folder, "--draft", tmp_path / "draft", "--beam", "4", given=given)
    assert refused.code == 2
    assert "leave --beam or the draft out" in refused.error
    (tmp_path / "texts").write_text(SOURCES[0])
    checked = attendo("verify", model_folder, "--draft", tmp_path / "draft", "--source", tmp_path / "texts")
    assert checked.code == 0
    assert "fast, with a draft" in checked.output
