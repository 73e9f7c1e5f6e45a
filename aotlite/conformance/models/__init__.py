"""Oracles in plain Python of memory and of gradients, and the scenarios that they run."""
