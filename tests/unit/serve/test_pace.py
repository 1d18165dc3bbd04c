"""How long somebody will wait: from answers that came one after the other, and nothing from those that did not."""

import pytest

from attendo.serve.pace import Pace


def answering(*moments: float, others_wait: bool = True) -> Pace:
    pace = Pace()
    for moment in moments:
        pace.answered(moment, others_wait)
    return pace


def test_the_wait_is_that_of_all_who_are_ahead() -> None:
    pace = answering(10.0, 10.5, 11.0, 11.5)
    assert pace.wait(11.6, 4) == pytest.approx(2.0)
    assert pace.wait(11.6, 0) == 0


def test_answers_that_come_together_count_as_what_they_are_on_the_whole() -> None:
    pace = answering(*(batch + 0.0 for batch in range(10) for _ in range(8)))
    assert pace.wait(9.0, 8) == pytest.approx(1.0, rel=0.3)


def test_where_nobody_waited_nothing_is_known() -> None:
    assert answering(1.0, 30.0, 59.0, others_wait=False).wait(59.0, 100) == 0
    assert Pace().wait(5.0, 100) == 0


def test_the_last_answers_count_most() -> None:
    slow, quick = [float(n) for n in range(10)], [9 + 0.01 * n for n in range(1, 200)]
    assert answering(*slow, *quick).wait(11.0, 10) < 0.15


def test_what_was_long_ago_is_forgotten() -> None:
    pace = answering(1.0, 2.0, 3.0)
    assert pace.wait(4.0, 5) == pytest.approx(5.0)
    assert pace.wait(100.0, 5) == 0
    pace.answered(100.0, True)
    pace.answered(100.1, True)
    assert pace.wait(100.1, 10) == pytest.approx(1.0)
