"""The command line, for `python -m attendo`."""

from attendo.cli.start import main

main()
