"""The text model: generate, score and trace."""

import json
import math
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from error_codes import ErrorCheck, has_code
from search_rows import make_limits
from tiny import SOURCES, TARGETS, tiny_model

from attendo.data.batch import Example, collate, collate_sources
from attendo.decode.beam import Beam
from attendo.decode.config import GenerationConfig
from attendo.decode.rules import SuppressTokens
from attendo.decode.search import search
from attendo.decode.strategies import Greedy
from attendo.errors import ModelError, UsageError
from attendo.model.transformer import Memory, Transformer
from attendo.text import EOS
from attendo.text_model import Hypothesis, TextModel, eval_mode, load, pick_device

WORDS = tuple(sorted({word for text in SOURCES for word in text.split()}))


def varied_model(seed: int = 2, **changes: Any) -> TextModel:
    """An untrained model with scaled logits: answers differ in length and many end before the limit."""
    model = tiny_model(seed, tie="none", **changes)
    with torch.no_grad():
        model.network.output.weight.mul_(3.0)
        model.network.output.weight[EOS].mul_(2.0)
    return model


def endless_model(**changes: Any) -> TextModel:
    model = tiny_model(tie="none", **changes)
    with torch.no_grad():
        model.network.output.weight[EOS] = 0.0  # never the best, because other logits are positive
    return model


def sentences(count: int) -> list[str]:
    generator = random.Random(1)
    return [" ".join(generator.choices(WORDS, k=generator.randint(1, 12))) for _ in range(count)]


@pytest.mark.slow
@pytest.mark.parametrize("positions", ["sinusoidal", "learned", "rotary", "relative"])
def test_a_sentence_has_the_same_answer_alone_and_in_any_batch(positions: str) -> None:
    model = varied_model(positions=positions)
    texts = sentences(20)
    alone = [model.generate([text])[0] for text in texts]
    assert len({len(result.ids) for result in alone}) > 5
    assert len({result.cut for result in alone}) == 2
    for batch_tokens in (40, 4096):
        model.generation = model.generation.replace(batch_tokens=batch_tokens)
        together = model.generate(texts)
        assert [result.ids for result in together] == [result.ids for result in alone]
        assert [result.cut for result in together] == [result.cut for result in alone]
        assert [result.score for result in together] == pytest.approx([result.score for result in alone], abs=1e-4)


@pytest.mark.short(1)
@pytest.mark.parametrize("length_penalty", [0.0, 1.0])
def test_D1_a_beam_finds_the_same_hypotheses_alone_and_in_any_batch(length_penalty: float) -> None:
    model = varied_model()
    texts = sentences(10)

    def hypotheses(texts: list[str]) -> list[Hypothesis]:
        results = model.generate(texts, beam=4, length_penalty=length_penalty, n_best=4, max_length=6)
        return [each for result in results for each in result.hypotheses]

    alone = [each for text in texts for each in hypotheses([text])]
    assert len(alone) == 40
    assert len({each.cut for each in alone}) == 2
    for batch_tokens in (160, 4096):
        model.generation = model.generation.replace(batch_tokens=batch_tokens)
        together = hypotheses(texts)
        assert [each.ids for each in together] == [each.ids for each in alone]
        assert [each.cut for each in together] == [each.cut for each in alone]
        assert [each.score for each in together] == pytest.approx([each.score for each in alone], abs=1e-5)


def test_results_are_in_the_order_of_the_texts() -> None:
    model = varied_model()
    texts = sentences(30)
    answers = dict(zip(texts, (result.text for result in model.generate(texts)), strict=True))
    backwards = texts[::-1]
    assert [result.text for result in model.generate(backwards)] == [answers[text] for text in backwards]


@torch.no_grad()
def test_the_reported_score_is_the_score_of_the_ids() -> None:
    model = varied_model()
    for text in sentences(20):
        result = model.generate([text])[0]
        batch = collate([Example(model.source_tokenizer.encode(text), result.ids)])
        logits = model.network(batch.source_ids, batch.target_ids, batch.source_mask)
        each = logits.log_softmax(-1).gather(-1, batch.labels[..., None])[0, :, 0]
        counted = each[:-1] if result.cut else each  # a cut answer has no EOS
        assert result.log_probability == pytest.approx(counted.sum().item(), abs=1e-4)
        assert result.score == pytest.approx(counted.mean().item(), abs=1e-4)  # the length penalty is 1


