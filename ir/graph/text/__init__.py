"""Graphs as text, and from it."""
