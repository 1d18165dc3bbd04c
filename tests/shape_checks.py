"""Types and shapes checked at run time, while tests run: of which parts, in which tests, and by what.

The checks make a network several times slower. So they are on in the tests of its parts and in a few that go through
all of it once, and off where it answers hundreds of times.
ATTENDO_SHAPES=all has them on in every test; `off` does not even put them in, for torch.compile cannot look through
them.
"""

import dataclasses
import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jaxtyping
from beartype import beartype
from beartype.roar import BeartypeDecorHintPep673Exception

PARTS = ("nn", "model", "data", "decode", "train", "text_model")
NEAR = (
    *("golden/", "unit/nn/", "unit/model/test_transformer.py", "unit/model/test_trace_network.py"),
    *("unit/data/test_batch.py", "unit/train/test_update.py", "unit/train/test_loss.py"),
)
TESTS = Path(__file__).parent
WISH = os.environ.get("ATTENDO_SHAPES", "near")

add_checks = jaxtyping.jaxtyped


def install() -> None:
    """Must come before attendo is imported."""
    assert WISH in ("near", "all", "off"), f"ATTENDO_SHAPES must be near, all or off: {WISH}"
    if WISH != "off":
        jaxtyping.install_import_hook([f"attendo.{part}" for part in PARTS], "shape_checks.check_types")
        jaxtyping.jaxtyped = add_checks_at_first_call  # the hook decorates with it


def switch(test: Path) -> None:
    """On or off, as the test in this file wants it."""
    wanted = WISH == "all" or test.relative_to(TESTS).as_posix().startswith(NEAR)
    jaxtyping.config.update("jaxtyping_disable", not wanted)


def add_checks_at_first_call(*, typechecker: Any) -> Callable[[Any], Any]:
    """The decorator of the hook. To make all checks at the import takes longer than the import itself."""
    return functools.partial(_decorate, typechecker=typechecker)


def _decorate(made: Any, typechecker: Any) -> Any:
    if isinstance(made, classmethod | staticmethod):
        return type(made)(_decorate(made.__func__, typechecker))
    if isinstance(made, property):
        parts = (each and _decorate(each, typechecker) for each in (made.fget, made.fset, made.fdel))
        return property(*parts)
    if isinstance(made, type):
        if dataclasses.is_dataclass(made) and "__init__" in vars(made):
            made.__init__ = _decorate(made.__init__, typechecker)  # type: ignore[misc]
        return made
    # A function inside another one is made at every call, and to make its check takes longer than anything it does.
    return made if "<locals>" in made.__qualname__ else _with_late_checks(made, typechecker)


def _with_late_checks(function: Any, typechecker: Any) -> Any:
    with_checks = functools.cache(lambda: add_checks(function, typechecker=typechecker))

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        called = function if jaxtyping.config.jaxtyping_disable else with_checks()
        return called(*args, **kwargs)

    return call


def check_types(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` with its types checked. One that speaks of `Self` stays as it is: the hook cannot check it."""
    try:
        return beartype(function)
    except BeartypeDecorHintPep673Exception:
        return function
