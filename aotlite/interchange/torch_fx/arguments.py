"""Values of a module that is being read, in nested arguments, and the metas of its nodes.

Spec: `specs/torch_fx.md`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs

from aotlite.interchange.torch_fx.values import meta_of, the_torch
from aotlite.ir.errors import AotliteError, ArgumentError, UnsupportedError, noted
from aotlite.ir.graph.builder import Proxy, Results
from aotlite.ir.meta import TensorMeta


@attrs.define(eq=False)
class ModuleValue:
    """A value of the module: the graph's, and PyTorch's fake one."""

    ours: Any
    fake: Any
    fields: tuple[str, ...] = ()
    """The names of several results: `torch.max(x, 0).values`."""


def is_tensor(value: Any) -> bool:
    """Whether a leaf of arguments is a tensor of the module."""
    return isinstance(value, ModuleValue) and isinstance(value.fake, the_torch().Tensor)


def holds_tensors(value: Any) -> bool:
    """Whether a tensor is among these nested values."""
    return any(isinstance(each, the_torch().Tensor) for each in leaves_of(value))


def leaves_of(value: Any) -> list[Any]:
    """The leaves of nested tuples, lists and dictionaries, in order."""
    if isinstance(value, dict):
        value = tuple(value.values())
    if isinstance(value, (list, tuple)):
        return [leaf for each in value for leaf in leaves_of(each)]
    return [value]


def as_tuple(value: Any) -> Any:
    """A list as a tuple."""
    return tuple(value) if isinstance(value, list) else value


def mapped(value: Any, env: dict[Any, ModuleValue], function: Callable[[ModuleValue], Any]) -> Any:
    """Nested arguments with `function` applied to the values of nodes, and to `ModuleValue`s."""
    if isinstance(value, ModuleValue):
        return function(value)
    if isinstance(value, (list, tuple)):
        parts = [mapped(each, env, function) for each in value]
        return parts if isinstance(value, list) else tuple(parts)
    if isinstance(value, dict):
        return {name: mapped(each, env, function) for name, each in value.items()}
    if isinstance(value, slice):
        return slice(*[mapped(x, env, function) for x in (value.start, value.stop, value.step)])
    return function(env[value]) if isinstance(value, the_torch().fx.Node) else value


def itself(value: ModuleValue) -> ModuleValue:
    """The value."""
    return value


def theirs_of(value: ModuleValue) -> Any:
    """PyTorch's fake tensor, or number."""
    return value.fake


def ours_of(value: ModuleValue) -> Any:
    """The graph's value; raises the error that a part of a result stands for."""
    if isinstance(value.ours, AotliteError):
        raise value.ours
    return tuple(value.ours) if isinstance(value.ours, Results) else value.ours


def node_of(value: Any) -> Any:
    """The argument of an op: nodes for values."""
    if type(value) is tuple:
        return tuple([node_of(each) for each in value])
    return value.node if isinstance(value, (Proxy, Results)) else value


def input_meta(node: Any, example: Any) -> tuple[TensorMeta, int]:
    """The meta and the storage offset of an input."""
    torch = the_torch()
    known = example if example is not None else node.meta.get("val", node.meta.get("example_value"))
    if not isinstance(known, torch.Tensor):
        raise noted(
            ArgumentError(
                f"from_fx: input {node.name} has no meta ({type(known).__name__}), expected "
                "meta['val'] or an example that is a tensor"
            ),
            "Give an example for each input: from_fx(module, *examples). (XFX-7)",
        )
    if _is_symbolic(known):
        raise noted(
            UnsupportedError(
                f"from_fx: input {node.name} has sizes that are symbols ({tuple(known.shape)}), "
                "expected numbers"
            ),
            "Give examples: from_fx(module, *examples) is the graph for their sizes. (XFX-7)",
        )
    return meta_of(known), int(known.storage_offset())


def _is_symbolic(tensor: Any) -> bool:
    sizes = (*tensor.shape, *tensor.stride())
    return any(not isinstance(size, int) for size in sizes)


def compare(node: Any, value: ModuleValue) -> None:
    """Raises ArgumentError where `meta["val"]` is not what the call gives."""
    known = node.meta.get("val")
    ours: Any = value.ours
    told, found = leaves_of(known), leaves_of(ours.node.meta if type(ours) is Results else ours)
    if known is None or len(told) != len(found):
        return
    for said, own in zip(told, found, strict=True):
        meta = getattr(own, "meta", own)
        if isinstance(said, the_torch().Tensor) and isinstance(meta, TensorMeta):
            if not _is_symbolic(said) and not _agree(meta_of(said), meta, type(ours) is Results):
                raise noted(
                    ArgumentError(
                        f"from_fx: meta['val'] of {node.name} is {meta_of(said)}, expected {meta}"
                    ),
                    "The metas of a module are not those of its calls: run FakeTensorProp, or "
                    "leave them out. (XFX-10)",
                )


def _agree(said: TensorMeta, meta: TensorMeta, in_parts: bool) -> bool:
    """Whether metas are equal; strides of several results are fitted where one is taken."""
    same = (said.shape, said.dtype) == (meta.shape, meta.dtype)
    return said is meta or (in_parts and same)
