"""Functions that make tensors (factories, `tensor`, interop), and memory changes."""
