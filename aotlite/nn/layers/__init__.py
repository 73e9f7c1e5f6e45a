"""Layers with PyTorch's names and arguments: each holds parameters and computes one function."""
