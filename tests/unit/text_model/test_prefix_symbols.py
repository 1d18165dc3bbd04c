"""Symbols that a model adds before every source and every answer."""

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


def make_model(**generation: object) -> TextModel:
    words = Words.build(TEXTS * 2, symbols=("<en>", "<de>"))
    network = Transformer(ModelConfig(vocab_size=words.vocab_size, **SIZES), torch.Generator().manual_seed(3))
    return TextModel(StoredModel(network, words, words, {"max_length_extra": 5, **generation}))


def test_prefix_symbols_precede_source_and_answer() -> None:
    plain, model = make_model(), make_model(source_prefix=["<en>"], target_prefix=["<de>"])
    words = model.source_tokenizer
    ((line,),) = SourceEncoder(
        GenerateOptions(), model.generation, words, words, model.backend.max_sequence_length
    ).encode(TEXTS[:1])
    assert line.source == tuple(words.encode(f"<en> {TEXTS[0]}"))
    assert line.prefix == tuple(words.encode("<de>"))
    (result,) = model.generate(TEXTS[:1])
    assert result.pieces[0] == "<de>"
    assert plain.generate(TEXTS[:1])[0].ids != result.ids


def test_the_prefix_of_a_call_follows_the_symbols() -> None:
    model = make_model(target_prefix=["<de>"])
    assert model.generate(TEXTS[:1], prefix="dog ran")[0].pieces[:3] == ("<de>", "dog", "ran")


def test_a_call_may_override_the_symbols() -> None:
    (result,) = make_model(target_prefix=["<de>"]).generate(TEXTS[:1], target_prefix=["<en>"])
    assert result.pieces[0] == "<en>"


def test_presets_keep_the_symbols() -> None:
    (result,) = make_model(target_prefix=["<de>"]).generate(TEXTS[:1], preset="hf")
    assert result.pieces[0] == "<de>"


def test_symbols_do_not_change_the_score_but_count_as_tokens() -> None:
    model = make_model(target_prefix=["<de>"])
    (plain,), (result,) = make_model().generate(TEXTS[:1], prefix="<de>"), model.generate(TEXTS[:1])
    assert result.ids == plain.ids
    assert result.log_probability == pytest.approx(plain.log_probability)
    first = model.score_tokens(TEXTS[:1], [""])[0].log_probabilities[0]
    assert result.best.parts.penalty == pytest.approx(-first, abs=1e-5)
    assert result.best.parts.tokens == plain.best.parts.tokens


def test_scores_and_traces_include_the_symbols() -> None:
    plain, model = make_model(), make_model(source_prefix=["<en>"], target_prefix=["<de>"])
    (result,) = model.generate(TEXTS[:1], beam=4)
    assert not result.cut
    assert model.score(TEXTS[:1], [result.text.removeprefix("<de> ")]) == pytest.approx([result.log_probability])
    assert model.score(TEXTS, TEXTS) == plain.score(
        [f"<en> {text}" for text in TEXTS], [f"<de> {text}" for text in TEXTS]
    )
    trace = model.trace(TEXTS[0], TEXTS[1])
    assert trace.source_pieces[0] == "<en>"
    assert trace.target_pieces[0] == "<de>"


def test_symbols_count_as_source_tokens() -> None:
    model = make_model(source_prefix=["<en>"], max_source=3)
    with pytest.raises(UsageError, check=has_code("text_exceeds_model_limit", tokens=4, limit=3)):
        model.generate(TEXTS[:1])


def test_symbols_are_saved_in_the_model_folder(tmp_path: object) -> None:
    make_model(target_prefix=["<de>"]).save(f"{tmp_path}/model")
    assert load(f"{tmp_path}/model").generation.target_prefix == ("<de>",)


@pytest.mark.parametrize("side", ["source", "target"])
def test_other_words_as_prefix_symbols_are_rejected(side: str) -> None:
    with pytest.raises(
        UsageError, check=has_code("unknown_prefix_symbol", symbol="cat", known="<en>, <de>", option=f"{side}_prefix")
    ):
        make_model().generate(TEXTS[:1], **{f"{side}_prefix": ["cat"]})  # type: ignore[arg-type]


def test_bos_is_not_part_of_the_answer() -> None:
    model = make_model(target_prefix=["<de>"])
    assert BOS not in model.generate(TEXTS[:1])[0].ids
