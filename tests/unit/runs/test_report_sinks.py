"""Report sinks: metrics.jsonl, samples and TensorBoard files, also after a crash and on a full disk."""

import json
import math
import os
import sys
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from error_codes import has_code
from full_disk import room_for

from attendo import atomic_files
from attendo.errors import AttendoError, UsageError
from attendo.runs import report_sinks
from attendo.runs.report_sinks import MetricsFile, SampleFile, Sink, TensorBoard, report_to_json
from attendo.train.loop import Report, Saved, SaveFailed, Skipped, Step, Stopped, Validation, ValidationSample

STEP = Step(1, 0, 5.5, 1e-3, 2.0, 100, 240, 10, 0.5)
SAMPLES = (ValidationSample("the cat", "猫", "猫 坐"), ValidationSample("a dog", "狗", "狗"))
VALIDATION = Validation(2, 4.5, {"bleu": 31.25}, {"bleu": "tok:zh|version:2"}, True, SAMPLES)


def make_step(number: int, **changes: Any) -> Step:
    return replace(STEP, step=number, seconds=number / 2, **changes)


def make_reports(count: int) -> list[Report]:
    """Reports of `count` steps, with a validation and a checkpoint after every third step."""
    reports: list[Report] = []
    for number in range(1, count + 1):
        reports.append(make_step(number))
        if number % 3 == 0:
            reports += [replace(VALIDATION, step=number), Saved(number, f"step-{number:08d}", 1000)]
    return reports


def write_reports(folder: Path, reports: list[Report], after: int = 0) -> MetricsFile:
    sink = MetricsFile()
    sink.open(folder, after)
    for report in reports:
        sink.write(report)
    sink.close()
    return sink


def read_lines(folder: Path) -> list[dict[str, Any]]:
    text = (folder / "metrics.jsonl").read_text("utf-8")
    assert text == "" or text.endswith("\n")
    return [json.loads(line) for line in text.splitlines()]


def read_steps(folder: Path) -> list[int]:
    return [line["step"] for line in read_lines(folder)]


def test_all_sinks_implement_the_interface() -> None:
    assert all(isinstance(sink, Sink) for sink in (MetricsFile(), SampleFile(), TensorBoard()))


@pytest.mark.parametrize(
    ("report", "kind"),
    [
        (STEP, "step"),
        (replace(STEP, reward=54.2, entropy=1.9), "step"),
        (Skipped(3, (7, 8)), "skipped"),
        (replace(VALIDATION, old={"bleu": 30.0}), "validation"),
        (Saved(3, "runs/中文/step-3", 10), "saved"),
        (SaveFailed(3, "the disk is full", 2), "savefailed"),
        (Stopped(3, "asked to"), "stopped"),
    ],
)
def test_a_report_is_one_json_line_with_kind_and_fields(report: Report, kind: str) -> None:
    line = report_to_json(report)
    assert line.endswith("\n")
    assert line.count("\n") == 1
    content = json.loads(line)
    assert content.pop("kind") == kind
    names = [each.name for each in fields(report) if each.name != "samples"]
    values = {name: value for name in names if (value := getattr(report, name)) is not None}
    assert content == {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}


def test_nan_and_infinity_are_null() -> None:
    line = json.loads(report_to_json(replace(STEP, loss=math.nan, norm=math.inf, skipped=True)))
    assert (line["loss"], line["norm"], line["lr"], line["skipped"]) == (None, None, 1e-3, True)
    assert json.loads(report_to_json(replace(VALIDATION, scores={"bleu": math.nan})))["scores"] == {"bleu": None}


def test_every_line_is_written_immediately(tmp_path: Path) -> None:
    sink = MetricsFile()
    sink.open(tmp_path, 0)
    for number, report in enumerate(make_reports(4), 1):
        sink.write(report)
        assert len(read_lines(tmp_path)) == number
    sink.close()
    sink.close()
    assert sink.fault is None


def test_a_new_run_starts_an_empty_file(tmp_path: Path) -> None:
    write_reports(tmp_path, make_reports(5))
    write_reports(tmp_path, [make_step(1)])
    assert read_steps(tmp_path) == [1]


@pytest.mark.parametrize("after", [1, 3, 6])
def test_a_resumed_file_equals_that_of_an_uninterrupted_run(tmp_path: Path, after: int) -> None:
    reports = make_reports(9)
    write_reports(tmp_path, reports)
    complete = (tmp_path / "metrics.jsonl").read_bytes()
    write_reports(tmp_path, [report for report in reports if report.step > after], after)
    assert (tmp_path / "metrics.jsonl").read_bytes() == complete


