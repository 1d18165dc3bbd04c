"""The training loop. The package is callable: `attendo.train(...)` calls `attendo.training.train`."""

import sys
from importlib import import_module
from types import ModuleType
from typing import Any


class _CallablePackage(ModuleType):
    """A callable module, because the package and the function are both named `train`."""

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return import_module("attendo.training").train(*arguments, **named)


sys.modules[__name__].__class__ = _CallablePackage
