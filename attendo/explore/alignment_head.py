"""Storage of the best alignment head in scores.json of a model folder."""

from pathlib import Path
from typing import Any

from attendo.explore.head_stats import HeadReport
from attendo.model_folder import update_json
from attendo.text_model.alignment import ALIGNMENT_HEAD


def store_alignment_head(folder: Path, report: HeadReport) -> dict[str, Any]:
    """Write the report's best head to scores.json and return the new entry. All other files stay unchanged."""
    entry = report.alignment_head
    update_json(folder, "scores.json", {ALIGNMENT_HEAD: entry})
    return entry
