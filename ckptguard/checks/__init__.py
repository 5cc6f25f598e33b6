"""Checks: pure functions, values in, findings out."""
