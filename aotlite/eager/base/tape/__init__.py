"""The autograd state of tensors: tape nodes, hooks, view chains and view roots."""
