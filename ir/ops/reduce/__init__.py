"""Reductions and scans: sums, extremes, norms, softmax, statistics."""
