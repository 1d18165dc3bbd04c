"""Base class of all settings: frozen, strict about names, with precise error messages."""

import inspect
import re
import warnings
from collections.abc import Mapping
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any, ClassVar, Self, get_args

import pydantic
from pydantic import BaseModel, ConfigDict, ValidationError, model_validator
from pydantic_core import ErrorDetails

from attendo.errors import ErrorList, Localized, MessagePart, UsageError, cut_text, shorten
from attendo.messages import MESSAGES, Language

_LIBRARIES = (str(Path(__file__).parent), str(Path(pydantic.__file__).parent))  # a warning names the caller's file
_WORD_SEPARATORS = re.compile(r"[\W_]+")


class RenamedSettingWarning(FutureWarning):
    """A setting is given by its old name."""


class Settings(BaseModel):
    """Settings validated on construction. An invalid value raises a `UsageError` with one part per fault."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    # Fields that are plain tables, validated later by these classes. Suggestions for a mistyped name include them.
    tables: ClassVar[dict[str, type[BaseModel]]] = {}
    # New names by old names, and new values by old values of a setting. The old ones are still accepted.
    renamed: ClassVar[Mapping[str, str]] = {}
    renamed_values: ClassVar[Mapping[str, Mapping[str, str]]] = {}
    warns_of_old_names: ClassVar[bool] = True  # False for settings that are read from stored files

    def __init__(self, /, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            faults = [_explain(type(self), fault) for fault in error.errors(include_url=False)]
            raise (
                faults[0] if len(faults) == 1 else UsageError("settings_invalid", faults=ErrorList(faults))
            ) from None

    # Without this flag pydantic also calls __init__ for nested settings, and their path is lost from the error.
    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]

    @model_validator(mode="before")
    @classmethod
    def _accept_old_names(cls, values: Any) -> Any:
        return cls.with_new_names(values, cls.warns_of_old_names) if isinstance(values, dict) else values

    @classmethod
    def with_new_names(cls, values: Mapping[str, Any], warn: bool = True) -> dict[str, Any]:
        """Settings by their new names and values. With `warn`, each old one is a `RenamedSettingWarning`."""
        return rename_settings(values, cls.renamed, cls.renamed_values, warn)

    def replace(self, /, **changes: Any) -> Self:
        """Return a copy with other values, validated again. pydantic's `model_copy` does not validate."""
        return type(self)(**{**self.model_dump(exclude_unset=True), **changes})


def rename_settings(
    values: Mapping[str, Any],
    names: Mapping[str, str],
    new_values: Mapping[str, Mapping[str, str]],
    warn: bool,
) -> dict[str, Any]:
    """Return the settings by their new names and values. With `warn`, each old one is a `RenamedSettingWarning`."""
    found: dict[str, Any] = {}
    for old, value in values.items():
        name, notes = names.get(old, old), list[MessagePart]()
        if name != old:
            if name in values:
                raise UsageError("setting_given_by_both_names", old=old, new=name)
            notes.append(MessagePart("setting_renamed", old=old, new=name))
        if isinstance(value, str) and (new := new_values.get(name, {}).get(value)):
            notes.append(MessagePart("setting_value_renamed", name=name, old=value, new=new))
            value = new
        found[name] = value
        for note in notes if warn else ():
            _warn(note)
    return found


def warn_of_old_name(old: str, new: str) -> None:
    """Emit a `RenamedSettingWarning`."""
    _warn(MessagePart("setting_renamed", old=old, new=new))


def _warn(note: MessagePart) -> None:
    frame, level = inspect.currentframe(), 1
    while frame is not None and frame.f_code.co_filename.startswith(_LIBRARIES):
        frame, level = frame.f_back, level + 1
    warnings.warn(str(note), RenamedSettingWarning, stacklevel=level)


def suggest_name(name: str, known: list[str]) -> str:
    """Return ` (did you mean ...?)` for a mistyped name, or an empty string if no known name is similar."""
    near = find_similar_name(name, known)
    return f" (did you mean {near}?)" if near else ""


def find_similar_name(name: str, known: list[str]) -> str | None:
    """Return the known name that is most similar to a mistyped one, or None if none is similar."""
    alike = {each: SequenceMatcher(None, _normalise_name(each), _normalise_name(name)).ratio() for each in known}
    near = [each for each in known if _is_near(name, each, alike[each])]
    # Ties are broken by name, because some callers pass a set, whose order varies.
    return max(near, key=lambda each: (alike[each], each)) if near else None


