"""Ops that copy, join, repeat, pad, reorder and convert tensors."""
