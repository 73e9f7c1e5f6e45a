"""Questions about memory: whose it is, what a view shows of it, and which views share it."""