def test_a_file_cut_at_any_byte_is_restored_on_resume(tmp_path: Path) -> None:
    reports = make_reports(6)
    write_reports(tmp_path, reports)
    path = tmp_path / "metrics.jsonl"
    complete = path.read_bytes()
    third = complete.index(b'"step": 4')
    for end in range(third, len(complete), 23):
        path.write_bytes(complete[:end])
        write_reports(tmp_path, [report for report in reports if report.step > 3], 3)
        assert path.read_bytes() == complete
    assert [each.name for each in tmp_path.iterdir()] == ["metrics.jsonl"]


def test_a_last_line_without_line_feed_is_kept(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text(
        report_to_json(make_step(1)) + report_to_json(make_step(2)).rstrip("\n"), "utf-8"
    )
    write_reports(tmp_path, [make_step(3)], 2)
    assert read_steps(tmp_path) == [1, 2, 3]


@pytest.mark.parametrize(
    "damage", [b"\0\0\0\n", b"[1]\n", b'{"step": "x"}\n', b"\xff\n", b"\n", b"[" * 100_000 + b"\n"]
)
def test_unreadable_lines_are_removed_on_resume(tmp_path: Path, damage: bytes) -> None:
    first, second = (report_to_json(make_step(number)).encode() for number in (1, 2))
    (tmp_path / "metrics.jsonl").write_bytes(first + damage + second)
    write_reports(tmp_path, [make_step(3)], 2)
    assert read_steps(tmp_path) == [1, 2, 3]


def test_a_crash_while_removing_lines_keeps_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_reports(tmp_path, make_reports(5))
    before = (tmp_path / "metrics.jsonl").read_bytes()

    def fail(path: Path, target: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(atomic_files, "move", fail)
    with pytest.raises(AttendoError, check=has_code("metrics_file_not_writable", reason="No space left on device")):
        MetricsFile().open(tmp_path, 2)
    assert (tmp_path / "metrics.jsonl").read_bytes() == before
    assert [each.name for each in tmp_path.iterdir()] == ["metrics.jsonl"]


def test_a_missing_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(AttendoError, check=has_code("metrics_file_not_writable")):
        MetricsFile().open(tmp_path / "missing", 0)


@pytest.mark.parametrize("room", [0, 1, 150, 400])
@pytest.mark.parametrize("after", [0, 3])
def test_lines_are_queued_while_the_disk_is_full(tmp_path: Path, room: int, after: int) -> None:
    reports = make_reports(9)
    write_reports(tmp_path, reports)
    complete = (tmp_path / "metrics.jsonl").read_bytes()
    reports = [report for report in reports if report.step > after]
    sink = MetricsFile()
    sink.open(tmp_path, after)
    sink.write(reports[0])
    size = (tmp_path / "metrics.jsonl").stat().st_size
    with room_for(size + room):
        for report in reports[1:8]:
            sink.write(report)
        assert sink.fault is not None
        assert "metrics.jsonl: File too large; " in sink.fault
        assert "lines wait" in sink.fault
    for report in reports[8:]:
        sink.write(report)
        assert sink.fault is None
    sink.close()
    assert (tmp_path / "metrics.jsonl").read_bytes() == complete


def test_a_run_killed_on_a_full_disk_is_resumed(tmp_path: Path) -> None:
    sink = MetricsFile()
    sink.open(tmp_path, 0)
    with room_for(300):
        for report in make_reports(6):
            sink.write(report)
    assert not (tmp_path / "metrics.jsonl").read_bytes().endswith(b"\n")
    write_reports(tmp_path, [make_step(2)], 1)
    assert read_steps(tmp_path) == [1, 2]


def test_close_retries_once_and_does_not_raise(tmp_path: Path) -> None:
    first, second = MetricsFile(), MetricsFile()
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    first.open(tmp_path / "a", 0)
    second.open(tmp_path / "b", 0)
    with room_for(0):
        first.write(make_step(1))
        second.write(make_step(1))
        second.close()
    first.close()
    assert (read_steps(tmp_path / "a"), first.fault) == ([1], None)
    assert (read_steps(tmp_path / "b"), second.fault is None) == ([], False)


def test_the_queue_is_limited_and_lost_lines_are_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report_sinks, "MAX_QUEUED_LINES", 3)
    sink = MetricsFile()
    sink.open(tmp_path, 0)
    with room_for(0):
        for number in range(1, 6):
            sink.write(make_step(number))
        assert sink.fault is not None
        assert sink.fault.endswith("3 lines wait, 2 are lost")
    sink.close()
    assert read_steps(tmp_path) == [3, 4, 5]
    assert sink.fault is not None
    assert sink.fault.endswith("2 lines are lost")


def test_a_checkpoint_report_syncs_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = MetricsFile()
    sink.open(tmp_path, 0)
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda handle: synced.append(os.fstat(handle).st_size))
    sink.write(make_step(1))
    assert synced == []
    sink.write(Saved(1, "x", 1))
    assert synced == [(tmp_path / "metrics.jsonl").stat().st_size]
    sink.close()


