"""Losses of an element and its target, and of class labels."""
