"""Gradients that are wrapper subclasses: fake tangents made of parts, and their sums."""
