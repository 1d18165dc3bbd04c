"""The repr of models, results and traces."""

from dataclasses import replace

from tiny import tiny_model, without_source

from attendo.text_model import TextModel


def test_repr_of_models_results_and_traces_is_one_line() -> None:
    model = tiny_model()
    assert repr(model).startswith("<TextModel: encoder-decoder, ")
    assert "parameters, 17 and 18 tokens, torch on cpu>" in repr(model)
    named = TextModel(replace(model.stored_model, about={"source_language": "en", "target_language": "zh"}))
    assert repr(named).startswith("<TextModel: en→zh, encoder-decoder, ")
    assert "decoder-only" in repr(without_source())
    (result,) = model.generate(["the cat. a dog."], split=True, beam=2, n_best=2, max_length=3)
    text = repr(result)
    assert text.startswith(f"Result({result.text!r}, score={result.score:.4f}")
    assert text.endswith("2 hypotheses, joined from 2 sentences)")
    trace = model.trace("the cat", "猫")
    assert repr(trace).startswith("<Trace of '猫': 3 source and 2 target tokens, ")
    assert all("\n" not in repr(each) for each in (model, result, trace))
