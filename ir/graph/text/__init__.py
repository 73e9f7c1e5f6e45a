"""Whole graphs as text: the printer, the reader of printed text, the sequence table."""
