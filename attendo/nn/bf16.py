"""Products of bf16 on processors that have no instructions for them."""

import platform

import torch


def settle_bf16(device: torch.device, dtype: torch.dtype) -> None:
    """Before bf16 is computed with on a CPU: the same way of multiplying from the first product to the last.

    On ARM torch tries oneDNN, fails at the first product of 16 rows, warns with a long stack, and does without oneDNN
    from there on, fp32 in the same process included (seen with torch 2.13). So it does without from the beginning.
    """
    if device.type == "cpu" and dtype == torch.bfloat16 and _fails():
        torch.backends.mkldnn.set_flags(False, _fp32_precision=None)


def _fails() -> bool:
    arm = platform.machine() in ("aarch64", "arm64")
    return arm and torch.backends.mkldnn.is_available() and not torch.ops.mkldnn._is_mkldnn_bf16_supported()
