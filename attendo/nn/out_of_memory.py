"""Telling that memory ran out from whatever else goes wrong, and saying so in one line."""

import gc

import torch

_OF_CPU = "DefaultCPUAllocator: "
_SAID = (  # in what is else a RuntimeError like any other
    _OF_CPU,
    "std::bad_alloc",
    "CUDA error: out of memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_ALLOC_FAILED",
)


def ran_out(error: BaseException) -> bool:
    """Whether the memory of the device, or of the machine, did not suffice."""
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or any(said in str(error) for said in _SAID)


def let_go() -> None:
    """What nothing refers to any more is there for others again, in other sizes too."""
    gc.collect()
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()


def told(error: BaseException) -> str:
    """How much was asked for and how much there is, without the list of who holds the rest; then the ways out."""
    text = str(error).split(_OF_CPU)[-1]
    what = ". ".join(text.split(". ")[:3]).rstrip(".") or "out of memory"
    return "; ".join([what, *getattr(error, "__notes__", ())])
