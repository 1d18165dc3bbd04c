"""Large pages: what memory is new, which of it fills pages, and that nothing but pages changes."""

import numpy as np
import pytest

from attendo.interop.onnx import session
from attendo.interop.onnx.session import huge_page_ranges, huge_pages, new_ranges

LARGE = 1 << 21


def test_what_was_there_before_is_not_added() -> None:
    before = [(10, 20), (30, 40), (60, 70)]
    after = [(5, 25), (30, 40), (50, 80), (90, 95)]
    assert list(new_ranges(after, before)) == [(5, 10), (20, 25), (50, 60), (70, 80), (90, 95)]
    assert list(new_ranges(before, before)) == []
    assert list(new_ranges([(12, 15)], before)) == []


def test_pages_lie_in_a_part_from_end_to_end() -> None:
    parts = [(0, LARGE), (1, 2 * LARGE), (LARGE - 1, 4 * LARGE + 1), (1, LARGE)]
    assert list(huge_page_ranges(iter(parts))) == [(0, LARGE), (LARGE, 2 * LARGE), (LARGE, 4 * LARGE)]


def test_numbers_stay_what_they_are() -> None:
    with huge_pages():
        numbers = np.arange(4 * LARGE)
    assert (numbers == np.arange(4 * LARGE)).all()


def test_memory_is_asked_for_where_the_system_has_it_on_request(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, int, int]] = []

    class System:
        @staticmethod
        def madvise(begin: object, size: object, advice: int) -> int:
            asked.append((begin.value, size.value, advice))  # type: ignore[attr-defined]
            return -1

    held = [[(0, LARGE)], [(0, 3 * LARGE)]]
    monkeypatch.setattr(session, "_anonymous_memory", lambda: held.pop(0))
    monkeypatch.setattr(session, "_huge_pages_enabled", lambda: True)
    monkeypatch.setattr("ctypes.CDLL", lambda _: System)
    with huge_pages():
        pass
    assert asked == [(LARGE, 2 * LARGE, 14), (LARGE, 2 * LARGE, 25)]


def test_where_it_has_not_nothing_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "_huge_pages_enabled", lambda: False)
    monkeypatch.setattr("ctypes.CDLL", None)
    with huge_pages():
        pass
