"""Errors of commands in the chosen language."""

import errno
import os
from pathlib import Path

import pytest

from attendo.errors import DataError, UsageError
from attendo.explore.i18n import localise_errors
from attendo.text_model import TooLongError

STEP = UsageError("step_out_of_range", step=9, count=2)


def test_an_error_is_translated_and_keeps_its_class() -> None:
    for language, text in (
        ("zh", "--step 9：译文有 2 个词元，从 0 数起"),
        ("en", "--step 9: the target has 2 tokens, counted from 0"),
    ):
        with pytest.raises(UsageError) as raised, localise_errors(language):
            raise UsageError(STEP.code, **STEP.values)
        assert str(raised.value) == text
    with pytest.raises(DataError) as unreadable, localise_errors("zh"):
        raise DataError("file_open_failed", path="a", reason=os.strerror(errno.EACCES))
    assert str(unreadable.value) == "无法打开 a：没有权限"
    with pytest.raises(TooLongError) as long, localise_errors("zh"):
        raise TooLongError("source_exceeds_model_limit", 4, 6, tokens=9, limit=8)
    assert long.value.number == 4
    assert str(long.value) == "第 5 段文本（共 6 段）有 9 个词元，模型最多读 8 个：请缩短"


def test_a_system_error_is_translated(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError) as raised, localise_errors("zh"):
        tmp_path.write_text("")
    assert (raised.value.strerror, raised.value.filename) == ("这是一个文件夹", str(tmp_path))
