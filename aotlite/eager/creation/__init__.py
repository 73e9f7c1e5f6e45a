"""Functions that make tensors (factories, `tensor`, interop), indexing, and memory changes."""
