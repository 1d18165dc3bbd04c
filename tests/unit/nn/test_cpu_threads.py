"""The thread count and the wait policy follow the load of other processes and the time of steps."""

import threading
from collections.abc import Iterator

import pytest
import torch

from attendo.nn import cpu_threads
from attendo.nn.cpu_threads import OtherLoad, SpinThrottle, ThreadTuner, WaitPolicy, available_cores, thread_counts


@pytest.fixture(autouse=True)
def _same_threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Four cores and a fake throttle. The thread count is restored afterwards."""
    before = torch.get_num_threads()
    monkeypatch.setattr(cpu_threads, "_list_cores", lambda: frozenset(range(4)))
    monkeypatch.setattr(cpu_threads, "THROTTLE", FakeThrottle())
    monkeypatch.setattr(cpu_threads, "_LOCAL", cpu_threads._Local())
    yield
    torch.set_num_threads(before)


class FakeThrottle:
    active = False

    def set(self, active: bool) -> None:
        self.active = active


class Machine:
    """A clock that steps advance, and other processes that use cores."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.clock, self.others = 0.0, 0.0
        machine = self

        def read(load: OtherLoad) -> tuple[float, float, float]:
            return machine.clock, machine.others * machine.clock + 100.0, 0.0

        monkeypatch.setattr(OtherLoad, "_read", read)

    def set_others(self, cores: float) -> None:
        self.others = cores

    def now(self) -> float:
        return self.clock


def run_steps(tuner: ThreadTuner, machine: Machine, seconds: dict[int, float], steps: int) -> list[int]:
    """The thread count of each step. `seconds` has the duration of a step for each count."""
    used = []
    for _ in range(steps):
        tuner.begin()
        used.append(torch.get_num_threads())
        machine.clock += seconds[used[-1]]
        tuner.end()
    return used


def test_thread_counts_are_powers_of_two_and_all_cores() -> None:
    assert [thread_counts(most) for most in (1, 2, 6, 16)] == [[1], [1, 2], [1, 2, 4, 6], [1, 2, 4, 8, 16]]


@pytest.mark.parametrize("fastest", [1, 2, 4])
def test_the_tuner_settles_on_the_fastest_count(monkeypatch: pytest.MonkeyPatch, fastest: int) -> None:
    machine = Machine(monkeypatch)
    tuner = ThreadTuner(4, machine.now)
    seconds = {count: 0.01 * (1 + abs(count.bit_length() - fastest.bit_length())) for count in (1, 2, 4)}
    used = run_steps(tuner, machine, seconds, 3000)
    assert tuner.threads == fastest
    assert used[-1000:].count(fastest) > 900, "comparisons become rare"


def test_the_tuner_adapts_to_changed_speeds(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch)
    tuner = ThreadTuner(4, machine.now)
    run_steps(tuner, machine, {1: 0.03, 2: 0.02, 4: 0.01}, 1000)
    assert tuner.threads == 4
    run_steps(tuner, machine, {1: 0.01, 2: 0.02, 4: 0.5}, 1000)
    assert tuner.threads == 1


def test_has_cores_for_counts_free_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch)
    load = OtherLoad()
    machine.set_others(0.0)
    machine.clock = 1.0
    load.measure()
    assert [load.has_cores_for(count) for count in (1, 3, 4)] == [True, True, True]
    machine = Machine(monkeypatch)
    load = OtherLoad()
    load.cores = 1.0
    assert [load.has_cores_for(count) for count in (1, 3, 4)] == [True, True, False]


def test_the_load_excludes_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    readings = iter([(0.0, 50.0, 10.0), (2.0, 56.0, 12.0), (2.01, 56.0, 12.0)])
    monkeypatch.setattr(OtherLoad, "_read", lambda load: next(readings))
    load = OtherLoad()
    assert load.measure() == pytest.approx(2.0)  # 6 s of CPU time in 2 s, of which 2 s were ours
    assert load.measure() == pytest.approx(2.0), "too soon: the statistics have a resolution of 0.01 s"


def test_restart_discards_the_idle_period(monkeypatch: pytest.MonkeyPatch) -> None:
    readings = iter([(0.0, 0.0, 0.0), (60.0, 120.0, 0.0), (61.0, 121.5, 1.0)])
    monkeypatch.setattr(OtherLoad, "_read", lambda load: next(readings))
    load = OtherLoad()
    load.restart()
    assert load.measure() == pytest.approx(0.5)


