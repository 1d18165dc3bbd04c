"""How long somebody will wait: from answers that came one after the other, and nothing from those that did not."""

import pytest

from attendo.serve.scheduling.admission import WaitEstimator


def answering(*moments: float, others_wait: bool = True) -> WaitEstimator:
    pace = WaitEstimator()
    for moment in moments:
        pace.record_finished(moment, 1, others_wait)
    return pace


def test_the_wait_is_that_of_all_who_are_ahead() -> None:
    pace = answering(10.0, 10.5, 11.0, 11.5, 12.0, 12.5)
    assert pace.estimate_wait(12.6, 4) == pytest.approx(2.0)
    assert pace.estimate_wait(12.6, 0) == 0


def test_a_few_that_end_first_tell_nothing() -> None:
    pace = answering(10.0, 11.9)
    assert pace.estimate_wait(11.9, 100) == 0


@pytest.mark.parametrize("together", [8, 100])
def test_answers_that_come_together_count_as_what_they_are_on_the_whole(together: int) -> None:
    """Also right behind many of them, when those before are what tells how long the next ones take."""
    pace = WaitEstimator()
    pace.start_waiting(0.0)
    for batch in range(1, 10):
        pace.record_finished(batch + 0.0, together, True)
        assert pace.estimate_wait(batch + 0.0, together) == (pytest.approx(1.0) if batch > 2 else 0)


def test_the_first_answers_tell_how_long_those_who_wait_did_so() -> None:
    pace = answering(1.0, 2.0, others_wait=False)
    pace.start_waiting(10.0)
    pace.start_waiting(11.0)  # somebody else does already
    pace.record_finished(14.0, 4, True)
    assert pace.estimate_wait(14.0, 4) == pytest.approx(4.0)


def test_who_sat_down_at_once_did_not_wait() -> None:
    pace = WaitEstimator()
    for moment in range(0, 50, 5):
        pace.start_waiting(moment + 0.0)
        pace.record_finished(moment + 4.0, 1, others_wait=False)
    assert pace.estimate_wait(50.0, 100) == 0


def test_where_nobody_waited_nothing_is_known() -> None:
    assert answering(1.0, 30.0, 59.0, others_wait=False).estimate_wait(59.0, 100) == 0
    assert WaitEstimator().estimate_wait(5.0, 100) == 0


def test_the_last_answers_count_most() -> None:
    slow, quick = [float(n) for n in range(10)], [9 + 0.01 * n for n in range(1, 3000)]
    assert answering(*slow).estimate_wait(9.0, 10) == pytest.approx(10.0)
    assert answering(*slow, *quick).estimate_wait(39.0, 10) < 0.15


def test_what_was_long_ago_is_forgotten() -> None:
    pace = answering(1.0, 3.0, 5.0)
    assert pace.estimate_wait(6.0, 5) == pytest.approx(10.0)
    assert pace.estimate_wait(100.0, 5) == 0
    pace.record_finished(100.0, 1, True)
    pace.record_finished(103.0, 3, True)
    assert pace.estimate_wait(103.0, 10) == pytest.approx(10.0)
    pace = answering(1.0, 3.0, 5.0)
    pace.start_waiting(100.0)
    pace.record_finished(104.0, 1, True)
    assert pace.estimate_wait(104.0, 2) == pytest.approx(8.0)
