"""Device helpers: selection by name, bf16 on CPUs without support, out-of-memory errors."""

import gc
import platform
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TypeVar

import torch

from attendo.errors import LocalizedText, UsageError, join_texts

ResultT = TypeVar("ResultT")
_CPUINFO = Path("/proc/cpuinfo")
_VNNI_FLAGS = ("avx512_vnni", "avx_vnni", "amx_int8")
_CPU_ALLOCATOR_PREFIX = "DefaultCPUAllocator: "
_OOM_PHRASES = (  # texts that mark a plain RuntimeError as out of memory
    _CPU_ALLOCATOR_PREFIX,
    "std::bad_alloc",
    "CUDA error: out of memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_ALLOC_FAILED",
)


@cache
def int8_saturates() -> bool:
    """Return whether fast uint8 × int8 products can overflow silently.

    On x86 without VNNI they add pairs of products in 16 bits. Returns False if the processor is unknown.
    """
    try:
        known = _CPUINFO.read_text("utf-8").split()
    except OSError:
        return False
    return "avx2" in known and not any(flag in known for flag in _VNNI_FLAGS)


def configure_cpu_bf16(device: torch.device, dtype: torch.dtype) -> None:
    """Turn oneDNN off before bf16 is used on a CPU without support for it.

    On ARM, torch tries oneDNN and fails at the first product of 16 rows. It then warns with a long stack trace and
    disables oneDNN, also for fp32 in the same process (seen with torch 2.13). Turning it off at the start keeps all
    products consistent.
    """
    if device.type == "cpu" and dtype == torch.bfloat16 and _onednn_bf16_fails():
        torch.backends.mkldnn.set_flags(False, _fp32_precision=None)


def _onednn_bf16_fails() -> bool:
    arm = platform.machine() in ("aarch64", "arm64")
    return arm and torch.backends.mkldnn.is_available() and not torch.ops.mkldnn._is_mkldnn_bf16_supported()


def pick_device(name: str) -> torch.device:
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    kind, number = parse_device(name, count)
    if kind == "cuda" and number >= count:
        raise UsageError("cuda_device_unavailable", name=name, count=count)
    return torch.device(kind if name == "auto" else name)


def parse_device(name: str, num_gpus: int) -> tuple[str, int]:
    """Return the type and the index of a device. `auto` is a GPU if there is one."""
    if name == "auto":
        return "cuda" if num_gpus else "cpu", 0
    kind, _, number = name.partition(":")
    if kind not in ("cpu", "cuda") or (number and not number.isdecimal()):
        raise UsageError("unknown_device", name=name)
    return kind, int(number or 0)


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether the error reports that device or host memory ran out."""
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or any(
        phrase in str(error) for phrase in _OOM_PHRASES
    )


def free_cached_memory() -> None:
    """Collect garbage and release PyTorch's cached GPU memory."""
    gc.collect()
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()


def halve_on_out_of_memory(
    size: int, run: Callable[[int], ResultT], on_failure: Callable[[int], None] = lambda size: None
) -> ResultT:
    """Return `run(size)`. While memory runs out, try again with half the size."""
    while True:
        try:
            return run(size)
        except (RuntimeError, MemoryError) as error:
            if size == 1 or not is_out_of_memory(error):
                raise
        # The exception is cleared here, so its traceback no longer holds tensors.
        on_failure(size)
        size //= 2
        free_cached_memory()


def oom_message(error: BaseException) -> str:
    """Return the requested and available memory and the suggested fixes, without the list of memory users."""
    text = str(error).split(_CPU_ALLOCATOR_PREFIX)[-1]
    what = ". ".join(text.split(". ")[:3]).rstrip(".") or LocalizedText("out of memory")
    return join_texts([what, *getattr(error, "__notes__", ())], "; ")
