"""Tape nodes of ops and leaves, and what they keep."""
