"""The catalogue: the text of every error, in English and Chinese, by its code.

It is imported when the first error is shown, so that a command without errors does not wait for it.
"""

import errno
import os
import re
from collections.abc import Mapping

from attendo.messages import cli, data, explore, files, generation, interop, network, runs, serve, text
from attendo.messages.message import Language, Message

MESSAGES: dict[str, Message] = {
    code: message
    for part in (files, network, text, data, generation, runs, interop, explore, cli, serve)
    for code, message in part.MESSAGES.items()
}

SYSTEM_ERRORS: dict[int, str] = {
    errno.ENOENT: "没有这个文件或文件夹",
    errno.EACCES: "没有权限",
    errno.EPERM: "不允许这样操作",
    errno.EISDIR: "这是一个文件夹",
    errno.ENOTDIR: "路径中有一部分不是文件夹",
    errno.EEXIST: "文件已经存在",
    errno.ENOSPC: "磁盘已满",
    errno.EROFS: "文件系统只读",
    errno.ENAMETOOLONG: "名字太长",
    errno.EIO: "读写出错",
}
_SUGGESTION = re.compile(r" \(did you mean (.+)\?\)")


def render(code: str, values: Mapping[str, object], language: Language = "en") -> str:
    """The text of a code with its values."""
    message = MESSAGES[code]
    if language == "en":
        return message.en.format_map(values)
    return message.zh.format_map({name: _translate(message, name, value) for name, value in values.items()})


def _translate(message: Message, name: str, value: object) -> object:
    """Chinese for a value that is an English phrase: one of the message, of the system, or a suggestion."""
    if not isinstance(value, str):
        return value
    system = {os.strerror(number): chinese for number, chinese in SYSTEM_ERRORS.items()}
    found = {**system, **message.phrases.get(name, {})}.get(value, value)
    return _SUGGESTION.sub(r"（是否指 \1？）", found)
