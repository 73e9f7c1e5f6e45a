"""Wrapper subclasses: their protocol, what it is checked for, copies and texts of tensors."""
