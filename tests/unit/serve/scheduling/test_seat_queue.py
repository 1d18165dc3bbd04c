"""How long somebody will wait for a seat: by how long answers take, and since when each seat has been sat on."""

from collections.abc import Callable

import pytest

from attendo.serve.scheduling.admission import AdmissionQueue
from attendo.serve.scheduling.jobs import GenerateJob, ScheduledJob

Clock = Callable[[float], None]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Sets what time it is."""
    moment = [1000.0]
    monkeypatch.setattr("time.monotonic", lambda: moment[0])

    def at(seconds: float) -> None:
        moment[0] = 1000.0 + seconds

    return at


class Room:
    """A queue before so many seats, in which answers took so long."""

    def __init__(self, clock: Clock, seats: int, took: float | None, seconds: float = 0.5) -> None:
        self.clock, self.seats = clock, seats
        self.queue = AdmissionQueue(seconds, lambda: self.seats - len(self.sitting))
        self.sitting: list[ScheduledJob] = []
        if took is not None:
            clock(-took)
            before = begun()
            clock(0.0)
            self.queue.record_finished([before])

    def sit(self, *moments: float) -> None:
        """Since then."""
        for moment in moments:
            self.clock(moment)
            self.sitting.append(begun())
        self.queue.set_running(self.sitting)

    def lets_in(self, moment: float, most: int = 1000) -> int:
        """How many of so many who come then."""
        self.clock(moment)
        for count in range(most):
            if self.queue.is_overloaded:
                return count
            self.queue.add(ScheduledJob(GenerateJob((), {}), lambda event: None))
        return most


def begun() -> ScheduledJob:
    job = ScheduledJob(GenerateJob((), {}), lambda event: None)
    job.start()
    return job


def test_who_sat_down_together_gets_up_together(clock: Clock) -> None:
    """That may be waited for, but for no more than two seconds."""
    for took, moment, count in ((3.0, 0.1, 0), (3.0, 0.9, 0), (3.0, 1.1, 3), (3.0, 2.9, 3), (1.9, 0.0, 3)):
        room = Room(clock, seats=4, took=took)
        room.sit(0.0, 0.0, 0.0, 0.0)
        assert room.lets_in(moment) == count, moment


def test_who_sat_down_one_after_the_other_gets_up_so(clock: Clock) -> None:
    """Half of them, in half of the time that an answer takes."""
    room = Room(clock, seats=6, took=1.2)
    room.sit(-1.1, -0.9, -0.7, -0.5, -0.3, -0.1)
    assert room.lets_in(0.0) == 4  # for 0.1, 0.3, 0.5 and 0.7 s


@pytest.mark.parametrize(("took", "count"), [(0.11, 16), (0.2, 8), (30.0, 0)])
def test_half_a_second_is_always_borne_and_two_are_the_most(clock: Clock, took: float, count: int) -> None:
    for seconds in (0.5, 100.0):
        room = Room(clock, seats=4, took=took, seconds=seconds)
        room.sit(0.0, 0.0, 0.0, 0.0)
        if seconds == 0.5:
            assert room.lets_in(0.0) == count
        else:
            assert room.lets_in(0.0, most=count + 1) == count + 1


def test_for_free_seats_nobody_waits(clock: Clock) -> None:
    room = Room(clock, seats=4, took=9.0)
    room.sit(0.0)
    assert room.lets_in(0.0) == 3


def test_those_who_sit_for_longer_than_others_did_may_go_on(clock: Clock) -> None:
    """They are not taken for as good as gone: those who wait for them are no more than usual."""
    room = Room(clock, seats=4, took=1.0)
    room.sit(-8.0, -8.0, -8.0, -8.0)
    assert room.lets_in(0.0) == 3


def test_before_the_first_answer_those_who_sit_tell_how_long_it_takes_at_least(clock: Clock) -> None:
    room = Room(clock, seats=2, took=None)
    room.sit(0.0, 0.0)
    assert room.lets_in(0.09) == 12
    assert Room(clock, seats=2, took=None).queue.is_overloaded is False


def test_what_was_long_ago_is_forgotten(clock: Clock) -> None:
    room = Room(clock, seats=1, took=30.0)
    room.sit(59.0)
    assert room.lets_in(59.1) == 0
    assert room.lets_in(60.1) == 1  # by the second that it has taken until now
    clock(99.89)
    quick = begun()
    clock(100.0)
    room.queue.record_finished([quick])  # and nothing of the one before
    assert room.lets_in(100.0) == 4


def test_the_last_answers_count(clock: Clock) -> None:
    room = Room(clock, seats=1, took=30.0)
    clock(0.0)
    quick = [begun() for _ in range(64)]
    clock(0.01)
    room.queue.record_finished(quick)
    room.sit(0.01)
    assert 40 < room.lets_in(0.01) < 60