@pytest.mark.parametrize("beam", [1, 4])
def test_D3_scoring_an_answer_gives_its_generation_log_probability(beam: int) -> None:
    model = varied_model()
    texts = sentences(60 // beam)
    results = model.generate(texts, beam=beam, n_best=beam)
    ended = [(text, each) for text, r in zip(texts, results, strict=True) for each in r.hypotheses if not each.cut]
    same_ids = [(text, each) for text, each in ended if model.target_tokenizer.encode(each.text) == list(each.ids)]
    assert len(same_ids) > 5
    scores = model.score([text for text, _ in same_ids], [each.text for _, each in same_ids])
    assert scores == pytest.approx([each.log_probability for _, each in same_ids], abs=1e-4)


def test_a_beam_of_one_equals_greedy_with_a_network() -> None:
    model = varied_model()
    texts = sentences(40)
    ids, mask = collate_sources([model.source_tokenizer.encode(text) for text in texts])
    with torch.inference_mode():
        memory = model.network.encode(ids, mask)
        greedy, beam = (
            list(
                search(
                    model.network,
                    model.network.start(memory),
                    make_limits(torch.full((40,), 12)),
                    strategy,
                    [SuppressTokens()],
                )
            )[-1].hypotheses
            for strategy in (Greedy(), Beam(1))
        )
    assert torch.equal(greedy.ids, beam.ids)
    assert torch.equal(greedy.log_probability, beam.log_probability)
    assert torch.equal(greedy.cut, beam.cut)
    assert model.generate(texts, beam=1) == model.generate(texts)


@pytest.mark.parametrize("length_penalty", [0.0, 0.7, 1.0])
@pytest.mark.parametrize("beam", [1, 3])
def test_scores_and_ranks_follow_the_formula_for_any_beam(beam: int, length_penalty: float) -> None:
    for result in varied_model().generate(sentences(20), beam=beam, length_penalty=length_penalty, n_best=beam):
        assert (result.score, result.log_probability) == (
            result.hypotheses[0].score,
            result.hypotheses[0].log_probability,
        )
        for each in result.hypotheses:
            tokens = len(each.ids) + (not each.cut)
            assert each.score == pytest.approx(each.log_probability / tokens**length_penalty, rel=1e-6)
        ranks = [(each.cut, -each.score) for each in result.hypotheses]
        assert ranks == sorted(ranks)


def test_a_smaller_n_best_gives_the_first_of_a_larger_one() -> None:
    model = varied_model()
    texts = sentences(30)
    for few, many in zip(model.generate(texts, beam=5, n_best=2), model.generate(texts, beam=5, n_best=5), strict=True):
        assert few.hypotheses == many.hypotheses[:2]
        assert len({each.ids for each in many.hypotheses}) == len(many.hypotheses) == 5


@pytest.mark.parametrize("beam", [1, 4])
def test_a_batch_stays_within_batch_tokens_for_any_beam(beam: int, monkeypatch: pytest.MonkeyPatch) -> None:
    model = varied_model()
    model.generation = model.generation.replace(batch_tokens=100)
    positions = []

    def encode(ids: torch.Tensor, mask: torch.Tensor | None) -> Memory:
        positions.append(ids.numel() * beam)
        return Transformer.encode(model.network, ids, mask)

    monkeypatch.setattr(model.network, "encode", encode)
    model.generate(sentences(40), beam=beam, max_length=2)
    assert 50 < max(positions) <= 100


def test_a_beam_finds_answers_that_greedy_does_not() -> None:
    model = varied_model()
    texts = sentences(60)
    pairs = list(
        zip(model.generate(texts, length_penalty=0.0), model.generate(texts, beam=8, length_penalty=0.0), strict=True)
    )
    ended = [(greedy, beam) for greedy, beam in pairs if not greedy.cut]
    better = sum(beam.log_probability > greedy.log_probability + 1e-4 for greedy, beam in ended)
    worse = sum(beam.log_probability < greedy.log_probability - 1e-4 for greedy, beam in ended)
    assert better > 2
    assert better > 2 * worse


def test_n_best_may_return_fewer_hypotheses() -> None:
    model = varied_model()
    (result,) = model.generate([SOURCES[0]], beam=40, n_best=40, max_length=1)
    assert 1 <= len(result.hypotheses) < 40
    assert all(math.isfinite(each.score) for each in result.hypotheses)


def test_the_model_folder_sets_the_defaults(tmp_path: Path) -> None:
    texts = sentences(10)
    stored = varied_model().stored_model
    TextModel(replace(stored, generation={"beam": 4, "length_penalty": 0.2})).save(tmp_path / "model")
    model = load(tmp_path / "model", "cpu")
    assert model.generate(texts) == model.generate(texts, beam=4, length_penalty=0.2)
    assert model.generate(texts) != model.generate(texts, beam=1)


def test_R12_a_folder_from_before_the_beam_is_greedy(model_folder: Path) -> None:
    generation = json.loads((model_folder / "generation.json").read_text("utf-8"))
    assert "beam" not in generation
    model = load(model_folder, "cpu")
    assert (model.generation.beam, model.generation.length_penalty) == (1, 1.0)
    assert model.generate(SOURCES) == model.generate(SOURCES, beam=1, length_penalty=1.0)


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        (
            {"beam": 0},
            has_code("setting_invalid", fault=has_code("field_greater_than_equal", name="beam", ge=1), given="0"),
        ),
        (
            {"beam": -2},
            has_code("setting_invalid", fault=has_code("field_greater_than_equal", name="beam", ge=1), given="-2"),
        ),
        (
            {"temperature": 0.0},
            has_code(
                "setting_invalid", fault=has_code("field_greater_than_equal", name="temperature", ge=1e-6), given="0.0"
            ),
        ),
        ({"beam": 4, "beam_groups": 3}, has_code("beam_not_divisible_by_groups", groups=3, beam=4)),
        ({"sample": True, "beam": 2}, has_code("sample_beam_conflict")),
        ({"colour": "red"}, has_code("unknown_generation_option", option="colour")),
        (
            {"length_penalty": math.nan},
            has_code("setting_invalid", fault=has_code("field_finite_number", name="length_penalty"), given="nan"),
        ),
        ({"n_best": 2}, has_code("n_best_out_of_range", option="beam", limit=1, n_best=2)),
        ({"beam": 3, "n_best": 4}, has_code("n_best_out_of_range", option="beam", limit=3, n_best=4)),
        ({"beam": 3, "n_best": 0}, has_code("n_best_out_of_range", option="beam", limit=3, n_best=0)),
    ],
)
def test_invalid_settings_are_rejected(settings: dict[str, Any], error: ErrorCheck) -> None:
    with pytest.raises(UsageError, check=error):
        tiny_model().generate(["the cat"], **settings)


