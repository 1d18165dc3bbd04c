"""Entry point of `attendo` and `python -m attendo`. Imports no slow modules."""

import sys
import warnings
from typing import Any

from attendo.cli.signals import catch_signals, find_exit_code


def main() -> None:
    """Run a command. Signals and attendo's own warnings print one line each, also during imports."""
    catch_signals()
    theirs = warnings.showwarning

    def show(message: Warning | str, category: type[Warning], *location: Any, **more: Any) -> None:
        if category.__module__.startswith("attendo."):
            print(f"attendo: {message}", file=sys.stderr)
        else:
            theirs(message, category, *location, **more)

    warnings.showwarning = show
    try:
        from attendo.cli.main import main as run

        run()
    except BaseException as error:
        code = find_exit_code(error)
        if code is None or isinstance(error, SystemExit):
            raise
        if code == 130:
            print("attendo: interrupted", file=sys.stderr)
        sys.exit(code)
