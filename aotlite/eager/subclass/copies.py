"""`copy.copy`, `copy.deepcopy` and `pickle` of tensors.

A wrapper is flattened, its parts are copied or pickled like any tensor, and its class unflattens
the copy. Then the copy gets the history and attributes of the original. Tensors that share memory
have copies that share memory. Rules: SUB-1, SUB-9. Spec: `specs/subclasses.md`.
"""

from __future__ import annotations

import copy
from typing import Any

from aotlite.eager.base.modes import STATE
from aotlite.eager.base.tensor import Tensor
from aotlite.eager.subclass.protocol import flatten, unflatten
from aotlite.ir.errors import AutogradError


def reduce_ex(tensor: Tensor, protocol: Any) -> Any:
    """The state for copies and pickles: all but what belongs to this object alone."""
    made: Any = object.__reduce_ex__(tensor, max(int(protocol), 2))
    make, args, (own, slots), *rest = made
    slots = {**slots, "facts": None, "_array": None, "_accumulator": None}
    slots.pop("_dynamic_dims", None)
    if tensor.__tensor_dispatch__ is not None:
        return _reduced(tensor, own, slots)
    return make, args, (own, slots), *rest


def deepcopy(tensor: Tensor, memo: dict[int, object]) -> Tensor:
    """A tensor on a copy of the memory; a leaf if this is one. Raises AutogradError for others."""
    if not tensor.is_leaf:
        raise AutogradError("deepcopy: the tensor is not a leaf, expected a leaf; use detach()")
    if tensor.__tensor_dispatch__ is not None:
        twin: Tensor = _deeply_copied(tensor, memo)
    elif tensor.storage.buffer is None or STATE.recorder is not None:
        twin = tensor.detach().clone()
    else:  # tensors that share memory share their copies' memory
        twin = Tensor(copy.deepcopy(tensor.storage, memo), tensor.meta, tensor.offset)
    twin.__class__ = type(tensor)
    twin._leaf = tensor._leaf
    twin.facts = None
    memo[id(tensor)] = twin
    if getattr(tensor, "_member", type(tensor))._copies_grad and tensor.grad is not None:
        twin.grad = copy.deepcopy(tensor.grad, memo)
    return twin


def _reduced(wrapper: Tensor, own: dict[str, object] | None, slots: dict[str, object]) -> object:
    """The state of a wrapper for `copy.copy` and `pickle`: parts, spec, geometry, attributes."""
    names, spec = flatten(wrapper)
    inner = {name: getattr(wrapper, name) for name in names}
    how = (type(wrapper), inner, spec, wrapper.meta.shape, wrapper.meta.stride)
    others = {name: value for name, value in (own or {}).items() if name not in inner}
    slots = {name: value for name, value in slots.items() if name not in inner}
    return unflatten, how, (others, slots)


def _deeply_copied(wrapper: Tensor, memo: dict[int, object]) -> Tensor:
    """A wrapper of deep copies of the parts, on the copy of its storage."""
    names, spec = flatten(wrapper)
    inner = {name: copy.deepcopy(getattr(wrapper, name), memo) for name in names}
    meta = wrapper.meta
    if isinstance(spec, (list, dict)):  # each has its own
        spec = copy.deepcopy(spec, memo)
    twin = unflatten(type(wrapper), inner, spec, meta.shape, meta.stride)
    twin.storage, twin.offset = copy.deepcopy(wrapper.storage, memo), wrapper.offset
    twin._leaf = wrapper._leaf
    if hasattr(wrapper, "_member"):  # of a module: `nn/parameter.py`
        twin._member = wrapper._member
    memo[id(wrapper)] = twin
    return twin
