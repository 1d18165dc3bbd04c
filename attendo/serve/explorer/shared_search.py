"""Searches that several requests read at once: the page asks for an output and for a view of it at the same time."""

import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager

from attendo.text_model.results import Hypothesis

SearchSteps = Generator[str, None, tuple[Hypothesis, ...]]  # yields the new text of every token


class SharedSearches:
    """Running searches, each with a key of everything that determines its output.

    Only running ones are shared. A finished one is dropped, so that weights may change between two requests.
    """

    def __init__(self) -> None:
        self._running: list[_RunningSearch] = []
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._running)

    def stream(self, key: object, start: Callable[[], SearchSteps]) -> SearchSteps:
        """Yield the new text of a search and return its hypotheses. Without one of the same key, start it.

        Whichever reader needs the next token computes it. If this raises, such as for a cancelled request, the error is
        that reader's alone: the others start again.
        """
        given = 0  # characters
        while True:
            with self._join(key, start) as search:
                while search.is_running:
                    if given >= len(search.text):
                        search.advance()
                    new, given = search.text[given:], max(given, len(search.text))
                    yield new  # meanwhile the text may grow
                if search.hypotheses is not None:
                    if given < len(search.text):
                        yield search.text[given:]
                    return search.hypotheses

    @contextmanager
    def _join(self, key: object, start: Callable[[], SearchSteps]) -> "Iterator[_RunningSearch]":
        """Count a reader of the search. The last one ends it."""
        with self._lock:
            search = next((each for each in self._running if each.is_running and each.key == key), None)
            if search is None:
                search = _RunningSearch(key, start())
                self._running.append(search)
            search.num_readers += 1
        try:
            yield search
        finally:
            with self._lock:
                search.num_readers -= 1
                if search.num_readers == 0:
                    self._running.remove(search)
                    search.close()


class _RunningSearch:
    def __init__(self, key: object, steps: SearchSteps) -> None:
        self.key, self._steps = key, steps
        self.text, self.num_readers = "", 0
        self.hypotheses: tuple[Hypothesis, ...] | None = None
        self._failed = False
        self._lock = threading.Lock()  # two servers may have the same network, each with a thread

    @property
    def is_running(self) -> bool:
        return self.hypotheses is None and not self._failed

    def advance(self) -> None:
        """Compute one token."""
        with self._lock:
            if not self.is_running:
                return
            try:
                self.text += next(self._steps)
            except StopIteration as end:
                self.hypotheses = end.value
            except BaseException:
                self._failed = True
                raise

    def close(self) -> None:
        self._steps.close()
