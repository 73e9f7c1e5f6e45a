"""Runs of the kept tape after the call: graphs that are recorded when they are first needed."""