def test_samples_are_written_as_readable_text(tmp_path: Path) -> None:
    sink = SampleFile()
    sink.open(tmp_path, 0)
    for report in (STEP, VALIDATION, replace(VALIDATION, step=4, samples=()), Stopped(5, "x")):
        sink.write(report)
    sink.close()
    assert [path.name for path in (tmp_path / "validation").iterdir()] == ["step-00000002.txt"]
    assert (tmp_path / "validation" / "step-00000002.txt").read_text("utf-8") == (
        "step 2, the best so far\nloss 4.5000\nbleu 31.2500  tok:zh|version:2\n"
        "\n1\nsource     the cat\noutput     猫\nreference  猫 坐\n"
        "\n2\nsource     a dog\noutput     狗\nreference  狗\n"
    )


def test_samples_of_later_steps_are_removed_on_resume(tmp_path: Path) -> None:
    folder = tmp_path / "validation"
    folder.mkdir()
    for name in ("step-00000002.txt", "step-00000004.txt", "step-123456789.txt", "step-notes.txt", "mine.txt"):
        (folder / name).write_text("text")
    SampleFile().open(tmp_path, 2)
    assert sorted(path.name for path in folder.iterdir()) == ["mine.txt", "step-00000002.txt", "step-notes.txt"]


def test_unwritable_samples_do_not_end_the_run(tmp_path: Path) -> None:
    sink = SampleFile()
    sink.open(tmp_path, 0)
    with room_for(5):
        sink.write(VALIDATION)
    assert sink.fault is not None
    assert "step-00000002.txt: File too large" in sink.fault
    assert list((tmp_path / "validation").iterdir()) == []
    broken = ValidationSample("half a letter \udce4", "x", "x")
    sink.write(replace(VALIDATION, samples=(broken,)))
    assert sink.fault is None
    assert "half a letter \\udce4" in (tmp_path / "validation" / "step-00000002.txt").read_text("utf-8")


def scalars(folder: Path) -> dict[str, list[tuple[int, float]]]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder / "tensorboard"))
    events.Reload()
    return {
        name: [(each.step, each.value) for each in events.Scalars(name)] for name in sorted(events.Tags()["scalars"])
    }


def test_tensorboard_has_the_same_numbers(tmp_path: Path) -> None:
    sink = TensorBoard()
    sink.open(tmp_path, 0)
    validation = replace(VALIDATION, old={"loss": 3.5})
    for report in (make_step(1, loss=4.0), make_step(2, loss=math.nan, skipped=True), validation, Saved(2, "x", 1)):
        sink.write(report)
    sink.close()
    assert scalars(tmp_path) == {
        "old/loss": [(2, 3.5)],
        "train/loss": [(1, 4.0)],
        "train/lr": [(1, pytest.approx(1e-3)), (2, pytest.approx(1e-3))],
        "train/tokens_per_second": [(2, 200.0)],
        "valid/bleu": [(2, 31.25)],
        "valid/loss": [(2, 4.5)],
    }


def test_tensorboard_drops_later_steps_on_resume(tmp_path: Path) -> None:
    for after, loss in ((0, 4.0), (2, 8.0)):
        sink = TensorBoard()
        sink.open(tmp_path, after)
        for number in range(after + 1, 5):
            sink.write(make_step(number, loss=loss))
        sink.close()
    assert scalars(tmp_path)["train/loss"] == [(1, 4.0), (2, 4.0), (3, 8.0), (4, 8.0)]


def test_tensorboard_write_errors_are_stored_as_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from torch.utils.tensorboard import SummaryWriter

    def fail(*values: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(SummaryWriter, "add_scalar", fail)
    sink = TensorBoard()
    sink.open(tmp_path, 0)
    sink.write(STEP)
    sink.write(VALIDATION)
    sink.close()
    assert sink.fault is not None
    assert "No space left on device" in sink.fault


def test_missing_tensorboard_is_a_usage_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(UsageError, check=has_code("tensorboard_not_installed")):
        TensorBoard().open(tmp_path, 0)
