"""The run-time checker of types and shapes that the import hook puts on every function under test."""

from collections.abc import Callable
from typing import Any

from beartype import beartype
from beartype.roar import BeartypeDecorHintPep673Exception


def checked(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` with its types checked; one that speaks of `Self` stays as it is, because the hook cannot check it."""
    try:
        return beartype(function)
    except BeartypeDecorHintPep673Exception:
        return function
