"""Whole graphs as text: the printer, the readers of printed text and roles, the sequence table."""
