"""What can go wrong for a reason the user can mend; each kind carries the exit code of the command line."""

from importlib.util import find_spec


class AttendoError(Exception):
    """The message is one line that names the thing, the value and the way out."""

    exit_code = 1


class UsageError(AttendoError, ValueError):
    """A setting, an option or an argument that cannot be meant."""

    exit_code = 2


class DataError(AttendoError):
    """A text or data file that cannot be used."""

    exit_code = 3


class ModelError(AttendoError):
    """A model folder or checkpoint that is missing, damaged or does not fit."""

    exit_code = 4


def require_package(package: str, extra: str, purpose: str) -> None:
    """Raise a `UsageError` that names the pip command if a package is missing. The package is not imported."""
    if find_spec(package) is None:
        raise UsageError(f"{purpose} needs {package}: pip install 'attendo[{extra}]'")
