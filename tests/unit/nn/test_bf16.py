"""bf16 on processors without instructions for it."""

import pytest
import torch
from torch.nn import functional as F

from attendo.nn import devices
from attendo.nn.devices import configure_cpu_bf16

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("fails", "dtype", "enabled"),
    [(True, torch.bfloat16, False), (True, torch.float32, True), (False, torch.bfloat16, True)],
)
def test_onednn_is_disabled_if_it_fails(
    monkeypatch: pytest.MonkeyPatch, fails: bool, dtype: torch.dtype, enabled: bool
) -> None:
    monkeypatch.setattr(devices, "_onednn_bf16_fails", lambda: fails)
    torch.backends.mkldnn.set_flags(True, _fp32_precision=None)
    configure_cpu_bf16(CPU, dtype)
    assert torch.backends.mkldnn.enabled == enabled


def test_the_first_product_keeps_the_onednn_setting() -> None:
    """On ARM without bf16 torch would warn, which is an error in tests, and then compute differently."""
    configure_cpu_bf16(CPU, torch.bfloat16)
    before = torch.backends.mkldnn.enabled
    F.linear(torch.ones(64, 64, dtype=torch.bfloat16), torch.ones(64, 64, dtype=torch.bfloat16))
    assert torch.backends.mkldnn.enabled == before
