"""Samples: calls of ops as plain data, their variants, and samples made from a schema."""
