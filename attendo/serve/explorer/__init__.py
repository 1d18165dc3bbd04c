"""Endpoints of the `attendo explore` page, one module per group of endpoints."""
