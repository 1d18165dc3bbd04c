"""int8_saturates reads the flags of the processor from /proc/cpuinfo."""

from pathlib import Path

import pytest

from attendo.nn import devices


@pytest.mark.parametrize(
    ("flags", "overflows"),
    [
        ("fpu sse2 avx2", True),
        ("fpu sse2 avx2 avx512f avx512bw", True),
        ("fpu sse2 avx2 avx512f avx512_vnni", False),
        ("fpu sse2 avx2 avx_vnni", False),
        ("asimd asimddp", False),  # not x86
    ],
)
def test_only_x86_without_vnni_saturates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flags: str, overflows: bool
) -> None:
    (tmp_path / "cpuinfo").write_text(f"processor : 0\nflags : {flags}\n")
    monkeypatch.setattr(devices, "_CPUINFO", tmp_path / "cpuinfo")
    assert devices.int8_saturates.__wrapped__() is overflows


def test_without_cpuinfo_it_returns_false(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "_CPUINFO", tmp_path / "missing")
    assert devices.int8_saturates.__wrapped__() is False
