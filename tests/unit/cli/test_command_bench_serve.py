"""`attendo bench serve`: its output and usage errors."""

import json
from pathlib import Path

import pytest
from error_codes import fragment, has_code, message
from stand_in_server import StandIn, listening
from tiny import Command

from attendo.bench.load_test.server import ServerError, export_temporarily, start_server

QUICK = ("--seconds", "0.2", "--warm-up", "0")


def test_output_has_a_row_per_load(attendo: Command) -> None:
    with listening(StandIn(delay=0.02)) as url:
        done = attendo("bench", "serve", url, *QUICK, "--clients", "1,4", "--rate", "50")
    assert done.code == 0
    headline, header, *rows = done.output.splitlines()
    assert f"{url}; libretranslate, 500 texts; 0.2 s, deadline 10 s; 1 rounds, medians; times in ms" == headline
    names = header.split()
    assert names[:4] == ["server", "load", "offered", "answered"]
    assert names[4:] == ["requests/s", "p50", "p90", "p99", "most", "x", "first"]
    assert [row.split()[1:3] for row in rows] == [["1", "client"], ["4", "clients"], ["50/s", rows[2].split()[2]]]
    one, four = ([float(each) for each in row.split()[5:]] for row in rows[:2])
    assert four[-1] == pytest.approx(four[0] / one[0], rel=0.1)  # requests/s of both
    assert "round 1 of 1: server, 50/s" in done.errors


@pytest.mark.slow
def test_empty_outcome_columns_are_not_shown(attendo: Command) -> None:
    with listening(StandIn(delay=0.1, most=1)) as url:
        done = attendo("bench", "serve", url, *QUICK, "--rate", "100", "--leave", "0.5", "--leave-within", "0.03")
    header, row = done.output.splitlines()[1:]
    assert {"429", "left"} <= set(header.split())
    assert "late" not in header
    assert "50% leave within 0.03 s" in done.output
    assert row.split()[:2] == ["server", "100/s"]


@pytest.mark.short(1)
@pytest.mark.parametrize("more", [(), ("--json",)])
def test_no_answered_request_exits_with_code_1(attendo: Command, more: tuple[str, ...]) -> None:
    with listening(StandIn(status=400)) as url:
        done = attendo("bench", "serve", url, *QUICK, "--clients", "2", *more)
    assert done.code == 1
    assert 'rejected with 400: {"translatedText": ' in done.errors
    assert done.errors.count("rejected with 400") == 1
    assert done.errors.endswith("not one request was answered: there is nothing to measure\n")


@pytest.mark.slow
def test_cancelled_requests_are_not_an_error(attendo: Command) -> None:
    with listening(StandIn(delay=0.5)) as url:
        done = attendo("bench", "serve", url, *QUICK, "--rate", "50", "--leave", "1", "--leave-within", "0.01")
    assert (done.code, "rejected" in done.errors) == (0, False)


@pytest.mark.slow
def test_a_stream_reports_tokens_and_first_token_time(attendo: Command) -> None:
    with listening(stand_in := StandIn()) as url:
        done = attendo("bench", "serve", url, *QUICK, "--clients", "2", "--api", "openai", "--key", "secret", "--json")
    (row,) = [json.loads(line) for line in done.output.splitlines()]
    assert row["summary"]["tokens_per_second"] > 0
    assert row["summary"]["first_token"]["p50"] < row["summary"]["latency"]["p50"]
    assert row["load"] == "2 clients"
    assert len(row["rounds"]) == 1
    assert stand_in.headers[-1]["authorization"] == "Bearer secret"
    assert "secret" not in done.output + done.errors


@pytest.mark.slow
def test_given_texts_and_body_fields_are_sent(attendo: Command, tmp_path: Path) -> None:
    (tmp_path / "lines").write_text("one\ntwo\n", "utf-8")
    with listening(stand_in := StandIn()) as url:
        options = ("--texts", tmp_path / "lines", "--clients", "1", "--body", '{"target": "de", "alternatives": 2}')
        attendo("bench", "serve", url, *QUICK, *options)
    assert {each["q"] for each in stand_in.asked} == {"one", "two"}
    assert {(each["source"], each["target"], each["alternatives"]) for each in stand_in.asked} == {("en", "de", 2)}


@pytest.mark.short(1)
@pytest.mark.parametrize(("wrong", "code"), [(False, 0), (True, 1)])
def test_S12_texts_that_differ_under_load_exit_with_code_1(attendo: Command, wrong: bool, code: int) -> None:
    with listening(StandIn(delay=0.005, wrong_when_busy=wrong)) as url:
        done = attendo("bench", "serve", url, "--check-equal", "--count", "20", "--clients", "4")
        as_json = attendo("bench", "serve", url, "--check-equal", "--count", "20", "--clients", "4", "--json")
    assert (done.code, as_json.code) == (code, code)
    assert done.output.startswith("server: ")
    assert "of 20 texts are the same from 4 clients at once as alone" in done.output
    assert ("under load 'wrong'" in done.output) is wrong
    assert json.loads(as_json.output)["equal"] is not wrong


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), message("url_or_model_required")),
        ((":1", "--model", "x"), message("url_or_model_required")),
        ((":1", "--rival", "ctranslate2"), fragment("rival_without_model")),
        ((":1", "--clients", "1.5"), fragment("option_not_positive_integers", option="--clients", value="1.5")),
        ((":1", "--rate", "x"), fragment("option_not_numbers", option="--rate", value="x")),
        ((":1", "--body", "[]"), fragment("body_not_json_object", body="[]")),
        ((":1", "--leave", "2"), message("leave_share_out_of_range", share="2.0")),
        (("https://a",), fragment("server_address_invalid", url="https://a")),
        ((":1", *QUICK), "127.0.0.1:1 cannot be reached: "),
    ],
)
def test_usage_errors_are_one_line(attendo: Command, arguments: tuple[str, ...], message: str) -> None:
    done = attendo("bench", "serve", *arguments)
    assert done.code == 2
    assert done.error.startswith(message)


def test_a_server_that_fails_to_start_raises_server_error(tmp_path: Path) -> None:
    with (
        pytest.raises(ServerError, check=has_code("server_start_failed")) as raised,
        start_server([tmp_path / "nothing-here"]),
    ):
        pass
    assert str(tmp_path / "nothing-here") in str(raised.value.values["reason"])


def test_modules_in_the_working_folder_are_not_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "html.py").write_text("raise SystemExit(3)\n", "utf-8")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ServerError, check=has_code("server_start_failed")), start_server([Path("nothing-here")]):
        pass


def test_a_silent_server_failure_reports_its_exit_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sitecustomize.py").write_text("import os; os._exit(7)\n", "utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with (
        pytest.raises(
            ServerError, check=has_code("server_start_failed", reason="it printed nothing, and ended with exit code 7")
        ),
        start_server([tmp_path]),
    ):
        pass


@pytest.mark.slow
def test_a_failed_baseline_export_raises_an_error(tmp_path: Path) -> None:
    with (
        pytest.raises(Exception, match=r"attendo export failed: .*nothing-here"),
        export_temporarily(tmp_path / "nothing-here", "onnx"),
    ):
        pass
