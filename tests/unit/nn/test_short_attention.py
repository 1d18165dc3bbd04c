"""Which attention the kernels for short sequences compute. `test_training_kernels.py` compares their results."""

from typing import Any

import pytest
import torch
from torch import Tensor

from attendo.nn import short_attention, triton_launch
from attendo.nn.attention import KeysValues, MultiHeadAttention, fused_attention
from attendo.nn.masks import Mask
from attendo.nn.short_attention import is_supported


def _heads(length: int, width: int = 32, rows: int = 2, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    return torch.randn(rows, 3, length, width, dtype=dtype)


@pytest.fixture
def with_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triton_launch, "runs_kernels", lambda tensor: tensor.dtype != torch.float64)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """The arguments of `attend`, which returns the queries."""
    arguments: list[tuple[Any, ...]] = []

    def attend(*given: Any) -> Any:
        arguments.append(given)
        return given[0]

    monkeypatch.setattr(short_attention, "attend", attend)
    return arguments


def test_a_cpu_does_not_use_the_kernel(calls: list[tuple[Any, ...]]) -> None:
    module, x = MultiHeadAttention(32, 2, dropout=0.1), torch.randn(2, 5, 32, requires_grad=True)
    module(*module.queries_keys_values(x), Mask(causal=True)).sum().backward()
    assert calls == []
    assert not is_supported(_heads(5), _heads(5), _heads(5))


@pytest.mark.usefixtures("with_kernels")
def test_training_uses_the_kernel(calls: list[tuple[Any, ...]]) -> None:
    queries, keys, visible = _heads(5), _heads(7), torch.ones(2, 1, 1, 7, dtype=torch.bool)
    assert fused_attention(queries, KeysValues(keys, keys), Mask(visible), 0.3) is queries
    assert [given[3:] for given in calls] == [(visible, False, 0.3, None)]


@pytest.mark.usefixtures("with_kernels")
def test_scores_with_a_bias_do_not_use_the_kernel(calls: list[tuple[Any, ...]]) -> None:
    queries, keys = _heads(5), _heads(7)
    fused_attention(queries, KeysValues(keys, keys), Mask().with_bias(torch.zeros(1, queries.size(1), 5, 7)))
    assert calls == []


@pytest.mark.usefixtures("with_kernels")
def test_decoding_does_not_use_the_kernel(calls: list[tuple[Any, ...]]) -> None:
    queries, keys = _heads(5), _heads(7)
    with torch.no_grad():
        fused_attention(queries, KeysValues(keys, keys), Mask())
    assert calls == []


@pytest.mark.usefixtures("with_kernels")
def test_a_compiler_does_not_use_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    assert is_supported(_heads(5), _heads(7), _heads(7))
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    assert not is_supported(_heads(5), _heads(7), _heads(7))


@pytest.mark.usefixtures("with_kernels")
@pytest.mark.parametrize(
    ("queries", "keys", "values", "expected"),
    [
        (_heads(64, 128), _heads(64, 128), _heads(64, 16), True),
        (_heads(65), _heads(5), _heads(5), False),
        (_heads(5), _heads(65), _heads(65), False),
        (_heads(5), _heads(0), _heads(0), False),
        (_heads(5, 24), _heads(5, 24), _heads(5), False),
        (_heads(5), _heads(5), _heads(5, 144), False),
        (_heads(5, rows=4), _heads(5), _heads(5), False),
        (_heads(32, dtype=torch.float32), _heads(5, dtype=torch.float32), _heads(5, dtype=torch.float32), True),
        (_heads(33, dtype=torch.float32), _heads(5, dtype=torch.float32), _heads(5, dtype=torch.float32), False),
        (_heads(5, dtype=torch.float64), _heads(5, dtype=torch.float64), _heads(5, dtype=torch.float64), False),
        (_heads(5, dtype=torch.float32), _heads(5), _heads(5), False),
    ],
)
def test_sizes_and_precisions_of_the_kernel(queries: Tensor, keys: Tensor, values: Tensor, expected: bool) -> None:
    assert is_supported(queries, keys, values) == expected


@pytest.mark.usefixtures("with_kernels")
def test_autocast_decides_the_precision() -> None:
    queries, keys = _heads(64, dtype=torch.float32), _heads(64)
    assert not is_supported(queries, keys, keys)
    with torch.autocast("cpu", torch.bfloat16):
        assert is_supported(queries, keys, keys)
