"""The base of every settings class: frozen, strict about names, and clear about what is wrong."""

import re
from difflib import SequenceMatcher
from typing import Any, ClassVar, Self, get_args

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import ErrorDetails

from attendo.errors import ErrorList, UsageError, cut_text, shorten

_WORD_SEPARATORS = re.compile(r"[\W_]+")


class Settings(BaseModel):
    """Checked when made; a value that cannot be meant raises `UsageError` with one line per fault."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    # Fields that are plain tables, checked later by these classes: a mistyped name is looked for in them too.
    tables: ClassVar[dict[str, type[BaseModel]]] = {}

    def __init__(self, /, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            faults = [_explain(type(self), fault) for fault in error.errors(include_url=False)]
            raise (
                faults[0] if len(faults) == 1 else UsageError("settings_invalid", faults=ErrorList(faults))
            ) from None

    # Without this mark pydantic would call __init__ for settings inside settings too, and their path would be lost.
    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]

    def replace(self, /, **changes: Any) -> Self:
        """A copy with other values, checked again (pydantic's own `model_copy` does not check)."""
        return type(self)(**{**self.model_dump(exclude_unset=True), **changes})


def suggest_name(name: str, known: list[str]) -> str:
    """` (did you mean ...?)` for a mistyped name, or nothing where no known name is near."""
    alike = {each: SequenceMatcher(None, _normalise_name(each), _normalise_name(name)).ratio() for each in known}
    near = [each for each in known if _is_near(name, each, alike[each])]
    # Of two that are as near, the same one whatever their order: some callers know them as a set.
    return f" (did you mean {max(near, key=lambda each: (alike[each], each))}?)" if near else ""


def _is_near(name: str, other: str, similarity: float) -> bool:
    """`similarity` is the share of letters that stand in the same order in both: 1 where all do."""
    one, two = _normalise_name(name), _normalise_name(other)
    if sorted(one) == sorted(two):  # of a short name, two swapped letters are much: tei is a third unlike tie
        return True
    if similarity >= 0.5 and (_abbreviates(name, other) or _abbreviates(other, name)):
        return True
    return similarity >= (0.75 if one[:1] == two[:1] else 0.8)  # the first letter is seldom the one that is mistyped


def _abbreviates(name: str, other: str) -> bool:
    """Some words are shortened or left out: heads or n_head for num_heads."""
    whole = _split_words(other)
    return all(any(word.startswith(part) for word in whole) for part in _split_words(name))


def _normalise_name(name: str) -> str:
    """Without case and underscores: who writes dModel or ROUGE-L means d_model and rougeL."""
    return "".join(_split_words(name))


def _split_words(name: str) -> list[str]:
    return _WORD_SEPARATORS.split(name.casefold())


def _explain(settings: type[BaseModel], fault: ErrorDetails) -> UsageError:
    name = ".".join(cut_text(str(part)) for part in fault["loc"])
    if fault["type"] == "extra_forbidden":
        section = fault["input"]
        if isinstance(section, dict) and section:  # a section that is not there: its first setting may be elsewhere
            name = f"{name}.{cut_text(str(next(iter(section))))}"
        return UsageError("unknown_setting", name=name, suggestion=_suggest_setting(settings, name))
    if fault["type"] == "missing":
        return UsageError("setting_missing", name=name)
    given = shorten(fault["input"])
    if fault["type"] == "tuple_type":
        meant = f"[[{name}]]" if isinstance(fault["input"], dict) else f"[{given}]"  # tables, or a list
        return UsageError("setting_not_a_list", name=name, meant=meant, given=given)
    if fault["type"] == "value_error" and isinstance(error := fault["ctx"]["error"], UsageError):
        return error
    message = fault["msg"]
    return UsageError("setting_invalid", name=name, reason=message[:1].lower() + message[1:], given=given)


def _suggest_setting(settings: type[BaseModel], name: str) -> str:
    """The setting of this name in another section; else a near name in its own section, or in any."""
    *path, last = name.split(".")
    everywhere = _list_settings(settings)
    same = [each for each in everywhere if each.split(".")[-1] == last]
    if same:
        return f" (did you mean {' or '.join(same[:2])}?)"
    if near := suggest_name(last, list(_find_section(settings, tuple(path)).model_fields)):
        return near
    if near := suggest_name(last, list({each.split(".")[-1] for each in everywhere})):
        meant = near.removeprefix(" (did you mean ").removesuffix("?)")
        return f" (did you mean {next(each for each in everywhere if each.split('.')[-1] == meant)}?)"
    return ""


def _list_settings(settings: type[BaseModel]) -> list[str]:
    """The dotted names of all settings that hold one value."""
    found: list[str] = []
    tables = settings.tables if issubclass(settings, Settings) else {}
    for name, field in settings.model_fields.items():
        kinds = (tables.get(name), field.annotation, *get_args(field.annotation))
        inner = [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)]
        found += [f"{name}.{each}" for each in _list_settings(inner[0])] if inner else [name]
    return found


def _find_section(settings: type[BaseModel], path: tuple[int | str, ...]) -> type[BaseModel]:
    """The settings class that a dotted path of field names leads to."""
    for part in path:
        annotation = settings.model_fields[str(part)].annotation if str(part) in settings.model_fields else None
        for inner in (annotation, *get_args(annotation)):  # a setting, or a tuple of such
            if isinstance(inner, type) and issubclass(inner, BaseModel):
                settings = inner
    return settings
