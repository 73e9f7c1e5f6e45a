"""Graphs of double backward, recorded from the kept tape on first use."""
