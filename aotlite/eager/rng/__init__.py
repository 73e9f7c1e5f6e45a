"""Random number generators of the eager engine."""
