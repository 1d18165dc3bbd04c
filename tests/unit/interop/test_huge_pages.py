"""Huge pages: which memory is new, which of it fills pages, and that values do not change."""

import numpy as np
import pytest

from attendo.interop.onnx import session
from attendo.interop.onnx.session import huge_page_ranges, huge_pages, new_ranges

PAGE_BYTES = 1 << 21


def test_existing_ranges_are_excluded() -> None:
    before = [(10, 20), (30, 40), (60, 70)]
    after = [(5, 25), (30, 40), (50, 80), (90, 95)]
    assert list(new_ranges(after, before)) == [(5, 10), (20, 25), (50, 60), (70, 80), (90, 95)]
    assert list(new_ranges(before, before)) == []
    assert list(new_ranges([(12, 15)], before)) == []


def test_pages_are_completely_inside_a_range() -> None:
    parts = [(0, PAGE_BYTES), (1, 2 * PAGE_BYTES), (PAGE_BYTES - 1, 4 * PAGE_BYTES + 1), (1, PAGE_BYTES)]
    assert list(huge_page_ranges(iter(parts))) == [
        (0, PAGE_BYTES),
        (PAGE_BYTES, 2 * PAGE_BYTES),
        (PAGE_BYTES, 4 * PAGE_BYTES),
    ]


def test_values_are_unchanged() -> None:
    with huge_pages():
        numbers = np.arange(4 * PAGE_BYTES)
    assert (numbers == np.arange(4 * PAGE_BYTES)).all()


def test_madvise_is_called_if_the_system_supports_it(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[int, int, int]] = []

    class System:
        @staticmethod
        def madvise(begin: object, size: object, advice: int) -> int:
            calls.append((begin.value, size.value, advice))  # type: ignore[attr-defined]
            return -1

    ranges = [[(0, PAGE_BYTES)], [(0, 3 * PAGE_BYTES)]]
    monkeypatch.setattr(session, "_anonymous_memory", lambda: ranges.pop(0))
    monkeypatch.setattr(session, "_huge_pages_enabled", lambda: True)
    monkeypatch.setattr("ctypes.CDLL", lambda _: System)
    with huge_pages():
        pass
    assert calls == [(PAGE_BYTES, 2 * PAGE_BYTES, 14), (PAGE_BYTES, 2 * PAGE_BYTES, 25)]


def test_madvise_is_not_called_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[object] = []
    ranges = [[(0, PAGE_BYTES)], [(0, 3 * PAGE_BYTES)]]
    monkeypatch.setattr(session, "_anonymous_memory", lambda: ranges.pop(0))
    monkeypatch.setattr(session, "_huge_pages_enabled", lambda: False)
    monkeypatch.setattr("ctypes.CDLL", lambda name: loaded.append(name))
    with huge_pages():
        pass
    assert loaded == []
