"""The catalogue: the text of every error, in English and Chinese, by its code.

The texts are in the TOML files of this folder, one file an area. An entry has `en` and `zh` with the same placeholders.
`phrases` has Chinese for values that are English words, by placeholder. `status` is the HTTP status of a server error.

Texts of help and output are written in English where they are used (`errors.LocalizedText`, help of options). The
files in `zh` have their Chinese, by the English text.

`{option_name:n_best}` is the name of the setting `n_best`: `--n-best` on the command line. If the
value `option` has the setting's name, it is `{option_name:{option}}`.
"""

import errno
import os
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Literal, NamedTuple

Language = Literal["en", "zh"]
LANGUAGES: tuple[Language, ...] = ("en", "zh")


class Message(NamedTuple):
    """One entry of the catalogue."""

    en: str
    zh: str
    phrases: Mapping[str, Mapping[str, str]] = {}
    status: int = 0


class _Catalogue(Mapping[str, Message]):
    """Messages by code.

    A file is parsed when one of its messages is read: tomllib takes 30 ms for all files, 2 to 6 ms for one.
    """

    def __getitem__(self, code: str) -> Message:
        return read_area(_find_areas()[code])[code]

    def __iter__(self) -> Iterator[str]:
        return iter(_find_areas())

    def __len__(self) -> int:
        return len(_find_areas())


MESSAGES = _Catalogue()
AREAS = sorted(path.stem for path in Path(__file__).parent.glob("*.toml"))
CHINESE_AREAS = ("help", "output", "reports")  # help is first, because it has to be fast
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


class _OptionNames:
    """The value of the placeholder `option_name`. Its format is one setting or several, which may have values."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self._names = names

    def __format__(self, settings: str) -> str:
        parts = [setting.partition(" ") for setting in settings.split(", ")]  # such as `top_k` or `beam_groups (2)`
        return ", ".join(self._names.get(name, name) + space + value for name, space, value in parts)


def render(code: str, values: Mapping[str, object], language: Language, option_names: Mapping[str, str]) -> str:
    """Return the text of a code with its values. `option_names` are the command's options, by setting."""
    message = MESSAGES[code]
    if language == "zh":
        values = {name: _translate(message, name, value) for name, value in values.items()}
    template = message.en if language == "en" else message.zh
    return template.format_map({**values, "option_name": _OptionNames(option_names)})


def _translate(message: Message, name: str, value: object) -> object:
    """Chinese for a value that is an English phrase: one of the message, of the system, or a suggestion."""
    if not isinstance(value, str):
        return value
    system = {os.strerror(number): chinese for number, chinese in SYSTEM_ERRORS.items()}
    found = {**system, **message.phrases.get(name, {})}.get(value, value)
    return _SUGGESTION.sub(r"（是否指 \1？）", found)


@cache
def read_area(area: str) -> dict[str, Message]:
    """Return the messages of one file by code."""
    import tomllib

    return {code: Message(**entry) for code, entry in tomllib.loads(_read_text(area)).items()}


def translate(text: str) -> str:
    """Return the Chinese of an English text or template, or of a system error; the text itself if there is none."""
    system = {os.strerror(number): chinese for number, chinese in SYSTEM_ERRORS.items()}
    return next((found[text] for found in map(read_chinese, CHINESE_AREAS) if text in found), system.get(text, text))


@cache
def read_chinese(area: str) -> dict[str, str]:
    """Return the Chinese texts of one file, by the English text. Spaces around a key are kept."""
    import tomllib

    return tomllib.loads(_read_text(f"zh/{area}"))


@cache
def _find_areas() -> dict[str, str]:
    """Return the area of each code, without parsing the files. This takes 2 ms."""
    return {code: area for area in AREAS for code in re.findall(r"\n\[(\w+)\]\n", _read_text(area))}


def _read_text(area: str) -> str:
    return (Path(__file__).parent / f"{area}.toml").read_text("utf-8")
