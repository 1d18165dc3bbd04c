"""Checks types and shapes at run time in some of the tests.

The checks make a network several times slower. So they are on in the tests of its parts and in a few tests of the
complete network. They are off in tests that generate hundreds of outputs.
ATTENDO_SHAPES=all switches them on in every test that does not measure time. ATTENDO_SHAPES=off does not install them,
because torch.compile cannot trace through them.
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
TIMED = ("unit/serve/http/test_hostile_texts.py",)
TESTS = Path(__file__).parent
MODE = os.environ.get("ATTENDO_SHAPES", "near")

add_checks = jaxtyping.jaxtyped


def install() -> None:
    """Install the import hook. Call it before attendo is imported."""
    assert MODE in ("near", "all", "off"), f"ATTENDO_SHAPES must be near, all or off: {MODE}"
    if MODE != "off":
        jaxtyping.install_import_hook([f"attendo.{part}" for part in PARTS], "shape_checks.check_types")
        jaxtyping.jaxtyped = add_checks_at_first_call  # the hook decorates with it


def switch(test: Path) -> None:
    """Switch the checks on or off for the tests of this file."""
    name = test.relative_to(TESTS).as_posix()
    wanted = name.startswith(NEAR) or (MODE == "all" and not name.startswith(TIMED))
    jaxtyping.config.update("jaxtyping_disable", not wanted)


def add_checks_at_first_call(*, typechecker: Any) -> Callable[[Any], Any]:
    """The decorator of the hook. Building all checks at import takes longer than the import itself."""
    return functools.partial(_decorate, typechecker=typechecker)


def _decorate(target: Any, typechecker: Any) -> Any:
    if target.__module__.endswith("_triton"):
        return target  # Triton compiles the function itself, with the names of its module
    if isinstance(target, classmethod | staticmethod):
        return type(target)(_decorate(target.__func__, typechecker))
    if isinstance(target, property):
        parts = (each and _decorate(each, typechecker) for each in (target.fget, target.fset, target.fdel))
        return property(*parts)
    if isinstance(target, type):
        if dataclasses.is_dataclass(target) and "__init__" in vars(target):
            target.__init__ = _decorate(target.__init__, typechecker)  # type: ignore[misc]
        return target
    # A nested function is created at every call, and building its check takes longer than running it.
    return target if "<locals>" in target.__qualname__ else _check_at_first_call(target, typechecker)


def _check_at_first_call(function: Any, typechecker: Any) -> Any:
    with_checks = functools.cache(lambda: add_checks(function, typechecker=typechecker))

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        called = function if jaxtyping.config.jaxtyping_disable else with_checks()
        return called(*args, **kwargs)

    return call


def check_types(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add type checks to `function`. One with `Self` in its signature is not checked: beartype rejects it here."""
    try:
        return beartype(function)
    except BeartypeDecorHintPep673Exception:
        return function
