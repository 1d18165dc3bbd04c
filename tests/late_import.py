"""Imports slow packages at first use, because only some tests need them.

Every pytest process imports every test file, so all processes pay for an `import` at the top of one file.
"""

from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any

import pytest


class LateModule(ModuleType):
    """Imports the module of this name at first use."""

    def __getattr__(self, name: str) -> Any:
        return getattr(import_module(self.__name__), name)


def needs(*packages: str) -> pytest.MarkDecorator:
    """Skips a test if one of these packages is not installed."""
    missing = [name for name in packages if find_spec(name) is None]
    return pytest.mark.skipif(bool(missing), reason=f"not installed: {', '.join(missing)}")
