"""Number and wait policy of PyTorch's CPU threads.

OpenMP threads spin while they wait for the others at the end of an operation. That is fastest on idle cores. If another
process uses a core, a spinning thread blocks the core that the awaited thread needs. Training the demo on 2 cores next
to one busy process fell from 8,500 to 126 tokens/s (1 thread: 6,200). Two remedies:

- Threads sleep instead of spinning (`WaitPolicy`). Sums stay the same, so training uses this.
- Fewer threads (`ThreadTuner`). The last bits of sums depend on the number of threads, so only generation and scoring
  use this.
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

_CHECK_SECONDS = 0.2  # interval between measurements of the load of other processes
_NOISE = 0.1  # cores that other processes use on an idle machine
_LOAD_CHANGE = 0.5  # cores; a larger change indicates that another process started or ended
_MIN_ROUNDS = 3  # minimum steps per number of threads in a comparison
_TRIAL_SECONDS, _CONTENDED_SECONDS = 0.12, 0.8  # length of a comparison; longer under load, because step times vary
_MIN_PAUSE_SECONDS, _MAX_PAUSE_SECONDS = 0.5, 16.0  # pause between comparisons; doubled while the choice stays
_MAX_OVERHEAD = 0.05  # maximum share of the time spent on comparisons
_MAX_TIME_RATIO = 0.95  # a new number of threads must take at most this share of the old step time


def available_cores() -> int:
    """Return the number of cores this process may use, by CPU affinity and container quota."""
    return max(1, ceil(min(len(_list_cores()), _read_quota())))


def read_thread_setting() -> int | None:
    """Return the number of threads in OMP_NUM_THREADS (which `--threads` sets), or None."""
    first = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()
    return int(first) if first.isdecimal() and int(first) > 0 else None


def thread_counts(max_threads: int) -> list[int]:
    """Return the numbers of threads to try: powers of 2, and `max_threads`."""
    return sorted(
        {*(1 << power for power in range(max_threads.bit_length()) if 1 << power <= max_threads), max_threads}
    )


class OtherLoad:
    """CPU load of other processes on our cores, in cores, from /proc/stat. It is 0 if the file cannot be read."""

    def __init__(self) -> None:
        self._own_cores = _list_cores()
        self._last = self._read()
        self.cores = 0.0  # that other processes used in the last measurement

    def measure(self) -> float:
        """Return the load since the last measurement. Intervals under 0.05 s are skipped: the ticks are 0.01 s long."""
        now, before = self._read(), self._last
        if (seconds := now[0] - before[0]) >= 0.05:
            others = (now[1] - before[1]) - (now[2] - before[2])
            self.cores, self._last = max(0.0, others / seconds), now
        return self.cores

    def restart(self) -> None:
        """Start a new measurement after an idle period, which does not count."""
        self._last = self._read()

    def has_cores_for(self, threads: int) -> bool:
        """Return whether each of `threads` threads has a free core, by the last measurement."""
        return self.cores <= _NOISE + len(self._own_cores) - threads

    def _read(self) -> tuple[float, float, float]:
        """Return three times in seconds: the clock, the busy time of our cores, and the CPU time of this process."""
        busy = 0
        try:
            for line in Path("/proc/stat").read_text().splitlines():
                name, *ticks = line.split()
                if name[:3] == "cpu" and name[3:].isdecimal() and int(name[3:]) in self._own_cores:
                    user, nice, system, _idle, _waiting, *rest = map(int, ticks[:8])
                    busy += user + nice + system + sum(rest)
        except (OSError, ValueError):
            return time.perf_counter(), 0.0, 0.0
        return time.perf_counter(), busy / os.sysconf("SC_CLK_TCK"), time.process_time()


class SpinThrottle:
    """Switches OpenMP threads between spinning and sleeping while they wait.

    GNU's OpenMP spins 300,000 times, but only 100 times if a process has more threads than cores (GCC's manual,
    GOMP_SPINCOUNT). So an idle thread that owns one OpenMP thread per core makes all other threads sleep until it ends.
    It does nothing on systems other than Linux, or if OMP_WAIT_POLICY or GOMP_SPINCOUNT is set.
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
    """Lets threads spin on idle cores and sleep on contended ones. Their number and all sums stay the same."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self.load, self._clock = OtherLoad(), clock
        self._checked = self._ended = clock()

    def begin(self) -> None:
        """Mark the start of a unit of work."""
        if self._clock() - self._ended > _CHECK_SECONDS:
            self.load.restart()

    def end(self) -> None:
        """Mark the end of a unit of work, and switch between spinning and sleeping."""
        threads, now = torch.get_num_threads(), self._clock()
        self._ended = now
        if threads > 1 and now - self._checked >= _CHECK_SECONDS:
            self._checked = now
            self.load.measure()
            THROTTLE.set(not self.load.has_cores_for(threads))


class ThreadTuner:
    """Chooses the number of threads for later steps by timing the current ones.

    Two numbers are compared on alternating steps. Longer sentences and smaller batches thus affect both equally.
    Threads sleep while they wait if there are fewer free cores than threads.
    """

    def __init__(self, max_threads: int, clock: Callable[[], float] = time.perf_counter) -> None:
        self.counts, self.load, self._clock = thread_counts(max_threads), OtherLoad(), clock
        self.best_index = self._used_index = self._guess()  # indices into `counts`
        self._begin: float | None = None
        self._elapsed = 0.0  # seconds of the last step
        self._checked = self._ended = self._due = clock()
        self._load_at_comparison = self.load.cores  # load of other processes at the last comparison
        self._pause = _MIN_PAUSE_SECONDS
        self._trial: Iterator[None] | None = None

    @property
    def threads(self) -> int:
        """The best number of threads so far."""
        return self.counts[self.best_index]

    def _guess(self) -> int:
        """Return the index of the largest number that has a core for each thread, or the last index if no core is free.

        On contended cores the system gives each thread a share, so more threads get more processor time.
        """
        free = [index for index, count in enumerate(self.counts) if _LOAD_SINCE_IMPORT.has_cores_for(count)]
        return max(free) if free else len(self.counts) - 1

    def begin(self) -> None:
        """Mark the start of a step, in the thread that computes it."""
        threads = self.counts[self._used_index]
        if torch.get_num_threads() != threads:
            torch.set_num_threads(threads)
        if threads > 1:
            THROTTLE.set(not self.load.has_cores_for(threads))
        self._begin = self._clock()
        if self._begin - self._ended > _CHECK_SECONDS:
            self.load.restart()

    def end(self) -> None:
        """Mark the end of the step, and choose the number of threads for the next one."""
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
        """Time the neighbouring numbers of threads. Yields once a step, and reads the time of that step from
        `_elapsed`.
        """
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
    """Tune the number of threads while this thread generates or scores on a CPU.

    The maximum is torch's current number. Code in this context calls `adapt_threads` before each step. If the user or a
    training run has fixed the number, it stays and only `WaitPolicy` applies.
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
    """Tune the threads of a single step. A server uses this, because it does other work between steps."""
    outer = _LOCAL.tuner
    with tune_threads():
        _LOCAL.tuner = outer or _INERT
        try:
            yield
        finally:
            _LOCAL.tuner = outer


