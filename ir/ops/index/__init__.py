"""Ops that read, write, find and sort elements by position."""
