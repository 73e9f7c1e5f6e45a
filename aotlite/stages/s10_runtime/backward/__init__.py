"""The backward of an entry: its tape node, and the functions that it calls."""
