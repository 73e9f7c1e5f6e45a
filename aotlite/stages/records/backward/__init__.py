"""What stages 4 and 8 hand on, as records: the joint graph, and the cut into two graphs."""
