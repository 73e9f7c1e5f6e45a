"""Autograd: histories of views and in-place writes, tape nodes, and the engine that runs them."""
