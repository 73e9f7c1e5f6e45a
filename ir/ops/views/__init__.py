"""Ops whose results share memory with their operand, and the scatters that invert them."""
