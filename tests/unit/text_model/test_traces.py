"""Traces with their tokens and steps, and models with disabled heads."""

import json
import math
from typing import Any

import pytest
import torch
from error_codes import ErrorCheck, has_code
from varied_models import sentences, varied_model

from attendo.errors import UsageError
from attendo.text_model import TextModel

TEXT, TARGET = "the cat sat", "猫 坐 着"
DISABLED = {"decoder.1.cross": {0: 0.0, 1: 0.0}, "encoder.0.self": {1: 0.0}}


def test_rows_and_columns_have_their_tokens() -> None:
    trace = varied_model().trace(TEXT, TARGET)
    assert trace.source_pieces == ("the", "cat", "sat", "</s>")
    assert trace.read_pieces == ("<s>", "猫", "坐", "着")
    assert trace.target_pieces == ("猫", "坐", "着", "</s>")
    assert (trace.given, trace.text, trace.unknown) == (True, TARGET, ())


def test_a_trace_is_a_mapping_of_tensors() -> None:
    trace = varied_model().trace(TEXT, TARGET)
    assert len(trace) == len(list(trace)) == len(trace.entries)
    assert torch.equal(trace["decoder.1.cross.weights"], trace.cross[1])
    assert torch.equal(trace["encoder.0.self.weights"], trace.encoder_self[0])
    assert "nothing" not in trace
    with pytest.raises(KeyError):
        trace["nothing"]


def test_the_loss_equals_that_of_the_score() -> None:
    model = varied_model()
    trace, scored = model.trace(TEXT, TARGET), model.score_tokens([TEXT], [TARGET])[0]
    torch.testing.assert_close(trace.log_probabilities, torch.tensor(scored.log_probabilities))
    assert trace.loss == pytest.approx(-scored.log_probability / len(scored.pieces))


def test_steps_report_the_distribution() -> None:
    trace = varied_model().trace(TEXT, TARGET)
    for t, step in enumerate(trace.steps(4)):
        row = trace.probabilities[t]
        assert (step.piece, step.id) == (trace.target_pieces[t], trace.target_ids[t])
        assert step.probability == pytest.approx(float(row[step.id]))
        assert step.log_probability == pytest.approx(math.log(step.probability))
        assert step.rank == 1 + sum(float(each) > step.probability for each in row)
        assert step.entropy == pytest.approx(-sum(float(p) * math.log(float(p)) for p in row))
        assert step.eos_probability == pytest.approx(float(row[3]))
        assert [one.probability for one in step.top] == pytest.approx(row.sort(descending=True).values[:4].tolist())
        assert [one.piece for one in step.top] == trace.tokenizer.pieces([one.id for one in step.top])


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_sizes_are_vector_norms(norm: str) -> None:
    trace = varied_model(norm=norm).trace(TEXT, TARGET)
    sizes = {each.place: each for each in trace.sizes()}
    assert list(sizes)[:2] == ["encoder.0.self", "encoder.0.feed_forward"]
    assert len(sizes) == 2 * 2 + 2 * 3
    first = sizes["encoder.0.self"]
    entering, adding = trace["source.input"], trace["encoder.0.self.output"]
    assert first.entering == pytest.approx(float(entering.norm(dim=-1).mean()), rel=1e-4)
    assert first.adding == pytest.approx(float(adding.norm(dim=-1).mean()), rel=1e-4)
    share = adding.norm(dim=-1) / (adding.norm(dim=-1) + entering.norm(dim=-1))
    assert first.share == pytest.approx(float(share.mean()), rel=1e-4)
    before = entering if norm == "pre" else entering + adding
    gain = trace["encoder.0.self.norm"].norm(dim=-1) / before.norm(dim=-1)
    assert first.gain == pytest.approx(float(gain.mean()), rel=1e-4)


def test_a_trace_without_a_target_is_greedy_for_any_default() -> None:
    model = varied_model()
    model.generation = model.generation.override(beam=4, beam_groups=2)
    for text in sentences(4):
        trace = model.trace(text)
        assert trace.target_ids[: len(trace.target_ids)] == tuple(trace.probabilities.argmax(dim=-1).tolist())
        assert not trace.given


def test_unknown_words_are_reported() -> None:
    trace = varied_model().trace("the xylophone sat", TARGET)
    assert trace.unknown == ("xylophone",)
    assert trace.source_pieces[1] == "<unk>"


def test_a_trace_of_one_layer_has_one_attention_map() -> None:
    model = varied_model(num_encoder_layers=1, num_decoder_layers=3)
    full, part = model.trace(TEXT, TARGET), model.trace(TEXT, TARGET, layer=2)
    assert (part.encoder_layers, part.decoder_layers) == ((), (2,))
    assert torch.equal(part.cross[0], full.cross[2])
    assert part.encoder_self.shape == (0, 2, 4, 4)


