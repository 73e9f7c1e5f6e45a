"""Values that a file holds and returns: containers of results, arrays of the state."""
