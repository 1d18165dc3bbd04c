"""The recurrence of a decoder: its formula, padding, and the caches of all decoder states."""

from typing import Any

import pytest
import torch
from tiny import SOURCES, tiny_model
from torch import Tensor

from attendo.errors import UsageError
from attendo.interop.ctranslate2.converter import incompatibilities as ctranslate2_incompatibilities
from attendo.interop.onnx.graphs import incompatibilities as onnx_incompatibilities
from attendo.model.config import ModelConfig
from attendo.model.cpu_decoder_state import SharedCacheState
from attendo.model.decoder_state import DecoderState
from attendo.model.transformer import Transformer
from attendo.nn.attention import KeysValues, StaticKeysValues
from attendo.nn.masks import Mask, causal_mask
from attendo.nn.ssru import SSRU, run_recurrence
from attendo.runs.verify import verify

D, HEADS = 8, 2


def make_unit(seed: int = 0) -> SSRU:
    torch.manual_seed(seed)
    return SSRU(D, HEADS).double().eval()


def compute_by_definition(unit: SSRU, x: Tensor) -> Tensor:
    """One sentence [T, D], a number at a time."""
    cells = torch.zeros(len(x) + 1, D, dtype=x.dtype)
    for t, vector in enumerate(x):
        for d in range(D):
            forget = 1 / (1 + torch.exp(-(unit.forget.weight[d] @ vector + unit.forget.bias[d])))
            cells[t + 1, d] = forget * cells[t, d] + (1 - forget) * (unit.candidate.weight[d] @ vector)
    return cells[1:]


def test_the_outputs_are_those_of_the_formula() -> None:
    unit, x = make_unit(), torch.randn(3, 5, D, dtype=torch.float64)
    outputs, kept = unit(x, None, Mask(causal=True))
    expected = torch.stack([compute_by_definition(unit, each) for each in x])
    torch.testing.assert_close(outputs, expected.relu(), rtol=0, atol=1e-6)
    torch.testing.assert_close(kept.values.transpose(1, 2).flatten(2), expected, rtol=0, atol=1e-6)


def test_the_gradient_is_that_of_the_recurrence() -> None:
    generator = torch.Generator().manual_seed(3)
    given = [torch.rand(2, 4, 3, generator=generator, dtype=torch.float64) for _ in range(2)]
    first = torch.randn(2, 3, generator=generator, dtype=torch.float64)
    assert torch.autograd.gradcheck(run_recurrence, [each.requires_grad_() for each in (*given, first)])


def test_any_split_of_the_target_gives_the_same_outputs() -> None:
    unit, x = make_unit(), torch.randn(3, 6, D, dtype=torch.float64)
    whole, _ = unit(x, None, Mask(causal=True))
    past: KeysValues | None = None
    parts = []
    for part in x.split((1, 3, 2), dim=1):
        columns = 0 if past is None else past.length
        output, past = unit(part, past, causal_mask(columns, part.size(1), None, x.device))
        parts.append(output)
    torch.testing.assert_close(torch.cat(parts, 1), whole, rtol=0, atol=1e-6)


def test_padding_does_not_change_the_cell() -> None:
    unit, x = make_unit(), torch.randn(2, 4, D, dtype=torch.float64)
    is_token = torch.tensor([[True] * 4, [True, True, False, False]])
    _, kept = unit(x, None, causal_mask(0, 4, is_token, x.device))
    _, alone = unit(x[1:, :2], None, Mask(causal=True))
    torch.testing.assert_close(kept.last_values()[1], alone.last_values()[0], rtol=0, atol=0)
    assert not torch.equal(kept.values[0, :, 3], kept.values[0, :, 1])


def test_a_static_cache_gives_the_last_values_of_each_row() -> None:
    storage = torch.full((3, HEADS, 4, 2), torch.nan)
    storage[1, :, 1], storage[2, :, 0] = 5.0, 7.0
    order = torch.tensor([[0, 1, 2, 0], [2, 1, 1, 1], [0, 1, 2, 2]])
    cache = StaticKeysValues(KeysValues(storage, storage), torch.tensor([2, 1, 0]), order)
    assert cache.last_values()[:, 0, 0].tolist() == [5.0, 7.0, 0.0]  # row 1 wrote position 1, row 2 position 0


