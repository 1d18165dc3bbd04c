"""R9: however many processes train together and however many threads make batches, it is the same run."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from children import Children
from small_run import STEPS, Outcome, begin, outcome, reports, run_config, train_to_the_end, write_run_file
from together import Trained, assert_same_network, at_once, config, pairs, snapshot, started_together, together

from attendo.train.checkpoint import Checkpoints

SLOW = pytest.mark.slow


@pytest.mark.slow
@pytest.mark.parametrize(
    "ranks", [(1, 2), *(pytest.param(each, marks=SLOW) for each in ((2,), (4,), (1, 2, 4, 1)))], ids=str
)
def test_R9_processes_that_come_and_go_train_the_same_network(trained: Trained, ranks: tuple[int, ...]) -> None:
    assert_same_network(trained(1), trained(*ranks))


@pytest.mark.parametrize("ranks", [2, pytest.param(4, marks=SLOW)])
def test_R9_several_processes_learn_from_the_same_pairs_in_the_same_order_as_one(trained: Trained, ranks: int) -> None:
    one, several = pairs(trained(1)), pairs(trained(ranks))
    assert one == several
    assert len(one) == 2 * STEPS


@pytest.mark.slow
def test_R9_a_run_with_two_processes_stopped_and_resumed_is_the_same_to_the_last_bit(trained: Trained) -> None:
    assert outcome(trained(2) / "run") == outcome(trained(2, 2) / "run")


def test_R9_a_checkpoint_of_two_processes_holds_the_random_state_of_both(trained: Trained) -> None:
    random = snapshot(trained(2)).random
    assert {name.split("/")[0] for name in random} == {"rank0", "rank1"}


@pytest.mark.slow
def test_R9_another_number_of_processes_is_told(children: Children, trained: Trained, tmp_path: Path) -> None:
    said = together(children, 1, tmp_path, ["--resume", str(trained(2, 2) / "run")])[0].errors
    assert "warning: world_size was 2 and is 1" in said


def test_R9_what_the_leading_process_found_counts_for_all(children: Children) -> None:
    """Scores that differ in a last bit must not make one save while the others go on."""
    heard = at_once(children, [[("hear_the_leader", {})]] * 2)
    assert [json.loads(each.output) for each in heard] == [[0.1, True, True]] * 2


@pytest.mark.slow
def test_R9_a_signal_to_one_process_stops_them_all_at_the_same_step_to_be_resumed(
    children: Children, prepared: Path, trained: Trained, tmp_path: Path
) -> None:
    run_file, run = write_run_file(tmp_path / "run.toml", config(prepared)), tmp_path / "run"
    disturbed = ("signal_at_batch", {"batch": 9, "numbers": [signal.SIGTERM]})
    leading, other = started_together(children, 2, tmp_path, [str(run_file), "--out", str(run)], {1: disturbed})
    assert (other.code, leading.code) == (143, 0)
    assert "stopped at step 5, saved" in leading.errors
    assert Checkpoints(run / "checkpoints").steps()[-1] == 5
    together(children, 2, tmp_path, ["--resume", str(run)])
    assert outcome(run) == outcome(trained(2) / "run")


@pytest.mark.slow
def test_R10_a_gradient_that_is_no_number_on_one_process_is_skipped_by_all(
    children: Children, prepared: Path, tmp_path: Path
) -> None:
    run_file, run = write_run_file(tmp_path / "run.toml", config(prepared)), tmp_path / "run"
    spoiled = ("spoil_loss", {"batch": 9})
    ended = started_together(children, 2, tmp_path, [str(run_file), "--out", str(run)], {1: spoiled})
    assert [each.code for each in ended] == [0, 0], ended
    assert [line["step"] for line in reports(run) if line["kind"] == "step" and line["skipped"]] == [5]
    skipped = json.loads((run / "skipped.jsonl").read_text("utf-8"))
    assert skipped == {"step": 5, "pairs": [number for batch in pairs(tmp_path)[8:10] for number in batch]}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("pieces", "workers"),
    [(False, 2), (True, 4), pytest.param(False, 4, marks=SLOW), pytest.param(True, 2, marks=SLOW)],
    ids=["words-2", "BPE-dropout-4", "words-4", "BPE-dropout-2"],
)
def test_R9_threads_that_make_batches_change_no_bit(
    prepared: Path, prepared_pieces: Path, tmp_path: Path, workers: int, pieces: bool
) -> None:
    def trained_with(number: int) -> Outcome:
        tokenizer = {"dropout": 0.2} if pieces else {}
        data = prepared_pieces if pieces else prepared
        settings = run_config({"prepared": data}, {"workers": number}, tokenizer=tokenizer, model={"dropout": 0.1})
        return outcome(train_to_the_end(begin(settings, tmp_path / f"{number}")).folder)

    assert trained_with(workers) == trained_with(0)


@pytest.mark.slow
def test_R9_torchrun_starts_processes_that_train_as_one(trained: Trained, prepared: Path, tmp_path: Path) -> None:
    run_file = write_run_file(tmp_path / "run.toml", config(prepared))
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone"]
    command = [*torchrun, "-m", "attendo", "train", str(run_file), "--out", str(tmp_path / "run"), "--device", "cpu"]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    assert done.returncode == 0, done.stderr
    assert outcome(tmp_path / "run") == outcome(trained(2) / "run")
    assert done.stderr.count("model written to") == 1, "of several processes one speaks"
