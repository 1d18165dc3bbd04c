"""Where a command begins: what `attendo` and `python -m attendo` run. It imports nothing that takes a while."""

import sys
import warnings
from typing import Any


def main() -> None:
    """Ctrl-C is one line, also while the commands are still being imported; so is a warning of ours."""
    theirs = warnings.showwarning

    def show(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
        if category.__module__.startswith("attendo."):
            print(f"attendo: {message}", file=sys.stderr)
        else:
            theirs(message, category, *place, **more)

    warnings.showwarning = show
    try:
        from attendo.cli.main import main as run
    except KeyboardInterrupt:
        print("attendo: interrupted", file=sys.stderr)
        sys.exit(130)
    run()
