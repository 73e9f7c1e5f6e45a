"""Convolution, normalization, resizing; each with its loops beside it."""