def test_a_shared_cache_gives_the_last_values_of_each_row() -> None:
    kv = KeysValues(torch.zeros(2, HEADS, 3, 2), torch.zeros(2, HEADS, 3, 2))  # the memory of 2 sentences
    state = SharedCacheState.empty(DecoderState((kv,), None), width=2)
    for step in range(2):
        state, _ = state.read(torch.zeros(4, 1, dtype=torch.long), None)
        cache = state.layer_cache(0)
        if step == 0:
            assert cache.last_values().abs().sum() == 0
        else:
            assert cache.last_values()[:, 0, 0].tolist() == [2.0, 2.0, 3.0, 4.0]
        written = torch.arange(1.0, 5.0)[:, None, None, None].expand(4, HEADS, 1, 2)
        cache.store(KeysValues(written, written))
        state = state.with_cache([]).reorder(torch.tensor([1, 1, 2, 3]))


@pytest.mark.parametrize("options", [{}, {"beam": 3}], ids=str)
def test_every_engine_gives_the_same_outputs(options: dict[str, Any]) -> None:
    """Batches of few tokens: sentences join a running batch."""
    model, texts = tiny_model(1, tie="none", autoregression="ssru"), SOURCES * 2
    factors = {"candidate": 6.0, "forget.weight": 6.0, "cross_attention.output": 6.0, "output.weight": 4.0}
    with torch.no_grad():  # so that outputs depend on the source and on the target so far
        for name, weight in model.network.named_parameters():
            weight.mul_(next((factor for part, factor in factors.items() if part in name), 1.0))
        model.network.target.tokens.weight.mul_(0.3)
    expected = model.generate(texts, engine="textbook", max_length=6, **options)
    assert len({result.text for result in expected}) > 2
    for engine in ("cached", "fast"):
        found = model.generate(texts, engine=engine, batch_tokens=30, max_length=6, **options)
        assert [each.ids for each in found] == [each.ids for each in expected]
        assert [each.score for each in found] == pytest.approx([each.score for each in expected], abs=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("norm", ["post", "pre"])
def test_all_paths_of_a_recurrent_network_agree(norm: Any) -> None:
    model = tiny_model(2, tie="none", autoregression="ssru", norm=norm)
    model.network.output.weight.data.mul_(3.0)
    model.generation = model.generation.override(max_length_extra=3, max_length_factor=1.0)
    found = list(verify(model, ["", *SOURCES]))
    assert [each for each in found if not each.equal] == []
    assert {each.what for each in found} == {"sub-layers", "greedy", "beam 4", "samples"}


@pytest.mark.parametrize(
    "changes",
    [
        {"kind": "ctc"},
        {"num_encoder_layers": 0},
        {"positions": "rotary"},
        {"positions": "relative"},
        {"d_key": 4, "d_value": 4},
    ],
    ids=str,
)
def test_settings_that_need_self_attention_are_rejected(changes: dict[str, Any]) -> None:
    sizes = {"target_vocab_size": 9} if "num_encoder_layers" in changes else {"vocab_size": 9}
    with pytest.raises(UsageError) as raised:
        ModelConfig(**sizes, d_model=8, num_heads=2, autoregression="ssru", **changes)
    assert raised.value.code == "ssru_setting_conflict"
    assert raised.value.values["option"] in changes


def test_exports_name_the_recurrence() -> None:
    config = ModelConfig(vocab_size=9, d_model=8, num_heads=2, autoregression="ssru")
    for reasons in (onnx_incompatibilities(config), ctranslate2_incompatibilities(config)):
        assert [each.code for each in reasons] == ["recurrent_decoder"]


def test_a_network_learns_its_recurrence() -> None:
    network = Transformer(
        ModelConfig(vocab_size=9, d_model=8, num_heads=2, d_ff=8, num_encoder_layers=1, num_decoder_layers=1,
                    autoregression="ssru", dropout=0.0),
        torch.Generator().manual_seed(1),
    )  # fmt: skip
    ids = torch.tensor([[4, 5, 6, 7]])
    network(ids, ids).log_softmax(-1)[0, -1, 3].backward()
    for name in ("candidate", "forget"):
        gradient = network.get_parameter(f"decoder.0.recurrence.{name}.weight").grad
        assert gradient is not None
        assert gradient.abs().sum() > 0
