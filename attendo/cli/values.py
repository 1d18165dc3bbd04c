"""Converts option and argument values without typer's pydantic conversion, whose import is slower than the help."""

from functools import partial
from pathlib import Path
from typing import Any, get_args, get_origin

import typer


def convert_lightly(parameter: Any) -> Any:
    """Return the parameter. If its type is simple, its values are converted by this module."""
    if _find_type(parameter) in (bool, int, float, str, Path) or parameter.type_descriptor.choices:
        parameter.get_runtime_param = partial(_Conversion, parameter)
    return parameter


class _Conversion:
    """The conversion interface that typer calls."""

    def __init__(self, parameter: Any) -> None:
        self._parameter = parameter

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """Return the value in the parameter's type, or a list of values."""
        several = param.multiple or param.nargs == -1
        if value is None:
            return () if several else None
        try:
            return [_convert(param, each) for each in value] if several else _convert(param, value)
        except ValueError as error:
            raise typer.BadParameter(str(error), ctx=ctx, param=param) from None


def _convert(parameter: Any, value: Any) -> Any:
    if choices := parameter.type_descriptor.choices:
        from attendo.decode.options import RENAMED_VALUES

        return value if value in RENAMED_VALUES.get(parameter.name, {}) else _choose(choices, value)
    kind = _find_type(parameter)
    if kind is bool:
        return value if isinstance(value, bool) else _choose(("true", "false"), str(value).lower()) == "true"
    if kind is int or kind is float:
        return _convert_number(parameter, kind, value)
    return kind(value)


def _choose(choices: tuple[Any, ...], value: Any) -> Any:
    for choice in choices:
        if choice == value or str(choice) == value:
            return choice
    raise ValueError(f"{str(value)[:60]!r} is not one of {', '.join(repr(choice) for choice in choices)}")


def _convert_number(parameter: Any, number_type: type[int] | type[float], value: Any) -> float:
    try:
        number = number_type(value)
    except (ValueError, OverflowError):
        what = "a whole number" if number_type is int else "a number"
        raise ValueError(f"{str(value)[:60]!r} is not {what}") from None
    least, most = parameter.min, parameter.max
    if least is not None and not number >= least:  # NaN is not in any range
        raise ValueError(f"{str(value)[:60]} is not in the range: {least} or more")
    if most is not None and not number <= most:
        raise ValueError(f"{str(value)[:60]} is not in the range: {most} or less")
    return number


def _find_type(parameter: Any) -> Any:
    kind = parameter.type_descriptor.annotation
    return get_args(kind)[0] if get_origin(kind) is list else kind
