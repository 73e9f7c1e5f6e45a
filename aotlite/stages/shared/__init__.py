"""Analyses that several stages use, one per file."""
