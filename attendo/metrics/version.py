"""Whose numbers these are, for signatures."""

from importlib import import_module

# A plain import of the package would tie this layer to all that the package has on show.
VERSION = f"attendo:{import_module('attendo').__version__}"
