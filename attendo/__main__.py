"""The command line, for `python -m attendo`."""

from attendo.cli.entry import main

main()
