"""`WaitEstimator`: the wait follows from the times between results that requests waited for."""

import pytest

from attendo.serve.scheduling.admission import WaitEstimator


def make_estimator(*moments: float, others_wait: bool = True) -> WaitEstimator:
    estimator = WaitEstimator()
    for moment in moments:
        estimator.record_finished(moment, 1, others_wait)
    return estimator


def test_the_wait_grows_with_the_requests_ahead() -> None:
    estimator = make_estimator(10.0, 10.5, 11.0, 11.5, 12.0, 12.5)
    assert estimator.estimate_wait(12.6, 4) == pytest.approx(2.0)
    assert estimator.estimate_wait(12.6, 0) == 0


def test_too_few_results_give_no_estimate() -> None:
    estimator = make_estimator(10.0, 11.9)
    assert estimator.estimate_wait(11.9, 100) == 0


@pytest.mark.parametrize("burst", [8, 100])
def test_results_in_bursts_count_by_their_mean_rate(burst: int) -> None:
    """Also right after a burst, when the earlier bursts determine the duration of the next one."""
    estimator = WaitEstimator()
    estimator.start_waiting(0.0)
    for batch in range(1, 10):
        estimator.record_finished(batch + 0.0, burst, True)
        assert estimator.estimate_wait(batch + 0.0, burst) == (pytest.approx(1.0) if batch > 2 else 0)


def test_the_first_results_count_from_the_start_of_waiting() -> None:
    estimator = make_estimator(1.0, 2.0, others_wait=False)
    estimator.start_waiting(10.0)
    estimator.start_waiting(11.0)  # another request already waits
    estimator.record_finished(14.0, 4, True)
    assert estimator.estimate_wait(14.0, 4) == pytest.approx(4.0)


def test_requests_that_start_at_once_are_ignored() -> None:
    estimator = WaitEstimator()
    for moment in range(0, 50, 5):
        estimator.start_waiting(moment + 0.0)
        estimator.record_finished(moment + 4.0, 1, others_wait=False)
    assert estimator.estimate_wait(50.0, 100) == 0


def test_without_waiting_requests_the_estimate_is_zero() -> None:
    assert make_estimator(1.0, 30.0, 59.0, others_wait=False).estimate_wait(59.0, 100) == 0
    assert WaitEstimator().estimate_wait(5.0, 100) == 0


def test_recent_results_count_most() -> None:
    slow, quick = [float(n) for n in range(10)], [9 + 0.01 * n for n in range(1, 3000)]
    assert make_estimator(*slow).estimate_wait(9.0, 10) == pytest.approx(10.0)
    assert make_estimator(*slow, *quick).estimate_wait(39.0, 10) < 0.15


def test_old_results_are_dropped() -> None:
    estimator = make_estimator(1.0, 3.0, 5.0)
    assert estimator.estimate_wait(6.0, 5) == pytest.approx(10.0)
    assert estimator.estimate_wait(100.0, 5) == 0
    estimator.record_finished(100.0, 1, True)
    estimator.record_finished(103.0, 3, True)
    assert estimator.estimate_wait(103.0, 10) == pytest.approx(10.0)
    estimator = make_estimator(1.0, 3.0, 5.0)
    estimator.start_waiting(100.0)
    estimator.record_finished(104.0, 1, True)
    assert estimator.estimate_wait(104.0, 2) == pytest.approx(8.0)
