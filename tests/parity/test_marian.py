"""The network against MarianMTModel of transformers with the same weights: logits and answers of `generate`."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from error_codes import ErrorCheck, has_code

from attendo.bench.systems import Workload, prepare_generation
from attendo.data.batch import collate_sources
from attendo.decode.engines import CachedEngine
from attendo.errors import ModelError
from attendo.interop.huggingface.model_classes import MARIAN as MODEL_CLASS
from attendo.model.config import ModelConfig
from attendo.model.transformer import Transformer
from attendo.text import BOS, EOS, PAD

pytest.importorskip("transformers")

MakeNetwork = Callable[..., Transformer]

MARIAN: dict[str, Any] = {"norm": "post", "position_layout": "halves"}
SOURCES = [[5, 6, 7, 8, 9], [4, 4, 10], [11], [7, 12, 13, 14, 15, 16, 5]]
TARGETS = torch.tensor([[BOS, 6, 7, 8], [BOS, 9, 10, 11], [BOS, 5, 4, 4], [BOS, 13, 1, 16]])

EXPRESSIBLE: list[dict[str, Any]] = [
    {},
    {"position_layout": "interleaved"},
    {"position_layout": "interleaved", "tie": "all", "output_bias": True, "activation": "gelu"},
    {"activation": "gelu"},
    {"activation": "silu"},
    {"tie": "none"},
    {"tie": "all"},
    {"vocab_size": None, "source_vocab_size": 17, "target_vocab_size": 23},
    {"vocab_size": None, "source_vocab_size": 17, "target_vocab_size": 19, "tie": "none", "output_bias": True},
    {"scale_embedding": False},
    {"output_bias": True},
    {"output_bias": True, "tie": "all", "activation": "gelu", "scale_embedding": False},
    {"num_heads": 1, "num_encoder_layers": 1, "num_decoder_layers": 3},
    {"d_key": 4, "d_value": 4},
]


def differing(name: str, value: object, expected: object) -> ErrorCheck:
    return has_code("setting_differs", name=name, value=value, expected=expected)


INEXPRESSIBLE: list[tuple[dict[str, Any], ErrorCheck]] = [
    ({"norm": "pre", "final_norm": False}, differing("norm", "pre", "post")),
    ({"norm_kind": "rms"}, differing("norm_kind", "rms", "layer")),
    ({"norm_epsilon": 1e-6}, differing("norm_epsilon", 1e-6, 1e-5)),
    ({"final_norm": True}, has_code("final_norm_unsupported")),
    ({"embedding_norm": True}, has_code("embedding_norm_unsupported")),
    ({"activation": "swiglu"}, has_code("gated_activation_unsupported", activation="swiglu")),
    ({"position_layout": "fairseq"}, differing("position_layout", "fairseq", "halves/interleaved")),
    ({"position_layout": "interleaved", "positions": "rotary"}, differing("positions", "rotary", "sinusoidal")),
    ({"position_layout": "interleaved", "positions": "learned"}, differing("positions", "learned", "sinusoidal")),
    ({"position_offset": 2}, differing("position_offset", 2, 0)),
    ({"d_key": 6}, differing("d_key", 6, "d_model / num_heads")),
    ({"d_value": 3}, differing("d_value", 3, "d_model / num_heads")),
    (
        {"d_model": 18, "d_key": 4, "d_value": 4},
        has_code("d_model_not_multiple_of_heads", d_model=18, num_heads=4),
    ),
    ({"num_encoder_layers": 0}, has_code("encoder_missing")),
]


@pytest.mark.short(5)
@pytest.mark.parametrize("changes", EXPRESSIBLE, ids=str)
def test_logits_are_equal(small_network: MakeNetwork, changes: dict[str, Any]) -> None:
    network = small_network(**{**MARIAN, **changes})
    assert MODEL_CLASS.incompatibilities(network.config) == []
    ids, mask = collate_sources(SOURCES)
    assert mask is not None
    with torch.no_grad():
        theirs = MODEL_CLASS.build(network)(ids, attention_mask=mask, decoder_input_ids=TARGETS).logits
        torch.testing.assert_close(theirs, network(ids, TARGETS, mask), atol=1e-4, rtol=1e-4)


@pytest.mark.short(2)
@pytest.mark.parametrize("changes", EXPRESSIBLE[::3], ids=str)
def test_generate_gives_the_same_answers(small_network: MakeNetwork, changes: dict[str, Any]) -> None:
    network = small_network(**{**MARIAN, **changes})
    ids, mask = collate_sources(SOURCES)
    output = MODEL_CLASS.build(network).generate(ids, attention_mask=mask, max_new_tokens=12, do_sample=False)
    assert set(output[:, 0].tolist()) == {BOS}
    answers = [[each for each in row if each not in (PAD, BOS, EOS)] for row in output.tolist()]
    assert (
        answers
        == prepare_generation(
            CachedEngine(network, 1 << 40), Workload(SOURCES, beam=1, batch=4, min_tokens=0, max_tokens=12)
        )()
    )
    assert any(answers)


@pytest.mark.parametrize("beam", [1, 4])
def test_answers_of_a_fixed_length_are_equal(small_network: MakeNetwork, beam: int) -> None:
    network = small_network(**MARIAN, tie="none")
    ids, mask = collate_sources(SOURCES)
    output = MODEL_CLASS.build(network).generate(
        ids, attention_mask=mask, num_beams=beam, min_new_tokens=6, max_new_tokens=6
    )
    assert (
        output[:, 1:].tolist()
        == prepare_generation(
            CachedEngine(network, 1 << 40), Workload(SOURCES, beam, batch=2, min_tokens=6, max_tokens=6)
        )()
    )


def test_an_answer_can_end_before_the_limit(small_network: MakeNetwork) -> None:
    network = small_network(**MARIAN, output_bias=True)
    with torch.no_grad():
        network.output.bias[EOS] += 100
    ids, _ = collate_sources([[5, 6]])
    assert MODEL_CLASS.build(network).generate(ids, max_new_tokens=9).tolist() == [[BOS, EOS]]


def test_control_tokens_are_ours(small_network: MakeNetwork) -> None:
    model = MODEL_CLASS.build(small_network(**MARIAN))
    for settings in (model.config, model.generation_config):
        ids = settings.pad_token_id, settings.bos_token_id, settings.eos_token_id, settings.decoder_start_token_id
        assert ids == (PAD, BOS, EOS, BOS)
        assert settings.forced_eos_token_id is None


@pytest.mark.parametrize(("changes", "reason"), INEXPRESSIBLE, ids=[str(changes) for changes, _ in INEXPRESSIBLE])
def test_unsupported_networks_raise_with_the_reason(
    small_network: MakeNetwork, changes: dict[str, Any], reason: ErrorCheck
) -> None:
    network = small_network(**{**MARIAN, **changes})
    (found,) = MODEL_CLASS.incompatibilities(network.config)
    assert reason(found)
    with pytest.raises(ModelError, check=has_code("transformers_network_unsupported", model="a MarianMTModel")):
        MODEL_CLASS.build(network)


def test_all_reasons_are_reported() -> None:
    config = ModelConfig(vocab_size=17, norm_kind="rms", positions="none")
    assert len(MODEL_CLASS.incompatibilities(config)) == 4  # norm_kind, norm, final_norm and positions


def test_the_global_random_state_is_unchanged(small_network: MakeNetwork) -> None:
    network = small_network(**MARIAN)
    torch.manual_seed(3)
    before = torch.get_rng_state()
    MODEL_CLASS.build(network)
    assert torch.equal(torch.get_rng_state(), before)


def test_sequences_may_have_max_length_tokens(small_network: MakeNetwork) -> None:
    network = small_network(**MARIAN)
    ids, _ = collate_sources([[5, 6, 7, 8] * 8])
    with torch.no_grad():
        theirs = MODEL_CLASS.build(network, max_length=33)(ids, decoder_input_ids=ids).logits
        torch.testing.assert_close(theirs, network(ids, ids), atol=1e-4, rtol=1e-4)
        with pytest.raises(IndexError):
            MODEL_CLASS.build(network, max_length=32)(ids, decoder_input_ids=ids)
