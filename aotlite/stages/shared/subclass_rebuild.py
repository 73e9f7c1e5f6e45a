"""Rebuilds a wrapper from other parts by its class's `__tensor_unflatten__`; checks the class.

Rule: SUB-1. Spec: `specs/subclasses.md`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from aotlite.eager.base.modes import recording
from aotlite.eager.base.tensor import Tensor
from aotlite.eager.subclass.protocol import flatten, is_wrapper, unflatten
from aotlite.ir.errors import SubclassError, noted
from aotlite.ir.graph.role import Part
from aotlite.ir.meta import TensorMeta
from aotlite.ir.meta.symbolic import always_same_meta
from aotlite.stages.records.capture_inputs import CapturedInput
from aotlite.stages.records.metadata.subclass_meta import SubclassMeta
from aotlite.stages.records.trace import Trace
from aotlite.stages.shared.size_values import AtSizes


def rebuilt_wrapper(
    recorder: Trace, wrapper: Tensor, inner: Mapping[str, Tensor], meta: TensorMeta | None = None
) -> Tensor:
    """A wrapper like `wrapper` with other parts; `meta` is its outer geometry, if it is the fake of
    an input. A spec that the class makes of its parts has symbols there. It is compared in numbers;
    each call compares it again (SUB-21).

    Raises SubclassError if the class returns another geometry, or runs ops on the parts.
    """
    cls, start = type(wrapper), len(recorder.nodes)
    sizes = None if meta is None else recorder.sizes
    shown = None if sizes is None else AtSizes(sizes.table.hints).put
    meta = wrapper.meta if meta is None else meta
    spec = flatten(wrapper)[1]
    error: Exception | None = None
    try:
        with recording(recorder):
            made: Tensor = unflatten(cls, inner, spec, meta.shape, meta.stride, shown=shown)
        if always_same_meta(made.meta, meta):
            made.meta = meta
        else:
            error = _unlike(cls, f"gives {made.meta}", str(meta))
    except SubclassError as broken:
        error = broken
    if len(recorder.nodes) > start:
        ops = sorted({node.target.name for node in recorder.nodes[start:]})
        recorder.drop_from(start)
        misuse = _unlike(cls, f"runs {', '.join(ops)}", "no op")
        error = misuse if error is None else noted(error, str(misuse))
    if error is not None:
        raise error
    return made


def _unlike(cls: type[object], what: str, expected: str) -> Exception:
    return noted(
        SubclassError(f"{cls.__name__}: __tensor_unflatten__ {what}, expected {expected}"),
        "It puts the parts at their attributes, so that __tensor_flatten__ gives them and the "
        "spec again. (SUB-1)",
    )


def subclass_meta_of(
    wrapper: Tensor, role: Any, roles: dict[Any, dict[str, Any]], kind: type[Part] = Part
) -> SubclassMeta:
    """The `SubclassMeta` of a wrapper with this role.

    The roles of parts are `kind(role, name)`, unless `roles` has others.
    """
    names, spec = flatten(wrapper)
    parts, layouts = [], {}
    for name in names:
        inner = getattr(wrapper, name)
        of = roles.get(role, {}).get(name) or kind(role, name)
        how = subclass_meta_of(inner, of, roles, kind) if is_wrapper(inner) else None
        parts.append((name, of, how))
        if how is None:
            layouts[of] = inner.meta
    offset = wrapper.offset if kind is Part else 0
    return SubclassMeta(type(wrapper), spec, wrapper.meta, tuple(parts), layouts, offset)


def input_subclass_metas(
    recorder: Trace, inputs: Iterable[CapturedInput]
) -> dict[Any, SubclassMeta]:
    """The `SubclassMeta`s of input wrappers, by role (SUB-3)."""
    parts = recorder.wrapped.parts
    fakes = {each.role: each.fake for each in inputs if each.role in parts}
    return {role: subclass_meta_of(fake, role, parts) for role, fake in fakes.items()}