def test_generate_score_and_trace_agree_with_disabled_heads() -> None:
    model = varied_model()
    without = model.with_heads(DISABLED)
    texts = sentences(6)
    assert [each.ids for each in without.generate(texts)] != [each.ids for each in model.generate(texts)]
    for text in texts:
        best = without.generate([text])[0].best
        trace = model.trace(text, heads=DISABLED)
        assert trace.target_ids[: len(best.ids)] == best.ids
        assert float(trace.log_probabilities.sum()) == pytest.approx(best.log_probability, abs=1e-4)
        assert torch.equal(without.trace(text).logits, trace.logits)
    scored = without.score_tokens([TEXT], [TARGET])[0]
    expected = model.trace(TEXT, TARGET, heads=DISABLED).log_probabilities
    torch.testing.assert_close(torch.tensor(scored.log_probabilities), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("options", [{"engine": "fast"}, {"engine": "cached"}, {"beam": 3}, {"precision": "fp32"}])
def test_every_search_respects_disabled_heads(options: dict[str, Any]) -> None:
    model = varied_model()
    texts = sentences(4)
    found = model.with_heads(DISABLED).generate(texts, **options)
    for text, result in zip(texts, found, strict=True):
        scores = model.with_heads(DISABLED).score([text], [result.text])
        assert not result.cut
        assert result.log_probability == pytest.approx(scores[0], abs=1e-4)


def test_another_precision_respects_disabled_heads() -> None:
    model, texts = varied_model(), sentences(4)
    unchanged = model.generate(texts, precision="bf16")
    without = model.with_heads(DISABLED).generate(texts, precision="bf16")
    scores = [each.log_probability for each in without]
    assert scores != pytest.approx([each.log_probability for each in unchanged], abs=0.1)
    exact = model.with_heads(DISABLED).score(texts, [each.text for each in without])
    assert not any(each.cut for each in without)
    assert scores == pytest.approx(exact, abs=0.3)


def test_disabled_heads_accumulate() -> None:
    model = varied_model()
    both = model.with_heads({"decoder.0.cross": {0: 0.0}}).with_heads({"decoder.0.cross": {1: 0.0}})
    expected = model.with_heads({"decoder.0.cross": {0: 0.0, 1: 0.0}})
    assert both.score([TEXT], [TARGET]) == expected.score([TEXT], [TARGET])
    assert model.with_heads({}).score([TEXT], [TARGET]) == pytest.approx(model.score([TEXT], [TARGET]))


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda model: model.save("x"), has_code("save_with_scaled_heads")),
        (lambda model: model.generate([TEXT], alignments=True), has_code("alignments_scaled_heads_conflict")),
        (
            lambda model: model.generate([TEXT], engine="textbook"),
            has_code("textbook_engine_conflict", feature="scaled heads"),
        ),
        (
            lambda model: model.generate([TEXT], coverage_penalty=0.1),
            has_code("coverage_penalty_conflict", feature="scaled heads"),
        ),
    ],
)
def test_calls_incompatible_with_disabled_heads_raise_usage_error(call: Any, error: ErrorCheck) -> None:
    model: TextModel = varied_model().with_heads(DISABLED)
    with pytest.raises(UsageError, check=error):
        call(model)


def test_a_trace_converts_to_plain_rounded_json() -> None:
    trace = varied_model().trace(TEXT, TARGET, heads={"decoder.0.cross": {1: 0.5}})
    data = json.loads(json.dumps(trace.as_json(), allow_nan=False))
    assert data["source"]["pieces"] == list(trace.source_pieces)
    assert data["predicted"] == {"pieces": list(trace.target_pieces), "ids": list(trace.target_ids)}
    assert data["heads"] == {"decoder.0.cross": {"1": 0.5}}
    assert data["layers"] == {"encoder": [0, 1], "decoder": [0, 1]}
    assert len(data["steps"][0]["top"]) == 10
    tensors = {each["name"]: each for each in data["tensors"]}
    assert list(tensors) == list(trace)
    weights = tensors["decoder.1.cross.weights"]
    assert (weights["formula"], weights["shape"]) == ("softmax", [2, 4, 4])
    torch.testing.assert_close(torch.tensor(weights["values"]), trace.cross[1], atol=1e-6, rtol=1e-5)
    assert tensors["decoder.0.self.masked"]["values"][0][0][1] is None
    assert tensors["source.ids"]["values"] == list(trace.source_ids)
