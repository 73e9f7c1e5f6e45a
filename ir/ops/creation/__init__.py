"""New tensors from numbers alone, or of the size of another."""
