"""Methods compiled for the object they belong to, whatever is compiled for other objects of its class."""

from collections.abc import Callable
from types import FunctionType, MethodType
from typing import Any

import torch


def compiled_alone(method: Callable[..., None]) -> Callable[..., None]:
    """Does the same, but for rounding, after a first call that takes up to a minute.

    The compiler counts how often it has compiled a piece of code, for whichever object, and gives up after a few
    times. So here the method gets code of its own.
    """
    assert isinstance(method, MethodType)
    function: Any = method.__func__
    own = FunctionType(function.__code__.replace(), function.__globals__, function.__name__)
    return torch.compile(MethodType(own, method.__self__), fullgraph=True, dynamic=False)
