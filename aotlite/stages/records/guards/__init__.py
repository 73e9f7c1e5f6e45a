"""Guards as records: what must hold at a later call for an entry to serve it."""