@contextmanager
def keep_threads() -> Iterator[None]:
    """Keep the number of threads during training and validation. `adapt_threads` only changes how they wait."""
    before = _LOCAL.tuner
    _LOCAL.tuner = before or WaitPolicy()
    try:
        yield
    finally:
        _LOCAL.tuner = before


def adapt_threads() -> None:
    """Apply the current tuner. Call this before every step of generation, scoring and training."""
    if _LOCAL.tuner is not None:
        _LOCAL.tuner.end()
        _LOCAL.tuner.begin()


class _Inert:
    """A tuner that does nothing, for steps within a step that is already timed."""

    def begin(self) -> None: ...

    def end(self) -> None: ...


class _Local(threading.local):
    """The tuner of the current Python thread."""

    def __init__(self) -> None:
        self.tuner: WaitPolicy | ThreadTuner | _Inert | None = None
        self.cached_tuners = dict[int | None, WaitPolicy | ThreadTuner]()  # the next call reuses their results


def _find_tuner(max_threads: int) -> WaitPolicy | ThreadTuner:
    fixed = read_thread_setting() is not None
    key = None if fixed else max_threads
    if key not in _LOCAL.cached_tuners:
        _LOAD_SINCE_IMPORT.measure()
        _LOCAL.cached_tuners[key] = WaitPolicy() if fixed else ThreadTuner(min(max_threads, available_cores()))
    return _LOCAL.cached_tuners[key]


def _start_idle_threads(cores: int) -> Callable[[], None]:
    """Start a thread that owns `cores` sleeping OpenMP threads, and return a function that ends it."""
    ready, stop = threading.Event(), threading.Event()

    def own() -> None:
        torch.set_num_threads(cores)
        torch.empty(cores << 16).fill_(0)  # large enough to use all threads
        ready.set()
        stop.wait()

    def end() -> None:
        stop.set()
        owner.join()

    owner = threading.Thread(target=own, name="attendo-spin-throttle", daemon=True)
    owner.start()
    ready.wait()
    return end


def _list_cores() -> frozenset[int]:
    """Return the cores in the CPU affinity of this process."""
    if hasattr(os, "sched_getaffinity"):
        return frozenset(os.sched_getaffinity(0))
    return frozenset(range(os.cpu_count() or 1))


def _read_quota() -> float:
    """Return the cgroup's CPU quota in cores, or infinity."""
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
THROTTLE = SpinThrottle()  # one instance, because the wait policy applies to the whole process
