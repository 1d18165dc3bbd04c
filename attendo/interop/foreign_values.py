"""Values of JSON files that others wrote: each is of the kind that is needed, or an error that names file and field."""

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from attendo.errors import ModelError, cut_text, shorten

T = TypeVar("T")


@dataclass(frozen=True)
class Field:
    """One value and where it stands; null is as if left out, which is None or nothing."""

    path: Path
    name: str
    value: Any

    def text(self) -> str | None:
        return self._optional(lambda value: isinstance(value, str), "a text")

    def flag(self) -> bool:
        return bool(self._optional(lambda value: isinstance(value, bool), "true or false"))

    def count(self) -> int | None:
        return self._optional(_is_id, "a whole number from 0 up")

    def number(self) -> float | None:
        return self._optional(_is_number, "a number")

    def token(self) -> int | None:
        """Of a list there can be but one."""
        if isinstance(self.value, list) and len(self.value) == 1:
            return Field(self.path, self.name, self.value[0]).token()
        return self._optional(_is_id, "one token")

    def tokens(self) -> list[int]:
        return self._optional(_list_of(_is_id), "a list of tokens") or []

    def sequences(self) -> list[list[int]]:
        return self._optional(_list_of(_list_of(_is_id)), "a list of lists of tokens") or []

    def items(self) -> list[Any]:
        return self._optional(_list_of(lambda each: True), "a list") or []

    def fields(self) -> dict[str, "Field"]:
        """Of an object, by their names."""
        return fields(self.path, self.content(), f"{self.name}.")

    def content(self) -> dict[str, Any]:
        return self._optional(lambda value: isinstance(value, dict), "an object") or {}

    def one_of(self, known: Mapping[Any, T], default: T) -> T:
        """What a value stands for."""
        if self.value is None:
            return default
        # 1 is equal to true, and no list can be looked up
        found = [meant for value, meant in known.items() if type(value) is type(self.value) and value == self.value]
        if not found:
            raise self.wrong(f"one of {', '.join(map(shorten, known))}")
        return found[0]

    def wrong(self, needed: str) -> ModelError:
        return ModelError(
            "json_field_invalid", path=self.path, field=cut_text(self.name), value=shorten(self.value), needed=needed
        )

    def _optional(self, fits: Callable[[Any], bool], needed: str) -> Any:
        if self.value is None or fits(self.value):
            return self.value
        raise self.wrong(needed)


def fields(path: Path, content: Mapping[str, Any], before: str = "") -> dict[str, Field]:
    return {name: Field(path, f"{before}{name}", value) for name, value in content.items()}


def _is_id(value: Any) -> bool:
    return type(value) is int and value >= 0


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


def _list_of(fits: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, list) and all(map(fits, value))