def test_a_score_is_a_log_probability() -> None:
    """The answers of at most one word have a total probability below 1."""
    model = tiny_model()
    target = model.target_tokenizer
    answers = ["", *{target.decode([n]) for n in range(4, target.vocab_size)}]
    scores = model.score([SOURCES[0]] * len(answers), answers)
    assert all(score < 0 for score in scores)
    assert 0 < torch.tensor(scores).exp().sum() < 1


def test_score_rejects_unequal_numbers_of_texts() -> None:
    with pytest.raises(UsageError, check=has_code("score_pair_count_mismatch", sources=2, targets=1)):
        tiny_model().score(["a", "b"], ["c"])


def test_empty_texts_give_empty_answers() -> None:
    model = tiny_model()
    results = model.generate(["", SOURCES[0], "", SOURCES[1], ""])
    assert [result.text == "" for result in results] == [True, False, True, False, True]
    assert (results[0].ids, results[0].pieces, results[0].score, results[0].cut) == ((), (), 0.0, False)
    assert results[0].log_probability == 0.0
    assert len(model.generate(["", SOURCES[0]], beam=3, n_best=3)[0].hypotheses) == 1
    assert results[1].ids == model.generate([SOURCES[0]])[0].ids
    assert model.generate([]) == []


def test_unknown_words_are_reported() -> None:
    known, unknown = tiny_model().generate(["the cat", "the zebra sat quickly"])
    assert known.unknown == ()
    assert unknown.unknown == ("zebra", "quickly")


def test_a_single_string_is_rejected() -> None:
    with pytest.raises(UsageError, check=has_code("texts_not_list")):
        tiny_model().generate("the cat")


@pytest.mark.parametrize("wrong", [0, -3])
def test_a_limit_below_one_is_rejected(wrong: int) -> None:
    with pytest.raises(UsageError, check=has_code("length_below_one", option="max_length", value=wrong)):
        tiny_model().generate(["the cat"], max_length=wrong)


