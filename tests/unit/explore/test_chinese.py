"""Messages in Chinese: of every mistake that looking into a model can end with, and of the files that it needs."""

import errno
import os
import re
from pathlib import Path

import pytest

import attendo
from attendo.errors import DataError, UsageError
from attendo.explore.chinese import in_chinese, speaking
from attendo.explore.chinese_messages import FAULTS, MESSAGES, PARTS
from attendo.text_model import TooLongError

PACKAGE = Path(attendo.__file__).parent
HAN = re.compile("[\u4e00-\u9fff]")


def source_text() -> str:
    """Of the whole package but the messages themselves, strings that go on in the next line joined."""
    files = [path for path in PACKAGE.rglob("*.py") if path.name != "chinese_messages.py"]
    return "\n".join(re.sub(r'"\s*\n\s*f?"', "", path.read_text("utf-8")) for path in files)


def literal_parts(pattern: str) -> list[str]:
    """What a pattern says word by word, between its groups."""
    apart = re.split(r"\((?:[^()\\]|\\.)*\)\??", pattern)
    return [re.sub(r"\\(.)", r"\1", each).strip("'") for each in apart if len(each) > 12]


def test_every_message_is_one_that_the_library_still_says() -> None:
    text = source_text()
    for name, value in (("BUILTIN", "builtin"), ("MEAN", "mean"), ("ALIGNMENT_HEAD", "alignment_head")):
        text = text.replace(f"{{{name}}}", value)
    gone = [part for pattern in MESSAGES for part in literal_parts(pattern) if part not in text]
    assert gone == []


def test_a_message_fills_all_that_its_pattern_found() -> None:
    for pattern, chinese in MESSAGES.items():
        groups = re.compile(pattern).groups
        assert {int(each) for each in re.findall(r"\{(\d+)\}", chinese)} == set(range(groups)), pattern
        assert HAN.search(chinese)
    assert all(map(HAN.search, [*FAULTS.values(), *PARTS.values()]))


@pytest.mark.parametrize(
    ("english", "chinese"),
    [
        ("--head 5: the model has 2 heads, counted from 0", "--head 5：模型有 2 个头，从 0 数起"),
        ("--layer 7: the decoder has 2 layers, counted from 0", "--layer 7：解码器有 2 层，从 0 数起"),
        ("x.en cannot be opened: No such file or directory", "无法打开 x.en：没有这个文件或文件夹"),
        (
            "a trace of 9 source and 8 target tokens has 5,000 numbers of attention alone, more than 10: "
            "shorten the text",
            "追踪 9 个源文词元和 8 个译文词元，仅注意力就有 5,000 个数，超过上限 10 个：缩短文本",
        ),
        (
            "d line 3: link 4-0 lies outside 3 source and 2 target words: give links between words (--links words)",
            "d 第 3 行：对齐 4-0 超出了 3 个源文词和 2 个译文词：请给出词与词之间的对齐（--links words）",
        ),
        ("something that nobody has put into Chinese", "something that nobody has put into Chinese"),
    ],
)
def test_a_message_is_said_in_chinese(english: str, chinese: str) -> None:
    assert in_chinese(english) == chinese


def test_an_error_keeps_its_kind_and_english_stays_english() -> None:
    told = "--step 9: the target has 2 tokens, counted from 0"
    with pytest.raises(UsageError, match="--step 9：译文有 2 个词元，从 0 数起"), speaking("zh"):
        raise UsageError(told)
    with pytest.raises(UsageError, match=f"^{told}$"), speaking("en"):
        raise UsageError(told)
    with pytest.raises(DataError, match="无法打开 a：没有权限"), speaking("zh"):
        raise DataError(f"a cannot be opened: {os.strerror(errno.EACCES)}")
    with pytest.raises(TooLongError, match="something") as raised, speaking("zh"):
        raise TooLongError("something", 4)
    assert raised.value.number == 4


def test_what_the_system_says_of_a_file_is_said_in_chinese(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError) as raised, speaking("zh"):
        tmp_path.write_text("")
    assert (raised.value.strerror, raised.value.filename) == ("这是一个文件夹", str(tmp_path))
