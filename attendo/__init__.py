"""attendo: the encoder–decoder Transformer you can train, run and see through."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from attendo.interop.opening import load
    from attendo.model.config import ModelConfig
    from attendo.model.transformer import Transformer
    from attendo.pipelines import pipeline
    from attendo.text_model import TextModel

__version__ = "0.1.0"
__all__ = ["ModelConfig", "TextModel", "Transformer", "__version__", "load", "pipeline"]

# Names are fetched when first asked for: importing torch takes two seconds, and `attendo --help` does not need it.
_HOMES = {
    "ModelConfig": "attendo.model.config",
    "TextModel": "attendo.text_model",
    "Transformer": "attendo.model.transformer",
    "load": "attendo.interop.opening",
    "pipeline": "attendo.pipelines",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'attendo' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
