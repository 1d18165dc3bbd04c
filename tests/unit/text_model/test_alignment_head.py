"""Alignments use the head named in the model folder, or the mean of the last layer."""

from typing import Any

import pytest
import torch
from error_codes import has_code
from varied_models import sentences, varied_model

from attendo.errors import ModelError
from attendo.text_model.alignment import AlignmentHead, align

TEXTS = sentences(4)


def test_a_named_head_gives_the_alignment() -> None:
    model = varied_model()
    results = model.generate(TEXTS)
    sources = [model.source_tokenizer.encode(text) for text in TEXTS]
    for layer in range(2):
        for head in range(2):
            named = {"alignment_head": {"layer": layer, "head": head, "error_rate": 0.1}}
            for text, result in zip(TEXTS, align(results, sources, model.networks, 64, named), strict=True):
                if "⁇" not in result.text:
                    expected = model.trace(text, result.text).cross[layer, head][: len(result.ids)]
                    assert result.alignment is not None
                    torch.testing.assert_close(result.alignment.weights, expected, atol=1e-5, rtol=0)


def test_without_a_head_or_in_an_ensemble_the_last_layer_is_averaged() -> None:
    model, other = varied_model(), varied_model(seed=5)
    results = model.generate(TEXTS)
    sources = [model.source_tokenizer.encode(text) for text in TEXTS]
    named = {"alignment_head": {"layer": 0, "head": 1}}
    plain = align(results, sources, model.networks, 64, {"exact_match": 1.0})
    text, result = next(pair for pair in zip(TEXTS, plain, strict=True) if "⁇" not in pair[1].text)
    expected = model.trace(text, result.text).cross[-1].mean(dim=0)[: len(result.ids)]
    assert result.alignment is not None
    torch.testing.assert_close(result.alignment.weights, expected, atol=1e-5, rtol=0)
    both = [model.network, other.network]
    for one, two in zip(align(results, sources, both, 64, named), align(results, sources, both, 64), strict=True):
        assert one.alignment is not None
        assert two.alignment is not None
        assert torch.equal(one.alignment.weights, two.alignment.weights)


def test_the_head_is_read_from_the_scores() -> None:
    config = varied_model().network.config
    assert AlignmentHead.from_scores({}, config) is None
    found = AlignmentHead.from_scores({"alignment_head": {"layer": 1, "head": 0}}, config)
    assert found == AlignmentHead(1, 0)
    assert found.site == "decoder.1.cross"


@pytest.mark.parametrize(
    "named", [{"layer": 2, "head": 0}, {"layer": 0, "head": -1}, {"layer": 0}, {"layer": True, "head": 0}, "1,0", 3]
)
def test_a_head_out_of_range_raises_model_error(named: Any) -> None:
    with pytest.raises(ModelError, check=has_code("alignment_head_out_of_range", layers=2, heads=2)):
        AlignmentHead.from_scores({"alignment_head": named}, varied_model().network.config)


def test_generate_uses_the_alignment_head_of_the_model() -> None:
    model = varied_model()
    model.scores["alignment_head"] = {"layer": 0, "head": 1}
    for text, result in zip(TEXTS, model.generate(TEXTS, alignments=True), strict=True):
        if "⁇" not in result.text:
            expected = model.trace(text, result.text).cross[0, 1][: len(result.ids)]
            assert result.alignment is not None
            torch.testing.assert_close(result.alignment.weights, expected, atol=1e-5, rtol=0)
