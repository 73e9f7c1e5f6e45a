"""Tensors from data, numbers and random numbers; parts, memory and questions of tensors."""
