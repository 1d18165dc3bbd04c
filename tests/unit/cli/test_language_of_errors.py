"""Errors in both languages: own errors, errors of the system, errors that count texts."""

import errno
import os
from pathlib import Path

import pytest

from attendo.cli.language import localise, translate
from attendo.cli.main import _describe_system_error
from attendo.errors import DataError, UsageError
from attendo.text_model import TooLongError


@pytest.fixture(params=["en", "zh"])
def language(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr("attendo.cli.language._current", request.param)
    return str(request.param)


def test_an_error_has_a_text_in_each_language(language: str) -> None:
    step = UsageError("step_out_of_range", step=9, count=2)
    assert (
        localise(step)
        == {
            "zh": "--step 9：译文有 2 个词元，从 0 数起",
            "en": "--step 9: the target has 2 tokens, counted from 0",
        }[language]
    )
    unreadable = DataError("file_open_failed", path="a", reason=os.strerror(errno.EACCES))
    assert ("没有权限" in localise(unreadable)) == (language == "zh")
    long = TooLongError("source_exceeds_model_limit", 4, 6, tokens=9, limit=8)
    assert (localise(long) == "第 5 段文本（共 6 段）有 9 个词元，模型最多读 8 个：请缩短") == (language == "zh")


def test_an_error_of_the_system_has_a_text_in_each_language(language: str, tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError) as raised:
        tmp_path.write_text("")
    text = _describe_system_error(raised.value)
    assert str(tmp_path) in text
    assert ("这是一个文件夹" in text) == (language == "zh")
    assert ("Is a directory" in text) == (language == "en")
    assert translate("Is a directory") == {"en": "Is a directory", "zh": "这是一个文件夹"}[language]
