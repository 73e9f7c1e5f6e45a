"""Convolution, its two gradients, and the forms that users call."""
