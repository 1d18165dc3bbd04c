"""Makes the modules of the lesson importable by name."""

import sys
from pathlib import Path

LESSON = Path(__file__).resolve().parents[2] / "docs" / "lesson"
sys.path[:0] = [str(LESSON), str(LESSON / "code")]
