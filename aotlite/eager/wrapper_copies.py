"""Copies and pickles of wrappers: what `copy.copy`, `copy.deepcopy` and `pickle` make them of.

A wrapper is taken apart, its parts are copied or pickled as any tensor is, and its class makes the
other one of them; then it gets the history and the attributes that the first one had, as a plain
tensor's twin does. Tensors that share memory share that of their twins. Rules: SUB-1, SUB-9.
Spec: `specs/subclasses.md`.
"""

from __future__ import annotations

import copy
from typing import Any

from aotlite.eager.tensor import Tensor
from aotlite.eager.wrappers import flatten, unflatten


def reduced(wrapper: Tensor, own: dict[str, Any] | None, slots: dict[str, Any]) -> Any:
    """What `copy.copy` and `pickle` make a wrapper of: parts, spec and geometry; then the rest."""
    names, spec = flatten(wrapper)
    inner = {name: getattr(wrapper, name) for name in names}
    how = (type(wrapper), inner, spec, wrapper.meta.shape, wrapper.meta.stride)
    others = {name: value for name, value in (own or {}).items() if name not in inner}
    slots = {name: value for name, value in slots.items() if name not in inner}
    return unflatten, how, (others, slots)


def deeply_copied(wrapper: Tensor, memo: dict[int, Any]) -> Any:
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