@pytest.mark.slow
@pytest.mark.parametrize("limit", [1, 2, 5])
def test_the_limit_counts_the_tokens_of_the_answer(limit: int) -> None:
    results = varied_model().generate(sentences(30), max_length=limit)
    uncut_results = varied_model().generate(sentences(30), max_length=200)
    for result, uncut in zip(results, uncut_results, strict=True):
        assert result.ids == uncut.ids[:limit]
        assert result.cut == (len(uncut.ids) > limit)


def test_the_default_limit_follows_the_source_length() -> None:
    model = endless_model()
    model.generation = GenerationConfig(max_length_factor=1.5, max_length_extra=3)
    result = model.generate(["the cat sat the cat"])[0]
    assert len(result.ids) == int(1.5 * 5) + 3
    assert result.cut


def test_answers_are_limited_by_learned_positions() -> None:
    results = endless_model(positions="learned", max_length=6).generate(["the cat sat", "a dog ran home"])
    assert [(len(result.ids), result.cut) for result in results] == [(5, True), (5, True)]  # BOS uses a position


def test_a_source_longer_than_learned_positions_is_an_error() -> None:
    text = has_code("text_position", position=2, total=2)
    error = has_code("text_exceeds_model_limit", text=text, tokens=len(WORDS), limit=5)
    with pytest.raises(UsageError, check=error):
        tiny_model(positions="learned", max_length=6).generate(["cat", " ".join(WORDS)])


def test_ids_pieces_and_text_agree() -> None:
    model = varied_model()
    for result in model.generate(sentences(10)):
        assert model.target_tokenizer.decode(result.ids) == result.text
        assert tuple(model.target_tokenizer.pieces(result.ids)) == result.pieces
        assert not {0, 2, 3} & set(result.ids)


def test_a_network_in_training_mode_runs_without_dropout() -> None:
    model = varied_model(dropout=0.5)
    texts = sentences(10)
    expected = model.generate(texts), model.score(SOURCES, TARGETS), model.trace(texts[0]).cross.tolist()
    model.network.train()
    assert model.generate(texts) == expected[0]
    model.network.train()
    assert model.score(SOURCES, TARGETS) == expected[1]
    model.network.train()
    assert model.trace(texts[0]).cross.tolist() == expected[2]


@pytest.mark.parametrize("training", [True, False])
def test_generation_keeps_training_mode_and_random_state(training: bool) -> None:
    model = varied_model(dropout=0.5)
    model.network.train(training)
    model.network.encoder.train(not training)
    modes = [module.training for module in model.network.modules()]
    random_state = torch.get_rng_state()
    model.generate(sentences(5))
    model.generate(sentences(5), beam=3)
    model.score(SOURCES, TARGETS)
    model.trace(SOURCES[0])
    TextModel(model.stored_model)
    assert [module.training for module in model.network.modules()] == modes
    assert torch.equal(torch.get_rng_state(), random_state)


def test_eval_mode_restores_the_mode_after_an_error() -> None:
    network = tiny_model().network.train()
    with eval_mode(network):
        assert not any(module.training for module in network.modules())
    with pytest.raises(ZeroDivisionError), eval_mode(network):
        raise ZeroDivisionError
    assert all(module.training for module in network.modules())


def test_the_rows_of_a_trace_are_the_predicted_tokens() -> None:
    model = varied_model()
    trace = model.trace("I love NLP", "我 爱 NLP")
    assert trace.source_pieces == ("I", "love", "NLP", "</s>")
    assert trace.target_pieces == ("我", "爱", "NLP", "</s>")
    layers, heads, source, target = 2, 2, 4, 4
    assert trace.encoder_self.shape == (layers, heads, source, source)
    assert trace.decoder_self.shape == (layers, heads, target, target)
    assert trace.cross.shape == (layers, heads, target, source)
    for weights in (trace.encoder_self, trace.decoder_self, trace.cross):
        torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:-1]))
    assert not trace.decoder_self.triu(1).any()
    assert trace.decoder_self[:, :, 0, 0].eq(1).all()  # the first predicted token attends only to BOS


