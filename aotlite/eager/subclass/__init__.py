"""Wrapper subclasses: their protocol and its checks; also copies, pickles and text of tensors."""
