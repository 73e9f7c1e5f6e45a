"""Samples: calls of ops as plain data, their variants, and those that a schema suggests."""
