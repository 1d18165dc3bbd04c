"""The lesson's own modules can be imported by their names."""

import sys
from pathlib import Path

LESSON = Path(__file__).resolve().parents[2] / "docs" / "lesson"
sys.path[:0] = [str(LESSON), str(LESSON / "code")]
