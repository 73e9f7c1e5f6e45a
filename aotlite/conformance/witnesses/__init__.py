"""Witnesses: breaches as lines of the library's own code."""
