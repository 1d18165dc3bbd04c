"""Converts option and argument values without typer's pydantic conversion, whose import is slower than the help."""

from functools import partial
from pathlib import Path
from typing import Any, get_args, get_origin

import typer

from attendo.errors import UsageError


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
        return _choose(choices, value)
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
    raise UsageError("option_value_unknown", value=str(value)[:60], choices=", ".join(map(repr, choices)))


def _convert_number(parameter: Any, number_type: type[int] | type[float], value: Any) -> float:
    try:
        number = number_type(value)
    except (ValueError, OverflowError):
        code = "option_value_not_integer" if number_type is int else "option_value_not_number"
        raise UsageError(code, value=str(value)[:60]) from None
    least, most = parameter.min, parameter.max
    if least is not None and not number >= least:  # NaN is not in any range
        raise UsageError("option_value_too_small", value=str(value)[:60], least=least)
    if most is not None and not number <= most:
        raise UsageError("option_value_too_large", value=str(value)[:60], most=most)
    return number


def _find_type(parameter: Any) -> Any:
    kind = parameter.type_descriptor.annotation
    return get_args(kind)[0] if get_origin(kind) is list else kind
