"""Packages that only some tests need and that take long to import: imported when a test uses them.

Every process of pytest reads every file of tests. So an `import` at the top of one of them is paid by all.
"""

from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any

import pytest


class LateModule(ModuleType):
    """Imports the module of its name at the first use."""

    def __getattr__(self, name: str) -> Any:
        return getattr(import_module(self.__name__), name)


def needs(*packages: str) -> pytest.MarkDecorator:
    """Skips a test where one of these packages is not installed."""
    missing = [name for name in packages if find_spec(name) is None]
    return pytest.mark.skipif(bool(missing), reason=f"not installed: {', '.join(missing)}")
