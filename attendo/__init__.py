"""attendo: an encoder–decoder Transformer to train, run and inspect."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from attendo.explore.saved_page import show
    from attendo.model.config import ModelConfig
    from attendo.model.transformer import Transformer
    from attendo.pipelines import pipeline
    from attendo.runs.load import load
    from attendo.text_model import TextModel
    from attendo.training import train

__version__ = "0.1.0"
__all__ = ["ModelConfig", "TextModel", "Transformer", "__version__", "load", "pipeline", "show", "train"]

# Names are imported on first use: importing torch takes two seconds, and `attendo --help` does not need it.
# `attendo.train` is also a package, and importing it rebinds the name. So that package is callable.
_HOMES = {
    "ModelConfig": "attendo.model.config",
    "TextModel": "attendo.text_model",
    "Transformer": "attendo.model.transformer",
    "load": "attendo.runs.load",
    "pipeline": "attendo.pipelines",
    "show": "attendo.explore.saved_page",
    "train": "attendo.train",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'attendo' has no attribute {name!r}")
    from importlib import import_module

    home = import_module(_HOMES[name])
    return home if name == "train" else getattr(home, name)


def __dir__() -> list[str]:
    return __all__
