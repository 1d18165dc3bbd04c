"""Types and shapes checked at run time, while tests run: of which parts, in which tests, and by what.

The checks make a network several times slower. So they are on in the tests of its parts and in those that go through
all of it once, and off where it answers hundreds of times: by searches, exports, servers, commands, whole runs.
ATTENDO_SHAPES=all has them on in every test; `off` does not even put them in, for torch.compile cannot look through
them.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jaxtyping
from beartype import beartype
from beartype.roar import BeartypeDecorHintPep673Exception

PARTS = ("nn", "model", "data", "decode", "train", "text_model")
NEAR = ("golden/", "properties/", *(f"unit/{part}/" for part in ("nn", "model", "data", "train")))
TESTS = Path(__file__).parent
WISH = os.environ.get("ATTENDO_SHAPES", "near")


def install() -> None:
    """Must come before attendo is imported."""
    assert WISH in ("near", "all", "off"), f"ATTENDO_SHAPES must be near, all or off: {WISH}"
    if WISH != "off":
        jaxtyping.install_import_hook([f"attendo.{part}" for part in PARTS], "shape_checks.checked")


def switch(test: Path) -> None:
    """On or off, as the test in this file wants it."""
    wanted = WISH == "all" or test.relative_to(TESTS).as_posix().startswith(NEAR)
    jaxtyping.config.update("jaxtyping_disable", not wanted)


def checked(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` with its types checked, but for two kinds that stay as they are.

    One inside another function is made at every call, and making its check takes longer than anything it does. One
    that speaks of `Self` cannot be checked by the hook.
    """
    if "<locals>" in function.__qualname__:
        return function
    try:
        return beartype(function)
    except BeartypeDecorHintPep673Exception:
        return function
