"""CPU threads of PyTorch: how many compute, and how they wait for each other.

OpenMP threads spin while they wait for the others at the end of an operation. That is fastest on idle cores. Where
another process has one of the cores, a spinning thread holds the core that the thread it waits for needs: training the
demo on 2 cores beside one busy process fell from 8,500 to 126 tokens/s (1 thread: 6,200). Two remedies:

- Threads that sleep instead of spinning (`WaitPolicy`). Sums stay the same, so training does this.
- Fewer threads (`ThreadTuner`). The last bits of sums depend on their number, so only generation and scoring do this.
"""

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import ceil
from pathlib import Path
from statistics import fmean

import torch

_CHECK_SECONDS = 0.2  # between two looks at what other processes do
_NOISE = 0.1  # cores that the processes of an idle machine use
_LOAD_CHANGE = 0.5  # cores; a larger change means that another process started or ended
_MIN_ROUNDS = 3  # steps of each number of threads in a comparison
_TRIAL_SECONDS, _CONTENDED_SECONDS = 0.12, 0.8  # of a comparison; beside other processes steps vary in length
_MIN_PAUSE_SECONDS, _MAX_PAUSE_SECONDS = 0.5, 16.0  # seconds between two comparisons; doubled while the choice stays
_MAX_OVERHEAD = 0.05  # share of the time that comparisons may cost
_MAX_TIME_RATIO = 0.95  # a number of threads must take at most this share of the time of another to replace it


def available_cores() -> int:
    """Cores that this process may use: its affinity, and the quota of its container."""
    return max(1, ceil(min(len(_list_cores()), _read_quota())))


def requested_threads() -> int | None:
    """The number of threads that the user asks for by OMP_NUM_THREADS (which `--threads` sets), or None."""
    first = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()
    return int(first) if first.isdecimal() and int(first) > 0 else None


def thread_counts(max_threads: int) -> list[int]:
    """The numbers of threads that are worth a trial: powers of 2, and `max_threads`."""
    return sorted(
        {*(1 << power for power in range(max_threads.bit_length()) if 1 << power <= max_threads), max_threads}
    )


class OtherLoad:
    """How many of our cores other processes use, by Linux's statistics; none where the system does not tell."""

    def __init__(self) -> None:
        self._cores = _list_cores()
        self._last = self._read()
        self._measured = 0.0

    def measure(self) -> float:
        """Since the last call that was at least 0.05 s after the one before: the statistics count hundredths."""
        now, before = self._read(), self._last
        if (seconds := now[0] - before[0]) >= 0.05:
            others = (now[1] - before[1]) - (now[2] - before[2])
            self._measured, self._last = max(0.0, others / seconds), now
        return self._measured

    @property
    def cores(self) -> float:
        """Cores that other processes used in the last measurement."""
        return self._measured

    def restart(self) -> None:
        """Start a new measurement: this process was idle, so what others did meanwhile does not count."""
        self._last = self._read()

    def has_cores_for(self, threads: int) -> bool:
        """Whether so many threads have a core each, by the last measurement."""
        return self._measured <= _NOISE + len(self._cores) - threads

    def _read(self) -> tuple[float, float, float]:
        """The clock, the time that all processes had on our cores, and the time that this process had."""
        busy = 0
        try:
            for line in Path("/proc/stat").read_text().splitlines():
                name, *ticks = line.split()
                if name[:3] == "cpu" and name[3:].isdecimal() and int(name[3:]) in self._cores:
                    user, nice, system, _idle, _waiting, *rest = map(int, ticks[:8])
                    busy += user + nice + system + sum(rest)
        except (OSError, ValueError):
            return time.perf_counter(), 0.0, 0.0
        return time.perf_counter(), busy / os.sysconf("SC_CLK_TCK"), time.process_time()


