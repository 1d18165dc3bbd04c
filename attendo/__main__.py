"""The command line, for `python -m attendo`."""

from attendo.cli.main import main

main()
