"""Where a command begins: what `attendo` and `python -m attendo` run. It imports nothing that takes a while."""

import sys


def main() -> None:
    """Ctrl-C is one line, also while the commands are still being imported."""
    try:
        from attendo.cli.main import main as run
    except KeyboardInterrupt:
        print("attendo: interrupted", file=sys.stderr)
        sys.exit(130)
    run()