@pytest.mark.parametrize(("others", "threads"), [(0.0, 4), (1.0, 2), (3.0, 1), (3.4, 4)])
def test_the_first_count_leaves_cores_to_other_processes(
    monkeypatch: pytest.MonkeyPatch, others: float, threads: int
) -> None:
    machine = Machine(monkeypatch)
    monkeypatch.setattr(cpu_threads._LOAD_SINCE_IMPORT, "_own_cores", frozenset(range(4)))
    monkeypatch.setattr(cpu_threads._LOAD_SINCE_IMPORT, "cores", others)
    assert ThreadTuner(4, machine.now).threads == threads


def test_the_wait_policy_never_changes_the_thread_count(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.set_num_threads(4)
    readings = [0.0, 1.0, 1.0, 0.0]
    policy = WaitPolicy(clock=iter(range(100)).__next__)
    throttled = []
    for others in readings:
        monkeypatch.setattr(policy.load, "cores", others)
        monkeypatch.setattr(policy.load, "measure", lambda: 0.0)
        policy.end()
        throttled.append(cpu_threads.THROTTLE.active)
        assert torch.get_num_threads() == 4
    assert throttled == [False, True, True, False]


def test_one_thread_is_not_throttled(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.set_num_threads(1)
    policy = WaitPolicy(clock=iter(range(100)).__next__)
    monkeypatch.setattr(policy.load, "cores", 4.0)
    monkeypatch.setattr(policy.load, "measure", lambda: 4.0)
    policy.end()
    assert not cpu_threads.THROTTLE.active


def test_the_throttle_has_a_thread_only_while_active(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT"):
        monkeypatch.delenv(name, raising=False)
    throttle = SpinThrottle()
    throttle.usable = True

    def owners() -> list[str]:
        return [each.name for each in threading.enumerate() if each.name == "attendo-spin-throttle"]

    throttle.set(True)
    throttle.set(True)
    assert len(owners()) == 1
    throttle.set(False)
    assert owners() == []
    assert not throttle.active


@pytest.mark.parametrize("name", ["OMP_WAIT_POLICY", "GOMP_SPINCOUNT"])
def test_a_wait_policy_of_the_user_is_kept(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "passive" if name == "OMP_WAIT_POLICY" else "1000")
    throttle = SpinThrottle()
    throttle.set(True)
    assert not throttle.active


def test_tuning_restores_the_torch_thread_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    torch.set_num_threads(2)
    with cpu_threads.tune_threads():
        tuner = cpu_threads._LOCAL.tuner
        assert isinstance(tuner, ThreadTuner)
        tuner.best_index = tuner._used_index = 0
        cpu_threads.adapt_threads()
        assert torch.get_num_threads() == 1
        with cpu_threads.tune_threads():
            assert cpu_threads._LOCAL.tuner is tuner, "one tuner at a time"
    assert torch.get_num_threads() == 2


def test_a_thread_count_of_the_user_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    torch.set_num_threads(2)
    with cpu_threads.tune_threads():
        assert isinstance(cpu_threads._LOCAL.tuner, WaitPolicy)
        cpu_threads.adapt_threads()
        assert torch.get_num_threads() == 2


def test_validations_keep_the_thread_count_of_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    torch.set_num_threads(2)
    with cpu_threads.keep_threads(), cpu_threads.tune_threads(), cpu_threads.tune_step():
        assert not isinstance(cpu_threads._LOCAL.tuner, ThreadTuner)
        assert torch.get_num_threads() == 2


def test_tune_step_times_only_the_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    torch.set_num_threads(2)
    for _ in range(2):
        with cpu_threads.tune_step():
            assert not isinstance(cpu_threads._LOCAL.tuner, ThreadTuner), "steps within are not timed again"
            cpu_threads.adapt_threads()
    (tuner,) = cpu_threads._LOCAL.cached_tuners.values()
    assert isinstance(tuner, ThreadTuner)
    assert tuner._elapsed > 0
    assert tuner._begin is None


@pytest.mark.parametrize(("quota", "cores"), [(float("inf"), 4), (1.5, 2), (0.25, 1), (8.0, 4)])
def test_the_quota_of_a_container_limits_cores(monkeypatch: pytest.MonkeyPatch, quota: float, cores: int) -> None:
    monkeypatch.setattr(cpu_threads, "_read_quota", lambda: quota)
    assert available_cores() == cores


@pytest.mark.parametrize(("value", "threads"), [("3", 3), ("2,4", 2), ("", None), ("0", None), ("many", None)])
def test_omp_num_threads_is_read(monkeypatch: pytest.MonkeyPatch, value: str, threads: int | None) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", value)
    assert cpu_threads.read_thread_setting() == threads
