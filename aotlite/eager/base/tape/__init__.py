"""What tensors know of their history: tape nodes, hooks, chains and roots of views."""
