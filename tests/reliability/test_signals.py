"""R8: SIGTERM and SIGINT finish the step, save and set the exit code; a second signal ends the process at once."""

import signal
from pathlib import Path

import pytest
from children import Children
from small_run import Outcome, begin, outcome, run_config, train_to_the_end, write_run_file

from attendo.runs.config import RunConfig
from attendo.train.checkpoint import Checkpoints

ACCUMULATE = 3
BATCH_IN_STEP_5 = 4 * ACCUMULATE + 2  # the second of the 3 batches of the fifth update


@pytest.fixture(scope="module")
def config(prepared: Path) -> RunConfig:
    return run_config({"prepared": prepared}, {"accumulate": ACCUMULATE, "save_every": 3}, model={"dropout": 0.2})


@pytest.fixture(scope="module")
def expected(config: RunConfig, tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    return outcome(train_to_the_end(begin(config, tmp_path_factory.mktemp("undisturbed") / "run")).folder)


@pytest.mark.short(1)
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_R8_signal_saves_the_step_and_the_run_resumes_bitwise(
    children: Children, config: RunConfig, expected: Outcome, tmp_path: Path, number: int, code: int
) -> None:
    run, run_file = tmp_path / "run", write_run_file(tmp_path / "run.toml", config)
    fault = [("signal_at_batch", {"batch": BATCH_IN_STEP_5, "numbers": [number]})]
    stopped = children.attendo("train", run_file, "--out", run, before=fault)
    assert (stopped.code, "Traceback" in stopped.errors) == (code, False)
    assert f"stopped at step 5, saved; go on with: attendo train --resume {run}\n" in stopped.errors
    assert Checkpoints(run / "checkpoints").steps()[-1] == 5
    assert (run / "model" / "manifest.json").exists(), "a stopped run has a model"
    assert children.attendo("train", "--resume", run).code == 0
    assert outcome(run) == expected


@pytest.mark.short(1)
@pytest.mark.parametrize(
    ("numbers", "code"),
    [([signal.SIGINT, signal.SIGINT], 130), ([signal.SIGTERM, signal.SIGTERM], -signal.SIGTERM)],
)
def test_R8_second_signal_ends_at_once_and_keeps_checkpoints(
    children: Children, config: RunConfig, expected: Outcome, tmp_path: Path, numbers: list[int], code: int
) -> None:
    run, run_file = tmp_path / "run", write_run_file(tmp_path / "run.toml", config)
    fault = [("signal_at_batch", {"batch": BATCH_IN_STEP_5, "numbers": numbers})]
    stopped = children.attendo("train", run_file, "--out", run, before=fault)
    assert (stopped.code, "Traceback" in stopped.errors) == (code, False), stopped.errors
    assert Checkpoints(run / "checkpoints").steps() == [3]
    assert children.attendo("train", "--resume", run).code == 0
    assert outcome(run) == expected
