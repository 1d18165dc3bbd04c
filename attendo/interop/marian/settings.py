"""Marian's settings: the flat YAML of `decoder.yml` and `special:model.yml`, read line by line without a YAML library.

    key: value          - item of the list above          key: [item, item]          # comment

Every value stays a text until it is asked for with a type, so `1`, `yes`, `null` and `~` are never changed.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from attendo.errors import MessagePart, ModelError, cut_line, shorten
from attendo.interop.marian.yaml_text import YamlTextError, read_scalar, split_list
from attendo.model_files import COPY_AGAIN

_KEY = re.compile(r"([A-Za-z0-9_.-]+):(?:\s+(.*))?")
_MAX_NUMBER_CHARS = 30
_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")
_FLAGS = {**dict.fromkeys(("true", "yes", "on"), True), **dict.fromkeys(("false", "no", "off"), False)}
_MAX_LINE_CHARS = 60  # of a line in a message


@dataclass(frozen=True)
class MarianSettings:
    """Settings of a file by name. A list is a tuple of texts."""

    path: str
    values: Mapping[str, str | tuple[str, ...]]

    def __contains__(self, name: str) -> bool:
        return name in self.values

    def text(self, name: str, default: str = "") -> str:
        value = self.values.get(name, default)
        return value if isinstance(value, str) else self._reject(name, "needs_text")

    def items(self, name: str) -> tuple[str, ...]:
        value = self.values.get(name, ())
        return (value,) if isinstance(value, str) else value

    def flag(self, name: str, default: bool = False) -> bool:
        return self._convert(name, default, _FLAGS.get, "needs_flag")

    def count(self, name: str, default: int) -> int:
        return self._convert(name, default, _parse_count, "needs_count")

    def number(self, name: str, default: float) -> float:
        return self._convert(name, default, _parse_number, "needs_number")

    def counts(self, name: str) -> tuple[int, ...]:
        found = [_parse_count(each) for each in self.items(name)]
        return tuple(each if each is not None else self._reject(name, "needs_count") for each in found)

    def _convert(self, name: str, default: Any, parse: Callable[[str], Any], code: str) -> Any:
        if name not in self.values:
            return default
        value = self.values[name]
        found = parse(value.lower()) if isinstance(value, str) else None
        return found if found is not None else self._reject(name, code)

    def _reject(self, name: str, code: str) -> Any:
        value, needed = shorten(self.values[name]), MessagePart(code)
        raise ModelError("json_field_invalid", path=self.path, field=name, value=value, needed=needed)


def _parse_count(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _MAX_NUMBER_CHARS else None


def _parse_number(text: str) -> float | None:
    is_number = len(text) <= _MAX_NUMBER_CHARS and _NUMBER.fullmatch(text)
    return float(text) if is_number else None


def parse_settings(path: str, content: bytes) -> MarianSettings:
    """Parse a file. Marian pads the settings of a model with NULs, which are removed."""
    try:
        text = content.rstrip(b"\0").decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ModelError("model_file_not_utf8", path=path, fix=COPY_AGAIN) from None
    values: dict[str, str | tuple[str, ...]] = {}
    key = ""  # of the last line, if it has no value yet
    for number, line in enumerate(text.split("\n"), start=1):
        stripped = line.strip()
        if not stripped or stripped.startswith(("#", "---", "...")):
            continue
        try:
            if key and stripped.startswith("-") and stripped[1:2] in ("", " "):
                values[key] = (*_as_items(values[key]), read_scalar(stripped[1:].strip()))
            elif key and line[0].isspace() and stripped.startswith("[") and values[key] == "":
                values[key] = split_list(stripped)
            else:
                key, values = _add_key(line, values)
        except YamlTextError:
            shown = cut_line(stripped, _MAX_LINE_CHARS)
            raise ModelError("marian_settings_line_invalid", path=path, line=number, text=shown) from None
    return MarianSettings(path, values)


def _as_items(value: str | tuple[str, ...]) -> tuple[str, ...]:
    return value if isinstance(value, tuple) else ()


def _add_key(line: str, values: dict[str, str | tuple[str, ...]]) -> tuple[str, dict[str, str | tuple[str, ...]]]:
    """Add a line that starts with a key. Return the key if its value may follow, or an empty text."""
    found = _KEY.fullmatch(line.rstrip())
    if found is None or found[1] in values:
        raise YamlTextError
    name, value = found[1], (found[2] or "").strip()
    if value.startswith("["):
        values[name] = split_list(value)
        return "", values
    values[name] = read_scalar(value)
    return ("" if values[name] else name), values
