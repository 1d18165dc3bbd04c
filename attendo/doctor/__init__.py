"""Is something wrong with a run, and what should be changed? Asked before hours of training, not after them."""

from attendo.doctor.bad_lines import too_many_bad_lines
from attendo.doctor.checks import examine, quick_faults
from attendo.doctor.finding import Finding, Level

__all__ = ["Finding", "Level", "examine", "quick_faults", "too_many_bad_lines"]
