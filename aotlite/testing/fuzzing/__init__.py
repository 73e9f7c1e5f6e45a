"""Runs of many random programs."""
