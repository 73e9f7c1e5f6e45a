"""Breaches written down as lines of the library's own code."""
