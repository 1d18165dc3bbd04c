"""Is something wrong with a run, and what should be changed? Asked before hours of training, not after them."""

from attendo.recipes.doctor.examination import examine, quick_faults
from attendo.recipes.doctor.finding import Finding, Level
from attendo.recipes.doctor.left_out import too_many_bad_lines

__all__ = ["Finding", "Level", "examine", "quick_faults", "too_many_bad_lines"]
