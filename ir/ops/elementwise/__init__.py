"""Ops of one element at a time: arithmetic, functions, comparisons, activations."""
