"""Plain help texts and the `attendo help` command. Help does not use rich, because its import is slow."""

import inspect
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from textwrap import TextWrapper
from typing import Annotated, Any, get_args, get_origin

import typer

from attendo.cli.language import count_columns, pad_columns, say, translate

MAX_WIDTH = 100  # columns; longer lines are hard to read
_OVERFLOW = 1e6  # bounds this large only prevent overflow
_MAX_NAME_WIDTH = 26  # columns for option names; longer names have a line of their own
_FOLDERS = ("data", "documents_folder", "ensemble", "folder", "model", "models", "out", "run", "runs", "store")

_CHINESE = "\u2e80-\u9fff\uf900-\ufaff\uff00-\uffef"
# Before or after a Chinese character, but not before a closing mark or after an opening one.
_CHINESE_BREAKS = re.compile(rf"(?<![（“《])(?:(?<=[{_CHINESE}])|(?=[{_CHINESE}]))(?![，。；：、？！）”》…,.;:)\]])")
# (name, explanation) rows by section.
HelpRows = dict[str, list[tuple[str, str]]]


def write_help(command: Any, context: Any, formatter: Any, commands: HelpRows | None = None) -> None:
    """Write the help of a command. `commands` are the commands of a group."""
    usage = say("Usage: {command} ", command=context.command_path)
    pieces = " ".join(map(translate, command.collect_usage_pieces(context)))
    lines = _wrap(pieces, formatter.width, usage, " " * count_columns(usage))
    for paragraph in inspect.cleandoc(command.help or "").split("\n\n"):
        lines += ["", *_wrap(translate(" ".join(paragraph.split())), formatter.width)]
    for heading, rows in {**_list_arguments(command), **(commands or {}), **_list_options(command, context)}.items():
        lines += ["", f"{translate(heading)}{say(':')}", *_format_rows(rows, formatter.width)]
    if command.epilog:
        lines += ["", *_wrap(translate(command.epilog), formatter.width)]
    formatter.write("".join(f"{line}\n" for line in lines))


def _format_rows(rows: Sequence[tuple[str, str]], width: int) -> Iterator[str]:
    """Yield the lines of names and explanations in two columns. A long name has a line of its own."""
    left = min(max(count_columns(name) for name, _ in rows), _MAX_NAME_WIDTH)
    for name, explanation in rows:
        first, *others = _wrap(explanation, width - left - 4) or [""]
        if count_columns(name) > left:
            yield f"  {name}"
            yield f"{'':{left + 4}}{first}"
        else:
            yield f"  {pad_columns(name, left + 2)}{first}".rstrip()
        yield from (f"{'':{left + 4}}{line}" for line in others)


def _wrap(text: str, width: int, first_indent: str = "", indent: str = "") -> list[str]:
    return _ColumnWrapper(width, initial_indent=first_indent, subsequent_indent=indent).wrap(text)


class _ColumnWrapper(TextWrapper):
    """Counts columns, of which a Chinese character has two, and can break a line after each of them."""

    def _split(self, text: str) -> list[str]:
        return [_Chunk(part) for chunk in super()._split(text) for part in _CHINESE_BREAKS.split(chunk) if part]


class _Chunk(str):
    """A part of a line. Its length is the number of its columns."""

    def __len__(self) -> int:
        return count_columns(str.__str__(self))


def show_help(
    context: typer.Context,
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[COMMAND]", help="A command, such as train or bench serve.")
    ] = None,
) -> None:
    """Show the help of a command."""
    parent = context.find_root()
    command: Any = parent.command
    for name in names or []:
        if not hasattr(command, "commands"):
            parent.fail(f"{parent.command_path} has no commands: leave out {name}")
        _, command, _ = command.resolve_command(parent, [name])
        parent = typer.Context(command, info_name=name, parent=parent)
    print(command.get_help(parent))


def _list_arguments(command: Any) -> HelpRows:
    arguments = [each for each in command.params if each.param_type_name == "argument" and not each.hidden]
    rows = [(_name_argument(each), _explain(each)) for each in arguments]
    return {"Arguments": rows} if rows else {}


def _list_options(command: Any, context: Any) -> HelpRows:
    """Return the options by section. Options without a section are first, but --lang and --help alone are last."""
    found: HelpRows = {"Options": []}
    for each in command.get_params(context):
        if each.param_type_name == "option" and not each.hidden:
            rows = found.setdefault(each.rich_help_panel or "Options", [])
            rows.append((_name_option(each), _explain(each)))
    if len(found["Options"]) == 2 and len(found) > 1:
        found["Other options"] = found.pop("Options")
    return found


def describe_argument(argument: Any) -> str:
    name = _name_argument(argument)
    shown = name if argument.required else f"[{name}]"
    return shown if argument.nargs == 1 else f"{shown}..."


def _name_argument(argument: Any) -> str:
    return (argument.metavar or argument.name.upper()).strip("[].")


def _name_option(option: Any) -> str:
    names = ", ".join(sorted(option.opts, key=len))
    if option.secondary_opts:
        return names.replace("--", "--[no-]", 1)
    value = "" if option.is_flag else _name_value(option)
    return f"{names} {value}".rstrip()


def _name_value(option: Any) -> str:
    """Return the placeholder for an option's value in the help."""
    if option.metavar:
        return str(option.metavar)
    if choices := option.type_descriptor.choices:
        return "|".join(map(str, choices))
    kind = option.type_descriptor.annotation
    if get_origin(kind) is list:
        kind = get_args(kind)[0]
    if kind is Path:
        return "DIR" if option.name in _FOLDERS else "FILE"
    return "N" if kind in (int, float) else max(option.opts, key=len).split("-")[-1].upper()


def _explain(parameter: Any) -> str:
    notes = say(", ").join(_list_notes(parameter))
    return (translate(parameter.help or "") + (say(" [{notes}]", notes=notes) if notes else "")).strip()


def _list_notes(parameter: Any) -> Iterator[str]:
    if parameter.required:
        yield say("required")
    if parameter.param_type_name == "option" and parameter.multiple and "repeatable" not in (parameter.help or ""):
        yield say("repeatable")
    if bounds := _describe_range(parameter.min, parameter.max):
        yield bounds
    if parameter.envvar:
        yield say("environment: {variable}", variable=parameter.envvar)
    if parameter.default is not False and parameter.default not in (None, "", (), []):
        yield say("default: {value}", value=parameter.default)


def _describe_range(min_value: float | None, max_value: float | None) -> str:
    """Describe the bounds of a number. Bounds that only prevent overflow are omitted."""
    low = "" if min_value is None or min_value <= -_OVERFLOW or 0 < min_value <= 1 / _OVERFLOW else f"{min_value:g}"
    high = "" if max_value is None or max_value >= _OVERFLOW else f"{max_value:,g}"
    if low and high:
        return say("{low} to {high}", low=low, high=high)
    return say("from {low}", low=low) if low else say("up to {high}", high=high) if high else ""
