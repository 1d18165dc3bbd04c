"""`BatchAdmissionQueue`: the wait follows from the duration of earlier requests and the start time of running ones."""

from collections.abc import Callable

import pytest

from attendo.serve.scheduling.admission import BatchAdmissionQueue
from attendo.serve.scheduling.jobs import GenerateJob, ScheduledJob

Clock = Callable[[float], None]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Sets the fake time, in seconds."""
    moment = [1000.0]
    monkeypatch.setattr("time.monotonic", lambda: moment[0])

    def set_time(seconds: float) -> None:
        moment[0] = 1000.0 + seconds

    return set_time


class Scenario:
    """A queue for `slots` slots, after one request that took `took` seconds."""

    def __init__(self, clock: Clock, slots: int, took: float | None, seconds: float = 0.5) -> None:
        self.clock, self.slots = clock, slots
        self.queue = BatchAdmissionQueue(seconds, lambda: self.slots - len(self.running))
        self.running: list[ScheduledJob] = []
        if took is not None:
            clock(-took)
            before = start_job()
            clock(0.0)
            self.queue.record_finished([before])

    def start(self, *moments: float) -> None:
        """Starts a request at each of these times."""
        for moment in moments:
            self.clock(moment)
            self.running.append(start_job())
        self.queue.set_running(self.running)

    def count_admitted(self, moment: float, most: int = 1000) -> int:
        """How many of `most` new requests are admitted at this time."""
        self.clock(moment)
        for count in range(most):
            if self.queue.is_overloaded:
                return count
            self.queue.add(ScheduledJob(GenerateJob((), {}), lambda event: None))
        return most


def start_job() -> ScheduledJob:
    job = ScheduledJob(GenerateJob((), {}), lambda event: None)
    job.start()
    return job


def test_requests_started_together_finish_together(clock: Clock) -> None:
    """A wait for them is accepted up to two seconds."""
    for took, moment, count in ((3.0, 0.1, 0), (3.0, 0.9, 0), (3.0, 1.1, 3), (3.0, 2.9, 3), (1.9, 0.0, 3)):
        scenario = Scenario(clock, slots=4, took=took)
        scenario.start(0.0, 0.0, 0.0, 0.0)
        assert scenario.count_admitted(moment) == count, moment


def test_staggered_requests_finish_one_by_one(clock: Clock) -> None:
    """Half of them finish in half of the time that a request takes."""
    scenario = Scenario(clock, slots=6, took=1.2)
    scenario.start(-1.1, -0.9, -0.7, -0.5, -0.3, -0.1)
    assert scenario.count_admitted(0.0) == 4  # they wait 0.1, 0.3, 0.5 and 0.7 s


@pytest.mark.parametrize(("took", "count"), [(0.11, 16), (0.2, 8), (30.0, 0)])
def test_waits_up_to_half_a_second_are_always_admitted(clock: Clock, took: float, count: int) -> None:
    for seconds in (0.5, 100.0):
        scenario = Scenario(clock, slots=4, took=took, seconds=seconds)
        scenario.start(0.0, 0.0, 0.0, 0.0)
        if seconds == 0.5:
            assert scenario.count_admitted(0.0) == count
        else:
            assert scenario.count_admitted(0.0, most=count + 1) == count + 1


def test_free_slots_need_no_wait(clock: Clock) -> None:
    scenario = Scenario(clock, slots=4, took=9.0)
    scenario.start(0.0)
    assert scenario.count_admitted(0.0) == 3


def test_overdue_requests_do_not_count_as_finished(clock: Clock) -> None:
    """They do not count as nearly finished, so no more requests than usual may wait for them."""
    scenario = Scenario(clock, slots=4, took=1.0)
    scenario.start(-8.0, -8.0, -8.0, -8.0)
    assert scenario.count_admitted(0.0) == 3


def test_before_the_first_result_running_times_are_the_estimate(clock: Clock) -> None:
    scenario = Scenario(clock, slots=2, took=None)
    scenario.start(0.0, 0.0)
    assert scenario.count_admitted(0.09) == 12
    assert Scenario(clock, slots=2, took=None).queue.is_overloaded is False


def test_old_durations_are_dropped(clock: Clock) -> None:
    scenario = Scenario(clock, slots=1, took=30.0)
    scenario.start(59.0)
    assert scenario.count_admitted(59.1) == 0
    assert scenario.count_admitted(60.1) == 1  # the running request has taken one second so far
    clock(99.89)
    quick = start_job()
    clock(100.0)
    scenario.queue.record_finished([quick])  # the request of 30 s no longer counts
    assert scenario.count_admitted(100.0) == 4


def test_recent_durations_count(clock: Clock) -> None:
    scenario = Scenario(clock, slots=1, took=30.0)
    clock(0.0)
    quick = [start_job() for _ in range(64)]
    clock(0.01)
    scenario.queue.record_finished(quick)
    scenario.start(0.01)
    assert 40 < scenario.count_admitted(0.01) < 60
