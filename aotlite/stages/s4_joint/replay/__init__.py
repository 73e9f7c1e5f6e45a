"""Graphs recorded from the kept tape on first use: double backward, anomaly mode."""
