"""Fault detectors and repairs of `check`, measured on weak models."""
