"""R11: a long run takes no more memory, files or threads than a short one."""

import json
from pathlib import Path

import pytest
from children import Children
from small_run import begin, run_config, write_run_file, write_text

SETTLED = 200  # steps after which every kind of work has been done several times


@pytest.mark.parametrize(
    ("workers", "steps"), [(2, 240), *(pytest.param(each, 2000, marks=pytest.mark.slow) for each in (0, 2))]
)
def test_R11_memory_files_and_threads_do_not_grow(children: Children, tmp_path: Path, steps: int, workers: int) -> None:
    text = write_text(tmp_path, pairs=200, words=(5, 5))
    settings = {"steps": steps, "workers": workers, "batch_tokens": 60, "save_every": 20, "validate_every": 50}
    prepared = begin(run_config(text), tmp_path / "prepared").data_folder
    config = run_config({"prepared": prepared}, settings)
    job = {
        "run_file": str(write_run_file(tmp_path / "run.toml", config)),
        "folder": str(tmp_path / "run"),
        "result": str(tmp_path / "measured.json"),
    }
    ended = children.start([("measure_memory", job)]).wait()
    assert ended.code == 0, ended.errors
    measured = json.loads((tmp_path / "measured.json").read_text())
    assert len(measured) == steps
    settled = measured[SETTLED - 1]
    for resident, files, threads in measured[SETTLED:]:
        assert resident < 1.02 * settled[0]
        assert files <= settled[1]
        assert threads <= settled[2]
