"""Runs the study."""

from benchmarks.fault_study.measure import main

main()
