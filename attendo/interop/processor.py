"""What this computer's processor can do with bytes."""

from functools import cache
from pathlib import Path

_PLACE = Path("/proc/cpuinfo")
_EXACT = ("avx512_vnni", "avx_vnni", "amx_int8")


@cache
def overflows_in_bytes() -> bool:
    """Whether quick products of unsigned and signed bytes add pairs of them in 16 bits, and then overflow in silence:
    those of x86 do so without VNNI. False where nothing is known of the processor.
    """
    try:
        known = _PLACE.read_text("utf-8").split()
    except OSError:
        return False
    return "avx2" in known and not any(flag in known for flag in _EXACT)
