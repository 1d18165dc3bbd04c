"""X8: a line tells what was asked and how it went; never who asked, or a word of what was written."""

import json
import logging
import logging.config
import re
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from small_gate import PATHS, SmallGate, written

from attendo.serve.http.access_log import AccessLogEntry, LogFormatter, error_location, log_config

CANARY = "canary7f3a"
slow = pytest.mark.slow
FIELDS = {
    *("time", "level", "logger", "request_id", "method", "route", "status", "seconds"),
    *("source_tokens", "target_tokens", "refused"),
}


@pytest.fixture(scope="module")
def gate() -> SmallGate:
    return SmallGate()


def test_a_request_has_one_line_of_json(gate: SmallGate) -> None:
    with written("json") as lines:
        answered = gate.post("openai", {"x-request-id": "mine"}, text=CANARY)
        gate.post("deepl", refuse="busy")
    first, second = [line for line in map(json.loads, lines.getvalue().splitlines()) if "route" in line]
    assert answered.status_code == 200
    assert first.keys() == FIELDS
    told = ("level", "request_id", "method", "route", "status", "source_tokens", "target_tokens", "refused")
    assert [first[name] for name in told] == ["info", "mine", "POST", PATHS["openai"], 200, 3, 4, ""]
    assert (second["status"], second["refused"], second["source_tokens"]) == (429, "busy", 0)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+00:00", first["time"])
    assert first["seconds"] >= 0


def test_a_request_has_one_line_of_text(gate: SmallGate) -> None:
    with written() as lines:
        gate.post("openai", {"x-request-id": "mine"}, text=CANARY)
    line = next(line for line in lines.getvalue().splitlines() if "requests" in line)
    assert re.fullmatch(
        r"\S+ INFO attendo\.serve\.requests POST /v1/chat/completions 200 "
        r"request_id=mine seconds=[\d.e-]+ source_tokens=3 target_tokens=4 refused=",
        line,
    )


@pytest.mark.short(1)
@pytest.mark.parametrize(("kind", "rounds"), [("text", 10), ("json", 10), pytest.param("json", 100, marks=slow)])
def test_no_word_of_a_thousand_requests_is_written(gate: SmallGate, kind: Any, rounds: int) -> None:
    """Nor in the answer to anybody else."""
    others: list[str] = []
    with written(kind) as lines:
        for number in range(rounds):
            word = f"{CANARY}-{number}"
            for shape in PATHS:
                told = gate.post(shape, {"x-api-key": word, "user-agent": word, "cookie": word}, text=word)
                assert told.json() == {"text": word}
            gate.post("ours", fail=word)
            gate.client.post(PATHS["ours"], json={word: word, "text": [word]})
            gate.client.post(f"/{word}", content=word)
            gate.client.get(f"/things/{word}?q={word}")
            others.append(gate.client.get("/nothing").text)
    text = lines.getvalue()
    assert text.count("attendo.serve.requests") == 10 * rounds
    assert CANARY not in text
    assert "127.0.0.1" not in text
    assert CANARY not in "".join(others)
    assert CANARY not in gate.client.get("/metrics").text


def test_whoever_watches_is_not_written_down_unless_something_is_wrong(gate: SmallGate) -> None:
    with written(level=logging.INFO) as lines:
        gate.client.get("/metrics")
        gate.client.get("/metrics", headers={"forwarded": "x"})
    told = [line for line in lines.getvalue().splitlines() if "/metrics" in line]
    assert len(told) == 1
    assert " 403 " in told[0]


def test_an_error_is_written_without_its_words_and_with_the_id(gate: SmallGate) -> None:
    with written("json") as lines:
        gate.post("ours", {"x-request-id": "mine"}, fail=CANARY)
    told = [json.loads(line) for line in lines.getvalue().splitlines()]
    errors = [each for each in told if each["level"] == "error"]
    assert [each["request_id"] for each in errors] == ["mine"]
    assert errors[0]["message"].startswith("a request failed: ValueError at small_gate.py")


@pytest.mark.parametrize("kind", ["text", "json"])
def test_any_record_is_one_line(kind: Any) -> None:
    try:
        raise ValueError(CANARY)
    except ValueError:
        record = logging.LogRecord("x", logging.ERROR, "", 0, "two\nlines %s", ("\r\nand",), sys.exc_info())
    line = LogFormatter(kind).format(record)
    assert len(line.splitlines()) == 1
    assert "two lines and" in line
    assert CANARY not in line
    assert "ValueError at test_requests_log.py" in line
    assert error_location(ValueError(CANARY)) == "ValueError at an unknown place"
    entry = logging.makeLogRecord({"entry": AccessLogEntry("id", "GET", "/x\n", 200)})
    assert kind == "text" or len(LogFormatter(kind).format(entry).splitlines()) == 1


@pytest.fixture
def logging_as_it_was(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """`dictConfig` closes the handlers that there are, and that of absl would close pytest's own stream with it."""
    monkeypatch.setattr(logging, "_handlerList", [])
    names = ("", "attendo", "uvicorn", "uvicorn.access", "uvicorn.error")
    kept = {name: logging.getLogger(name) for name in names}
    before = {name: (each.level, [*each.handlers], each.propagate) for name, each in kept.items()}
    yield
    for name, each in kept.items():
        each.level, each.handlers[:], each.propagate = before[name]
        each.setLevel(each.level)


@pytest.mark.usefixtures("logging_as_it_was")
def test_uvicorn_writes_alike_and_nothing_about_requests(capsys: pytest.CaptureFixture[str]) -> None:
    logging.config.dictConfig(log_config("json"))
    logging.getLogger("uvicorn.access").info('%s - "%s"', "192.0.2.1", CANARY)
    logging.getLogger("uvicorn.access").critical(CANARY)
    try:
        raise ValueError(CANARY)
    except ValueError as error:
        logging.getLogger("uvicorn.error").error("Exception in ASGI application\n", exc_info=error)
    logging.getLogger("asyncio").warning("slow")
    AccessLogEntry("id", "GET", "/x", 200).write()
    said = capsys.readouterr().err
    assert all(line.startswith("{") for line in said.splitlines()), said
    told = [json.loads(line) for line in said.splitlines()]
    assert [each["logger"] for each in told] == ["uvicorn.error", "asyncio", "attendo.serve.requests"]
    assert told[0]["error"].startswith("ValueError at")
    assert CANARY not in str(told)
