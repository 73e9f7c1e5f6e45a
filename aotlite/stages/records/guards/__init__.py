"""Guards as records: the conditions under which a compiled entry serves a later call."""
