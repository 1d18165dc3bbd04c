"""Large pages: a processor that reads tens of megabytes at every step looks up far fewer pages of 2 MiB than of 4 KiB.

Linux gives them to whoever asks, for memory that is there already. Where it does not, everything stays as it was.
"""

import ctypes
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

_LARGE = 1 << 21
_ASK, _COLLAPSE = 14, 25  # advice of madvise: large pages from now on, and at once
_MAPS = Path("/proc/self/maps")
_ON_REQUEST = Path("/sys/kernel/mm/transparent_hugepage/enabled")

Part = tuple[int, int]  # addresses, from the one to before the other


@contextmanager
def in_large_pages() -> Iterator[None]:
    """Memory that the process comes to hold meanwhile is moved into large pages at the end."""
    before = _held() if _are_given() else []
    yield
    if not before:
        return
    advise = ctypes.CDLL(None).madvise
    for begin, end in whole_pages(added(_held(), before)):
        for advice in (_ASK, _COLLAPSE):  # what is refused changes nothing
            advise(ctypes.c_void_p(begin), ctypes.c_size_t(end - begin), advice)


def added(after: Sequence[Part], before: Sequence[Part]) -> Iterator[Part]:
    """What is in the one and not in the other; both in order."""
    for begin, end in after:
        for known, known_end in before:
            if known < end and begin < known_end:
                if begin < known:
                    yield begin, known
                begin = known_end
        if begin < end:
            yield begin, end


def whole_pages(parts: Iterator[Part]) -> Iterator[Part]:
    """Of each the large pages that lie in it from end to end."""
    for begin, end in parts:
        first, last = -(-begin // _LARGE) * _LARGE, end // _LARGE * _LARGE
        if first < last:
            yield first, last


def _are_given() -> bool:
    return _ON_REQUEST.is_file() and "[madvise]" in _ON_REQUEST.read_text() and _MAPS.is_file()


def _held() -> list[Part]:
    """Memory that is the process's own and no file's."""
    parts = []
    for line in _MAPS.read_text().splitlines():
        place, rights, _, _, file, *name = line.split()
        if rights == "rw-p" and file == "0" and name in ([], ["[heap]"]):
            begin, end = place.split("-")
            parts.append((int(begin, 16), int(end, 16)))
    return parts
