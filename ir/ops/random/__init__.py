"""Random numbers: Philox as a pure op, and the distributions drawn from it."""
