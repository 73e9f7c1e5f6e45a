"""Values that a graph holds: their metas, where a module has them, and as arrays of the IR."""

from __future__ import annotations

from typing import Any

import numpy as np

from aotlite.eager.base.new_tensors import tensor_over
from aotlite.eager.base.tensor import Tensor
from aotlite.eager.subclass.protocol import is_wrapper
from aotlite.fx.core.words import Argument, Value
from aotlite.ir.arrays import copied
from aotlite.ir.dtypes import from_numpy
from aotlite.ir.errors import ArgumentError, noted
from aotlite.ir.meta import TensorMeta, tensor_meta
from aotlite.ir.meta.text import meta_from_text
from aotlite.ir.run.interpreter import array_value

__all__ = [
    "constant_array",
    "meta_of_array",
    "meta_of_input",
    "meta_of_value",
    "tensor_of",
    "value_at",
]


def meta_of_input(given: Argument, name: str) -> TensorMeta:
    """The meta of an input: given itself, as a text, or as an example."""
    if isinstance(given, str):
        return meta_from_text(given)
    meta = given if isinstance(given, TensorMeta) else getattr(given, "meta", None)
    if isinstance(meta, TensorMeta):
        return meta
    if isinstance(given, np.ndarray):
        return meta_of_array(given)
    raise noted(
        ArgumentError(f"placeholder {name}: its type is {given!r}, expected a tensor's"),
        f'Graphs are typed: placeholder("{name}", "f32[4, 3]"), or an example tensor in place of '
        "the text.",
    )


def meta_of_array(array: np.ndarray) -> TensorMeta:
    """The meta of a NumPy array, with strides in elements."""
    dtype = from_numpy(array.dtype)
    stride = tuple([step // array.itemsize for step in array.strides])
    return tensor_meta(array.shape, stride, dtype)


def meta_of_value(value: Value, name: str) -> TensorMeta:
    """The meta of a constant: of a tensor or an array. Raises ArgumentError for another value."""
    if isinstance(value, Tensor) and not is_wrapper(value):
        return value.meta
    if isinstance(value, np.ndarray):
        return meta_of_array(value)
    raise ArgumentError(
        f"get_attr: {name!r} is a {type(value).__name__}, expected a plain tensor or an array"
    )


def value_at(module: Any, name: str) -> Any:
    """The attribute of a dotted name; None if there is none, or no module."""
    for part in name.split("."):
        module = getattr(module, part, None)
        if module is None:
            return None
    return module if isinstance(module, (Tensor, np.ndarray)) else None


def constant_array(value: Value, meta: TensorMeta) -> Any:
    """A copy of a constant as an array with the strides of its meta."""
    source = value.detach()._data if isinstance(value, Tensor) else value
    return array_value(source, meta).array


def tensor_of(array: Value, meta: TensorMeta) -> Tensor:
    """A tensor with a copy of an array, in the layout of a meta."""
    return tensor_over(copied(meta.device.arrays, array, meta), meta)
