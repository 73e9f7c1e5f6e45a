"""Tape nodes of ops and leaves, and the tensors that they save."""
