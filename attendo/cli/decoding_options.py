"""Command line options made from the declared decoding options (`attendo/decode/options.py`)."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import Field
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import typer

from attendo.decode.options import RENAMED_OPTIONS, SECTIONS, CallFields, GenerationFields, OptionInfo, list_options
from attendo.errors import UsageError

_OPTIONS = {each.name: each for each in (*list_options(CallFields), *list_options(GenerationFields))}
Command = Callable[..., None]


def add_decoding_options(*names: str, **types: Any) -> Callable[[Command], Command]:
    """Replace `**given` in the signature of a command by decoding options, by default all. Old names are hidden.

    `types` are types that differ from the declared ones. The options are sorted by the sections of the help.
    """
    declared = {name: _make_parameter(_OPTIONS[name], types.get(name)) for name in names or _OPTIONS}
    old = [_make_old_parameter(old, declared[new]) for old, new in RENAMED_OPTIONS.items() if new in declared]

    def add(command: Command) -> Command:
        own = [each for each in inspect.signature(command).parameters.values() if each.kind is not each.VAR_KEYWORD]
        parameters = [each.replace(kind=each.KEYWORD_ONLY) for each in own]
        at = next((number for number, each in enumerate(parameters) if _find_section(each)), len(parameters))
        options = sorted([*declared.values(), *parameters[at:]], key=_section_index)
        command.__signature__ = inspect.Signature([*parameters[:at], *options, *old])  # type: ignore[attr-defined]
        return command

    return add


def take_decoding_options(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that were given, by their new names. Each old name is a `RenamedSettingWarning`."""
    found = {name: value for name, value in given.items() if value is not None and value != []}
    for old, new in RENAMED_OPTIONS.items():
        if old in found:
            from attendo.settings import warn_of_old_name

            if new in found:
                raise UsageError("setting_given_by_both_names", old=_flag(old), new=_flag(new))
            warn_of_old_name(_flag(old), _flag(new))
            found[new] = found.pop(old)
    return found


def read_glossary(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options with the content of the glossary instead of its path."""
    if "glossary" not in options:
        return dict(options)
    from attendo.text_model import Glossary

    return {**options, "glossary": Glossary.read(options["glossary"])}


def _make_parameter(option: Field[Any], own_type: Any) -> inspect.Parameter:
    info: OptionInfo = option.metadata["option"]
    kind = own_type or _value_type(option.type)
    names = (f"{_flag(option.name)}/--no-{_flag(option.name)[2:]}",) if kind is bool else (_flag(option.name),)
    settings: dict[str, Any] = {"min": info.ge, "max": info.le} if kind in (int, float) else {}
    text = f"{info.description[0].upper()}{info.description[1:]}."
    return _parameter(option.name, kind, *names, help=text, rich_help_panel=info.section, **settings)


def _make_old_parameter(name: str, new: inspect.Parameter) -> inspect.Parameter:
    kind = get_args(get_args(new.annotation)[0])[0]
    return _parameter(name, kind, _flag(name), hidden=True)


def _parameter(name: str, kind: Any, *flags: str, **settings: Any) -> inspect.Parameter:
    annotation = Annotated[kind | None, typer.Option(*flags, show_default=False, **settings)]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


def _flag(name: str) -> str:
    info: OptionInfo | None = _OPTIONS[name].metadata["option"] if name in _OPTIONS else None
    return (info and info.flag) or f"--{name.replace('_', '-')}"


def _value_type(declared: Any) -> Any:
    """Return the type on the command line: the first of a union, and a list of strings for any sequence."""
    kind = get_args(declared)[0] if get_origin(declared) in (Union, UnionType) else declared
    return kind if kind in (bool, int, float, str) or get_origin(kind) is Literal else list[str]


def _find_section(parameter: inspect.Parameter) -> str | None:
    """Return the section of the help, or None for an argument and for an option without a section."""
    return next((getattr(each, "rich_help_panel", None) for each in get_args(parameter.annotation)[1:]), None)


def _section_index(parameter: inspect.Parameter) -> int:
    section = _find_section(parameter)
    return SECTIONS.index(section) if section in SECTIONS else len(SECTIONS)