class SpinThrottle:
    """Makes OpenMP threads sleep instead of spinning while they wait, and back, at any moment.

    GNU's OpenMP spins 300,000 times, but 100 times where a process has more threads than cores (GCC's manual,
    GOMP_SPINCOUNT). So a thread that does nothing but own as many OpenMP threads as there are cores makes all others
    sleep, until it ends. Where the user has chosen (OMP_WAIT_POLICY, GOMP_SPINCOUNT), and on other systems, nothing is
    done.
    """

    def __init__(self) -> None:
        chosen = any(name in os.environ for name in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT"))
        self.usable = sys.platform == "linux" and not chosen
        self._release: Callable[[], None] | None = None

    @property
    def active(self) -> bool:
        return self._release is not None

    def set(self, active: bool) -> None:
        with _THROTTLE_LOCK:
            if not self.usable or active == self.active:
                return
            if self._release is not None:
                self._release()
                self._release = None
            else:
                self._release = _start_idle_threads(len(_list_cores()))


class WaitPolicy:
    """Threads spin on idle cores and sleep on contended ones. Their number stays, and so do all sums."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self.load, self._clock = OtherLoad(), clock
        self._checked = self._ended = clock()

    def begin(self) -> None:
        """A unit of work begins."""
        if self._clock() - self._ended > _CHECK_SECONDS:
            self.load.restart()

    def end(self) -> None:
        """A unit of work has ended."""
        threads, now = torch.get_num_threads(), self._clock()
        self._ended = now
        if threads > 1 and now - self._checked >= _CHECK_SECONDS:
            self._checked = now
            self.load.measure()
            THROTTLE.set(not self.load.has_cores_for(threads))


class ThreadTuner:
    """Chooses the number of threads for the steps to come by timing steps like them.

    Two numbers are compared on steps that alternate, so that growing sentences and shrinking batches favour neither.
    Threads that have no core each sleep while they wait.
    """

    def __init__(self, max_threads: int, clock: Callable[[], float] = time.perf_counter) -> None:
        self.counts, self.load, self._clock = thread_counts(max_threads), OtherLoad(), clock
        self.best_index = self._used_index = self._guess()  # index of the best number, and of the one in use
        self._begin: float | None = None
        self._elapsed = 0.0  # of the last step
        self._checked = self._ended = self._due = clock()
        self._load_at_comparison = self.load.cores  # that others used when the numbers were last compared
        self._pause = _MIN_PAUSE_SECONDS
        self._trial: Iterator[None] | None = None

    @property
    def threads(self) -> int:
        """The best number so far."""
        return self.counts[self.best_index]

    def _guess(self) -> int:
        """The index of the largest number with a core for each thread; of the largest number if no core is free.

        On contended cores the system gives each thread a share, so more threads get more processor time.
        """
        free = [place for place, count in enumerate(self.counts) if _LOAD_SINCE_IMPORT.has_cores_for(count)]
        return max(free) if free else len(self.counts) - 1

    def begin(self) -> None:
        """A step begins, in the thread that computes it."""
        threads = self.counts[self._used_index]
        if torch.get_num_threads() != threads:
            torch.set_num_threads(threads)
        if threads > 1:
            THROTTLE.set(not self.load.has_cores_for(threads))
        self._begin = self._clock()
        if self._begin - self._ended > _CHECK_SECONDS:
            self.load.restart()

    def end(self) -> None:
        """The step has ended: choose for the next one."""
        if self._begin is not None:
            now = self._ended = self._clock()
            self._elapsed, self._begin = now - self._begin, None
            self._choose(now)

    def _choose(self, now: float) -> None:
        if now - self._checked >= _CHECK_SECONDS:
            self._checked = now
            if abs(self.load.measure() - self._load_at_comparison) > _LOAD_CHANGE:
                self._pause, self._due = _MIN_PAUSE_SECONDS, now
        if self._trial is None and now >= self._due:
            self._trial = self._compare()
        if self._trial is not None and next(self._trial, self) is self:
            self._trial = None
            self._due = self._clock() + self._pause

    def _compare(self) -> Iterator[None]:
        """Time the neighbouring numbers of threads. It yields once a step; `_elapsed` has the time of that step."""
        before, self._load_at_comparison, lost = self.best_index, self.load.cores, 0.0
        limit = _TRIAL_SECONDS if self.load.has_cores_for(self.threads) else _CONTENDED_SECONDS
        for other in (before - 1, before + 1):
            if not 0 <= other < len(self.counts) or self.best_index != before:
                continue
            here, there = list[float](), list[float]()
            while len(here) < _MIN_ROUNDS or sum(here) + sum(there) < limit:
                for self._used_index, times in ((before, here), (other, there)):
                    yield
                    times.append(self._elapsed)
            lost += abs(sum(there) - sum(here))
            if fmean(there) < _MAX_TIME_RATIO * fmean(here):
                self.best_index = other
        self._used_index = self.best_index
        stays = max(min(_MAX_PAUSE_SECONDS, 2 * self._pause), lost / _MAX_OVERHEAD)
        self._pause = stays if self.best_index == before else _MIN_PAUSE_SECONDS


@contextmanager
def tune_threads() -> Iterator[None]:
    """While this thread generates or scores on a CPU: at most as many threads as torch has, fewer where that is faster.

    Everything in between calls `adapt_threads` before each of its steps. A number that the user or a training run has
    fixed stays; its threads only wait as `WaitPolicy` says.
    """
    most = torch.get_num_threads()
    if most == 1 or _LOCAL.tuner is not None:
        yield
        return
    _LOCAL.tuner = tuner = _find_tuner(most)
    tuner.begin()
    try:
        yield
    finally:
        tuner.end()
        _LOCAL.tuner = None
        torch.set_num_threads(most)


@contextmanager
def tune_step() -> Iterator[None]:
    """The same for one step of many: those of a server, which has time for other things between two of them."""
    outer = _LOCAL.tuner
    with tune_threads():
        _LOCAL.tuner = outer or _INERT
        try:
            yield
        finally:
            _LOCAL.tuner = outer


@contextmanager
def keep_threads() -> Iterator[None]:
    """While a run trains: the number of threads stays, also in validations; `adapt_threads` changes how they wait."""
    before = _LOCAL.tuner
    _LOCAL.tuner = before or WaitPolicy()
    try:
        yield
    finally:
        _LOCAL.tuner = before


def adapt_threads() -> None:
    """To be called before every step of generating, scoring and training."""
    if _LOCAL.tuner is not None:
        _LOCAL.tuner.end()
        _LOCAL.tuner.begin()


class _Inert:
    """For steps within a step that is timed already."""

    def begin(self) -> None: ...

    def end(self) -> None: ...


class _Local(threading.local):
    """The tuner of each thread that computes."""

    def __init__(self) -> None:
        self.tuner: WaitPolicy | ThreadTuner | _Inert | None = None
        self.cached_tuners = dict[
            int | None, WaitPolicy | ThreadTuner
        ]()  # kept, so that the next call starts with its result


def _find_tuner(max_threads: int) -> WaitPolicy | ThreadTuner:
    fixed = requested_threads() is not None
    key = None if fixed else max_threads
    if key not in _LOCAL.cached_tuners:
        _LOAD_SINCE_IMPORT.measure()
        _LOCAL.cached_tuners[key] = WaitPolicy() if fixed else ThreadTuner(min(max_threads, available_cores()))
    return _LOCAL.cached_tuners[key]


def _start_idle_threads(cores: int) -> Callable[[], None]:
    """Starts a thread that owns as many OpenMP threads as there are cores, all asleep; returns what ends it."""
    ready, done = threading.Event(), threading.Event()

    def own() -> None:
        torch.set_num_threads(cores)
        torch.empty(cores << 16).fill_(0)  # large enough for all of them to share
        ready.set()
        done.wait()

    def end() -> None:
        done.set()
        owner.join()

    owner = threading.Thread(target=own, name="attendo-spin-throttle", daemon=True)
    owner.start()
    ready.wait()
    return end


def _list_cores() -> frozenset[int]:
    """The cores that the system lets this process run on."""
    if hasattr(os, "sched_getaffinity"):
        return frozenset(os.sched_getaffinity(0))
    return frozenset(range(os.cpu_count() or 1))


def _read_quota() -> float:
    """Cores by the quota of the control group, or infinity."""
    for file in (Path("/sys/fs/cgroup/cpu.max"), Path("/sys/fs/cgroup/cpu/cpu.cfs_quota_us")):
        try:
            quota, *period = file.read_text().split()
            period = period or [file.with_name("cpu.cfs_period_us").read_text()]
            if quota not in ("max", "-1"):
                return float(quota) / float(period[0])
        except (OSError, ValueError):
            continue
    return float("inf")


_LOCAL, _INERT, _THROTTLE_LOCK = _Local(), _Inert(), threading.Lock()
_LOAD_SINCE_IMPORT = OtherLoad()
THROTTLE = SpinThrottle()  # one for all: how threads wait is a matter of the whole process