def test_E49_changing_a_token_changes_only_later_attention_rows() -> None:
    """Row t is the attention that predicts token t, so token t is not in its input."""
    model = varied_model()
    one, other = model.trace("the cat sat", "我 爱 猫 了"), model.trace("the cat sat", "我 爱 狗 了")
    differs = (one.cross - other.cross).abs().amax(dim=(0, 1, 3)) > 1e-6
    assert [a == b for a, b in zip(one.target_pieces, other.target_pieces, strict=True)] == [
        True,
        True,
        False,
        True,
        True,
    ]
    assert differs.tolist() == [False, False, False, True, True]


@pytest.mark.parametrize("layers", [2, 11])
def test_layers_of_a_trace_are_in_order(layers: int) -> None:
    model = tiny_model(num_decoder_layers=layers)
    seen: dict[str, torch.Tensor] = {}
    source = model.source_tokenizer.encode("the cat sat")
    batch = collate([Example(source, model.target_tokenizer.encode("猫 坐"))])
    with torch.no_grad():
        model.network(batch.source_ids, batch.target_ids, batch.source_mask, tap=seen.__setitem__)
    trace = model.trace("the cat sat", "猫 坐")
    for n in range(layers):
        torch.testing.assert_close(trace.cross[n], seen[f"decoder.{n}.cross"][0])


def test_a_trace_without_a_target_shows_the_answer() -> None:
    model = varied_model()
    for text in (*sentences(5), ""):
        result, trace = model.generate([text])[0], model.trace(text)
        assert trace.target_pieces == (result.pieces if result.cut else (*result.pieces, "</s>"))
        assert trace.cross.shape[2] == len(trace.target_pieces)


@pytest.mark.parametrize("name", ["gpu", "", "cpu:x", "meta", "mps"])
def test_an_unknown_device_raises_usage_error(model_folder: Path, name: str) -> None:
    with pytest.raises(UsageError, check=has_code("unknown_device")):
        pick_device(name)
    with pytest.raises(UsageError, check=has_code("unknown_device")):
        load(model_folder, name)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_missing_gpu_raises_usage_error(model_folder: Path) -> None:
    assert pick_device("auto") == torch.device("cpu")
    with pytest.raises(UsageError, check=has_code("cuda_device_unavailable")):
        load(model_folder, "cuda")


def test_a_missing_folder_raises_model_error(tmp_path: Path) -> None:
    with pytest.raises(ModelError, check=has_code("model_folder_not_found")):
        load(tmp_path / "nothing")


@pytest.mark.short(2)
@pytest.mark.parametrize("options", [{}, {"beam": 4}, {"beam": 3, "stop": "first"}, {"sample": True, "n_best": 3}])
def test_every_engine_gives_the_same_answers(options: dict[str, Any]) -> None:
    model, texts = varied_model(), ["", *sentences(8)]
    options = {"max_length": 8, **options}
    expected = model.generate(texts, engine="textbook", **options)
    assert len({result.text for result in expected}) > 4
    for engine in ("cached", "fast"):
        found = model.generate(texts, engine=engine, batch_tokens=90, **options)
        assert [[each.ids for each in result.hypotheses] for result in found] == [
            [each.ids for each in result.hypotheses] for result in expected
        ]
        assert [result.score for result in found] == pytest.approx([result.score for result in expected], abs=1e-5)


def test_samples_follow_from_the_seed_and_differ() -> None:
    model, texts = varied_model(), sentences(6)
    one = model.generate(texts, sample=True, n_best=8, seed=3)
    assert one == model.generate(texts, sample=True, n_best=8, seed=3)
    assert one != model.generate(texts, sample=True, n_best=8, seed=4)
    assert all(len({each.ids for each in result.hypotheses}) > 1 for result in one)
    assert all(
        result.hypotheses[0].score >= result.hypotheses[-1].score for result in one if not result.hypotheses[-1].cut
    )


@pytest.mark.parametrize("normalise", ["none", "average", "gnmt", "reward"])
def test_a_score_is_the_sum_of_its_parts(normalise: str) -> None:
    options = {"normalise": normalise} if normalise == "none" else {"normalise": normalise, "length_penalty": 0.7}
    for result in varied_model().generate(sentences(8), beam=3, n_best=3, **options):
        scores = [each.score for each in result.hypotheses if not each.cut]
        assert scores == sorted(scores, reverse=True)
        for each in result.hypotheses:
            parts = each.parts
            assert parts.tokens == len(each.ids) + (not each.cut)
            assert each.score == pytest.approx((parts.log_probability + parts.penalty) / parts.divisor + parts.reward)
