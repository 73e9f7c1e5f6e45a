"""Memory of other tensors that a backward uses: its saved values, and what it reads and writes."""
