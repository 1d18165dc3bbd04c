"""The training loop. The package itself can be called: `attendo.train(...)` is `attendo.training.train`."""

import sys
from importlib import import_module
from types import ModuleType
from typing import Any


class _CallablePackage(ModuleType):
    """A package and a function cannot have one name, and both are called train."""

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return import_module("attendo.training").train(*arguments, **named)


sys.modules[__name__].__class__ = _CallablePackage