def _is_near(name: str, other: str, similarity: float) -> bool:
    """`similarity` is the ratio of `SequenceMatcher`: 1 for equal names."""
    one, two = _normalise_name(name), _normalise_name(other)
    if sorted(one) == sorted(two):  # swapped letters weigh much in a short name: tei and tie differ by a third
        return True
    if similarity >= 0.5 and (_abbreviates(name, other) or _abbreviates(other, name)):
        return True
    return similarity >= (0.75 if one[:1] == two[:1] else 0.8)  # the first letter is rarely mistyped


def _abbreviates(name: str, other: str) -> bool:
    """Whether `name` shortens or omits words of `other`, as heads or n_head for num_heads."""
    words = _split_words(other)
    return all(any(word.startswith(part) for word in words) for part in _split_words(name))


def _normalise_name(name: str) -> str:
    """Drop case and separators, so that dModel matches d_model and ROUGE-L matches rougeL."""
    return "".join(_split_words(name))


def _split_words(name: str) -> list[str]:
    return _WORD_SEPARATORS.split(name.casefold())


def _explain(settings: type[BaseModel], fault: ErrorDetails) -> UsageError:
    name = ".".join(cut_text(str(part)) for part in fault["loc"])
    if fault["type"] == "extra_forbidden":
        section = fault["input"]
        if isinstance(section, dict) and section:  # an unknown section: its first setting may belong to another one
            name = f"{name}.{cut_text(str(next(iter(section))))}"
        return UsageError("unknown_setting", name=name, suggestion=_suggest_setting(settings, name))
    if fault["type"] == "missing":
        return UsageError("setting_missing", name=name)
    given = shorten(fault["input"])
    if fault["type"] == "tuple_type":
        meant = f"[[{name}]]" if isinstance(fault["input"], dict) else f"[{given}]"
        return UsageError("setting_not_a_list", name=name, meant=meant, given=given)
    if fault["type"] == "value_error" and isinstance(error := fault["ctx"]["error"], UsageError):
        return error
    return UsageError("setting_invalid", fault=describe_fault(fault, name), given=given)


def describe_fault(fault: Mapping[str, Any], name: str, suggestion: str = "") -> MessagePart:
    """Return what is wrong with the setting or field `name`, by pydantic's type of the error."""
    code = f"field_{fault['type']}"
    if code not in MESSAGES:
        return MessagePart("field_unusable", name=name)
    values = {each: _shorten_number(value) for each, value in fault.get("ctx", {}).items()}
    if "expected" in values:
        values["expected"] = _Choices(values["expected"])
    return MessagePart(code, **{**values, "name": name, "suggestion": suggestion})


def _shorten_number(value: Any) -> Any:
    """Return 1 for 1.0: pydantic converts the bounds of a number to its type."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


class _Choices(Localized):
    """Allowed values, which pydantic lists as 'a', 'b' or 'c'."""

    def __init__(self, choices: str) -> None:
        self._choices = choices

    def text(self, language: Language, option_names: Mapping[str, str] | None = None) -> str:
        return self._choices if language == "en" else re.sub(r"'(?:, | or )'", "'、'", self._choices)


def _suggest_setting(settings: type[BaseModel], name: str) -> str:
    """Suggest the same name in another section, else a similar name in its own section or in any."""
    *path, last = name.split(".")
    everywhere = _list_settings(settings)
    same = [each for each in everywhere if each.split(".")[-1] == last]
    if same:
        return f" (did you mean {' or '.join(same[:2])}?)"
    if near := suggest_name(last, list(_find_section(settings, tuple(path)).model_fields)):
        return near
    if similar := find_similar_name(last, list({each.split(".")[-1] for each in everywhere})):
        return f" (did you mean {next(each for each in everywhere if each.split('.')[-1] == similar)}?)"
    return ""


def _list_settings(settings: type[BaseModel]) -> list[str]:
    """Return the dotted names of all settings that have one value."""
    found: list[str] = []
    tables = settings.tables if issubclass(settings, Settings) else {}
    for name, field in settings.model_fields.items():
        kinds = (tables.get(name), field.annotation, *get_args(field.annotation))
        inner = [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)]
        found += [f"{name}.{each}" for each in _list_settings(inner[0])] if inner else [name]
    return found


def _find_section(settings: type[BaseModel], path: tuple[int | str, ...]) -> type[BaseModel]:
    """Return the settings class at a dotted path of field names."""
    for part in path:
        annotation = settings.model_fields[str(part)].annotation if str(part) in settings.model_fields else None
        for inner in (annotation, *get_args(annotation)):  # a settings class, or a tuple of them
            if isinstance(inner, type) and issubclass(inner, BaseModel):
                settings = inner
    return settings
