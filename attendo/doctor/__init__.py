"""Checks of a run's data and network before training, with advice for each problem."""

from attendo.doctor.bad_lines import report_too_many_bad_lines
from attendo.doctor.checks import examine, run_quick_checks
from attendo.doctor.finding import Finding, Level

__all__ = ["Finding", "Level", "examine", "report_too_many_bad_lines", "run_quick_checks"]
