"""What a model puts before every source and every answer."""

import pytest
import torch
from error_codes import has_code
from tiny import SIZES

from attendo.errors import UsageError
from attendo.model.config import ModelConfig
from attendo.model.transformer import Transformer
from attendo.model_folder import StoredModel
from attendo.text import BOS, Words
from attendo.text_model import GenerateOptions, TextModel, load
from attendo.text_model.inputs import SourceEncoder

TEXTS = ["the cat sat", "a dog ran"]


def model_with(**generation: object) -> TextModel:
    words = Words.build(TEXTS * 2, symbols=("<en>", "<de>"))
    network = Transformer(ModelConfig(vocab_size=words.vocab_size, **SIZES), torch.Generator().manual_seed(3))
    return TextModel(StoredModel(network, words, words, {"max_length_extra": 5, **generation}))


def test_they_stand_before_source_and_answer() -> None:
    plain, model = model_with(), model_with(source_prefix=["<en>"], target_prefix=["<de>"])
    words = model.source_tokenizer
    ((line,),) = SourceEncoder(
        GenerateOptions(), model.generation, words, words, model.backend.max_sequence_length
    ).encode(TEXTS[:1])
    assert line.source == tuple(words.encode(f"<en> {TEXTS[0]}"))
    assert line.prefix == tuple(words.encode("<de>"))
    (result,) = model.generate(TEXTS[:1])
    assert result.pieces[0] == "<de>"
    assert plain.generate(TEXTS[:1])[0].ids != result.ids


def test_a_callers_own_prefix_comes_behind() -> None:
    model = model_with(target_prefix=["<de>"])
    assert model.generate(TEXTS[:1], prefix="dog ran")[0].pieces[:3] == ("<de>", "dog", "ran")


def test_they_can_be_given_for_a_call() -> None:
    (result,) = model_with(target_prefix=["<de>"]).generate(TEXTS[:1], target_prefix=["<en>"])
    assert result.pieces[0] == "<en>"


def test_other_systems_settings_leave_them_alone() -> None:
    (result,) = model_with(target_prefix=["<de>"]).generate(TEXTS[:1], preset="hf")
    assert result.pieces[0] == "<de>"


def test_they_cost_nothing_but_count_for_the_length() -> None:
    model = model_with(target_prefix=["<de>"])
    (plain,), (result,) = model_with().generate(TEXTS[:1], prefix="<de>"), model.generate(TEXTS[:1])
    assert result.ids == plain.ids
    assert result.log_probability == pytest.approx(plain.log_probability)
    first = model.score_tokens(TEXTS[:1], [""])[0].log_probabilities[0]
    assert result.best.parts.penalty == pytest.approx(-first, abs=1e-5)
    assert result.best.parts.tokens == plain.best.parts.tokens


def test_scores_and_traces_have_them_too() -> None:
    plain, model = model_with(), model_with(source_prefix=["<en>"], target_prefix=["<de>"])
    (result,) = model.generate(TEXTS[:1])
    if not result.cut:
        assert model.score(TEXTS[:1], [result.text.removeprefix("<de> ")]) == pytest.approx([result.log_probability])
    assert model.score(TEXTS, TEXTS) == plain.score(
        [f"<en> {text}" for text in TEXTS], [f"<de> {text}" for text in TEXTS]
    )
    trace = model.trace(TEXTS[0], TEXTS[1])
    assert trace.source_pieces[0] == "<en>"
    assert trace.target_pieces[0] == "<de>"


def test_they_count_as_tokens_of_the_source() -> None:
    model = model_with(source_prefix=["<en>"], max_source=3)
    with pytest.raises(UsageError, check=has_code("text_exceeds_model_limit", tokens=4, limit=3)):
        model.generate(TEXTS[:1])


def test_they_are_kept_in_the_model_folder(tmp_path: object) -> None:
    model_with(target_prefix=["<de>"]).save(f"{tmp_path}/model")
    assert load(f"{tmp_path}/model").generation.target_prefix == ("<de>",)


@pytest.mark.parametrize("side", ["source", "target"])
def test_only_symbols_can_be_put_there(side: str) -> None:
    with pytest.raises(
        UsageError, check=has_code("unknown_prefix_symbol", symbol="cat", known="<en>, <de>", option=f"{side}_prefix")
    ):
        model_with().generate(TEXTS[:1], **{f"{side}_prefix": ["cat"]})  # type: ignore[arg-type]


def test_bos_is_none_of_them() -> None:
    model = model_with(target_prefix=["<de>"])
    assert BOS not in model.generate(TEXTS[:1])[0].ids
