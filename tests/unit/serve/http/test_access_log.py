"""X8: the access log has one line per request, without client addresses and without request text."""

import json
import logging
import logging.config
import re
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from guarded_app import PATHS, GuardedApp, capture_log

from attendo.serve.http.access_log import AccessLogEntry, LogFormatter, error_location, log_config

CANARY = "canary7f3a"
slow = pytest.mark.slow
FIELDS = {
    *("time", "level", "logger", "request_id", "method", "route", "status", "seconds"),
    *("source_tokens", "target_tokens", "refused"),
}


@pytest.fixture(scope="module")
def app() -> GuardedApp:
    return GuardedApp()


def test_a_request_is_one_json_line(app: GuardedApp) -> None:
    with capture_log("json") as lines:
        response = app.post("openai", {"x-request-id": "mine"}, text=CANARY)
        app.post("deepl", refuse="busy")
    first, second = [line for line in map(json.loads, lines.getvalue().splitlines()) if "route" in line]
    assert response.status_code == 200
    assert first.keys() == FIELDS
    names = ("level", "request_id", "method", "route", "status", "source_tokens", "target_tokens", "refused")
    assert [first[name] for name in names] == ["info", "mine", "POST", PATHS["openai"], 200, 3, 4, ""]
    assert (second["status"], second["refused"], second["source_tokens"]) == (429, "busy", 0)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+00:00", first["time"])
    assert first["seconds"] >= 0


def test_a_request_is_one_text_line(app: GuardedApp) -> None:
    with capture_log() as lines:
        app.post("openai", {"x-request-id": "mine"}, text=CANARY)
    line = next(line for line in lines.getvalue().splitlines() if "requests" in line)
    assert re.fullmatch(
        r"\S+ INFO attendo\.serve\.requests POST /v1/chat/completions 200 "
        r"request_id=mine seconds=[\d.e-]+ source_tokens=3 target_tokens=4 refused=",
        line,
    )


@pytest.mark.short(1)
@pytest.mark.parametrize(("log_format", "rounds"), [("text", 10), ("json", 10), pytest.param("json", 100, marks=slow)])
def test_no_request_text_is_logged(app: GuardedApp, log_format: Any, rounds: int) -> None:
    """It is not in the responses to other requests either."""
    others: list[str] = []
    with capture_log(log_format) as lines:
        for number in range(rounds):
            word = f"{CANARY}-{number}"
            for api in PATHS:
                response = app.post(api, {"x-api-key": word, "user-agent": word, "cookie": word}, text=word)
                assert response.json() == {"text": word}
            app.post("ours", fail=word)
            app.client.post(PATHS["ours"], json={word: word, "text": [word]})
            app.client.post(f"/{word}", content=word)
            app.client.get(f"/things/{word}?q={word}")
            others.append(app.client.get("/nothing").text)
    text = lines.getvalue()
    assert text.count("attendo.serve.requests") == 10 * rounds
    assert CANARY not in text
    assert "127.0.0.1" not in text
    assert CANARY not in "".join(others)
    assert CANARY not in app.client.get("/metrics").text


def test_metrics_requests_are_logged_only_on_errors(app: GuardedApp) -> None:
    with capture_log(level=logging.INFO) as lines:
        app.client.get("/metrics")
        app.client.get("/metrics", headers={"forwarded": "x"})
    logged = [line for line in lines.getvalue().splitlines() if "/metrics" in line]
    assert len(logged) == 1
    assert " 403 " in logged[0]


def test_an_error_is_logged_with_its_id_but_no_message(app: GuardedApp) -> None:
    with capture_log("json") as lines:
        app.post("ours", {"x-request-id": "mine"}, fail=CANARY)
    records = [json.loads(line) for line in lines.getvalue().splitlines()]
    errors = [each for each in records if each["level"] == "error"]
    assert [each["request_id"] for each in errors] == ["mine"]
    assert errors[0]["message"].startswith("a request failed: ValueError at guarded_app.py")


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_every_record_is_one_line(log_format: Any) -> None:
    try:
        raise ValueError(CANARY)
    except ValueError:
        record = logging.LogRecord("x", logging.ERROR, "", 0, "two\nlines %s", ("\r\nand",), sys.exc_info())
    line = LogFormatter(log_format).format(record)
    assert len(line.splitlines()) == 1
    assert "two lines and" in line
    assert CANARY not in line
    assert "ValueError at test_access_log.py" in line
    assert error_location(ValueError(CANARY)) == "ValueError at an unknown place"
    entry = logging.makeLogRecord({"entry": AccessLogEntry("id", "GET", "/x\n", 200)})
    assert log_format == "text" or len(LogFormatter(log_format).format(entry).splitlines()) == 1


@pytest.fixture
def restore_logging(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """`dictConfig` closes existing handlers, and the handler of absl would close pytest's stream."""
    monkeypatch.setattr(logging, "_handlerList", [])
    names = ("", "attendo", "uvicorn", "uvicorn.access", "uvicorn.error")
    loggers = {name: logging.getLogger(name) for name in names}
    before = {name: (each.level, [*each.handlers], each.propagate) for name, each in loggers.items()}
    yield
    for name, each in loggers.items():
        each.level, each.handlers[:], each.propagate = before[name]
        each.setLevel(each.level)


@pytest.mark.usefixtures("restore_logging")
def test_uvicorn_logs_in_the_same_format_without_requests(capsys: pytest.CaptureFixture[str]) -> None:
    logging.config.dictConfig(log_config("json"))
    logging.getLogger("uvicorn.access").info('%s - "%s"', "192.0.2.1", CANARY)
    logging.getLogger("uvicorn.access").critical(CANARY)
    try:
        raise ValueError(CANARY)
    except ValueError as error:
        logging.getLogger("uvicorn.error").error("Exception in ASGI application\n", exc_info=error)
    logging.getLogger("asyncio").warning("slow")
    AccessLogEntry("id", "GET", "/x", 200).write()
    log = capsys.readouterr().err
    assert all(line.startswith("{") for line in log.splitlines()), log
    records = [json.loads(line) for line in log.splitlines()]
    assert [each["logger"] for each in records] == ["uvicorn.error", "asyncio", "attendo.serve.requests"]
    assert records[0]["error"].startswith("ValueError at")
    assert CANARY not in str(records)
