"""Device helpers: bf16 on CPUs without support, detection and description of out-of-memory errors."""

import gc
import platform
from functools import cache
from pathlib import Path

import torch

_CPUINFO = Path("/proc/cpuinfo")
_VNNI_FLAGS = ("avx512_vnni", "avx_vnni", "amx_int8")
_CPU_ALLOCATOR_PREFIX = "DefaultCPUAllocator: "
_OOM_PHRASES = (  # in what is else a RuntimeError like any other
    _CPU_ALLOCATOR_PREFIX,
    "std::bad_alloc",
    "CUDA error: out of memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_ALLOC_FAILED",
)


@cache
def int8_saturates() -> bool:
    """Whether quick products of unsigned and signed bytes add pairs of them in 16 bits, and then overflow in silence:
    those of x86 do so without VNNI. False where nothing is known of the processor.
    """
    try:
        known = _CPUINFO.read_text("utf-8").split()
    except OSError:
        return False
    return "avx2" in known and not any(flag in known for flag in _VNNI_FLAGS)


def configure_cpu_bf16(device: torch.device, dtype: torch.dtype) -> None:
    """Before bf16 is computed with on a CPU: the same way of multiplying from the first product to the last.

    On ARM torch tries oneDNN, fails at the first product of 16 rows, warns with a long stack, and does without oneDNN
    from there on, fp32 in the same process included (seen with torch 2.13). So it does without from the beginning.
    """
    if device.type == "cpu" and dtype == torch.bfloat16 and _onednn_bf16_fails():
        torch.backends.mkldnn.set_flags(False, _fp32_precision=None)


def _onednn_bf16_fails() -> bool:
    arm = platform.machine() in ("aarch64", "arm64")
    return arm and torch.backends.mkldnn.is_available() and not torch.ops.mkldnn._is_mkldnn_bf16_supported()


def is_out_of_memory(error: BaseException) -> bool:
    """Whether the memory of the device, or of the machine, did not suffice."""
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or any(said in str(error) for said in _OOM_PHRASES)


def free_cached_memory() -> None:
    """What nothing refers to any more is there for others again, in other sizes too."""
    gc.collect()
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()


def oom_message(error: BaseException) -> str:
    """How much was asked for and how much there is, without the list of who holds the rest; then the ways out."""
    text = str(error).split(_CPU_ALLOCATOR_PREFIX)[-1]
    what = ". ".join(text.split(". ")[:3]).rstrip(".") or "out of memory"
    return "; ".join([what, *getattr(error, "__notes__", ())])
