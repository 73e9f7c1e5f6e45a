"""Wrapper subclasses, and what one needs to write them. Spec: `specs/subclasses.md`."""

from aotlite.eager.wrappers import (
    flatten,
    inner_tensors,
    is_traceable_wrapper_subclass,
    leaves_of,
    unflatten,
)
from aotlite.subclasses.encoded import EncodedTensor
from aotlite.subclasses.masked import MaskedTensor, masked_tensor
from aotlite.subclasses.quantized import QuantizedTensor
from aotlite.subclasses.sparse import SemiStructuredSparseTensor
from aotlite.subclasses.two_tensor import TwoTensor

__all__ = [
    "EncodedTensor",
    "MaskedTensor",
    "QuantizedTensor",
    "SemiStructuredSparseTensor",
    "TwoTensor",
    "flatten",
    "inner_tensors",
    "is_traceable_wrapper_subclass",
    "leaves_of",
    "masked_tensor",
    "unflatten",
]
