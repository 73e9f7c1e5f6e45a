"""Wrapper subclasses, and what one needs to write them. Spec: `specs/subclasses.md`."""

from aotlite.eager.wrappers import (
    flatten,
    inner_tensors,
    is_traceable_wrapper_subclass,
    leaves_of,
    unflatten,
)
from aotlite.subclasses.two_tensor import TwoTensor

__all__ = [
    "TwoTensor",
    "flatten",
    "inner_tensors",
    "is_traceable_wrapper_subclass",
    "leaves_of",
    "unflatten",
]
