"""Generated lines that flatten and unflatten wrapper subclasses.

A call flattens each wrapper argument once, with `__tensor_flatten__`; the guards compare class,
names and spec. It makes a wrapper result with `__tensor_unflatten__` from the results that are its
parts. Compiled autograd uses `dense_gradients`, too.
Rules: SUB-3..SUB-8, SUB-21, TAN-4, TAN-5. Spec: `specs/s10_runtime.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs

from aotlite.eager.autograd.differentiable_views import edge_of
from aotlite.eager.base.modes import STATE
from aotlite.eager.base.tensor import Tensor
from aotlite.eager.subclass.checks import text_of
from aotlite.eager.subclass.protocol import (
    check_kept,
    flatten,
    is_made,
    is_wrapper,
    kept_spec,
    same_spec,
)
from aotlite.ir.errors import SubclassError, TangentError, noted
from aotlite.ir.graph.role import Part, Result, Role, Tangent
from aotlite.ir.meta import TensorMeta
from aotlite.stages.records.metadata.subclass_meta import SubclassMeta
from aotlite.stages.s10_runtime.source import FunctionSource

_FEW = 4
_EXACT = (int, str, bytes, bool, type(None))


def depth(role: Role) -> int:
    """The number of wrappers around the role's tensor."""
    return 1 + depth(role.of) if isinstance(role, Part) else 0


def spec_test(source: FunctionSource, name: str, spec: object) -> str:
    """An expression that is true if the spec in variable `name` equals `spec`."""
    if spec is None:
        return f"{name} is None"
    if type(spec) in _EXACT and len(repr(spec)) < 80:
        return f"type({name}) is {type(spec).__name__} and {name} == {spec!r}"
    source.use(same_spec)
    if type(spec) is tuple and len(spec) <= _FEW:  # mostly the items are the same objects
        items = [source.constant(kept_spec(item), "S", repr(item)) for item in spec]
        tests = [f"type({name}) is tuple and len({name}) == {len(spec)}"]
        for i, item in enumerate(items):
            tests.append(f"({name}[{i}] is {item} or same_spec({name}[{i}], {item}))")
        return " and ".join(tests)
    return f"same_spec({name}, {source.constant(kept_spec(spec), 'S', repr(spec))})"


# ----------------------------------------------------------------------------------------- results
@attrs.define(eq=False, repr=False)
class SubclassWriter:
    """Adds the lines that make wrappers."""

    source: FunctionSource
    count: int = 0

    def made_of(self, wrapping: SubclassMeta, part: Callable[[SubclassMeta, Role], str]) -> str:
        """Adds the lines that make a wrapper, the inner ones first; returns its variable.
        `part` gives the variable of a dense part of a wrapper, by its role."""
        parts = [
            part(wrapping, of) if inner is None else self.made_of(inner, part)
            for _, of, inner in wrapping.parts
        ]
        return self.made(wrapping, parts)

    def made(self, wrapping: SubclassMeta, parts: list[str]) -> str:
        """Adds the lines that make a wrapper from these variables; returns its variable (SUB-5)."""
        source, name = self.source, f"u{self.count}"
        self.count += 1
        kind, meta = wrapping.kind, wrapping.meta
        make = source.constant(kind.__tensor_unflatten__, "U", f"{kind.__name__} of parts")
        spec = source.literal(wrapping.spec) if wrapping.spec is None else self._spec(wrapping.spec)
        names = [attr for attr, _, _ in wrapping.parts]
        inner = ", ".join([f"{attr!r}: {part}" for attr, part in zip(names, parts, strict=True)])
        meta_ = source.record(meta, "M", str(meta))
        kind_ = source.constant(kind, "T", kind.__name__)
        pairs = zip(names, parts, strict=True)
        held = [f"getattr({name}, {attr!r}, None) is {part}" for attr, part in pairs]
        source.use(fitted, check_kept)
        source.add(
            f"{name} = {make}({{{inner}}}, {spec}, {meta.shape}, {meta.stride})",
            f"if type({name}) is not {kind_} or getattr({name}, 'meta', None) is not {meta_}:",
            f"    fitted({name}, {kind_}, {meta_})",
            *_flattens(source, name, names, wrapping.spec),
            f"if not (known and {' and '.join(held)}):",
            f"    check_kept({name}, {{{inner}}}, {spec})",
        )
        if wrapping.offset:
            source.add(f"{name}.offset = {wrapping.offset}")
        return name

    def _spec(self, spec: object) -> str:
        name = self.source.constant(kept_spec(spec), "S", repr(spec))
        if isinstance(spec, (list, dict)):  # each wrapper gets a copy
            self.source.use(kept_spec)
            return f"kept_spec({name})"
        return name


def _flattens(source: FunctionSource, name: str, names: list[str], spec: object) -> list[str]:
    """Lines that set `known`: whether a wrapper flattens to these names and this spec."""
    if spec is None or type(spec) is str:  # only values of its type are equal to it
        return [
            "try:",
            f"    known = {name}.__tensor_flatten__() == ({names}, {spec!r})",
            "except AttributeError:",
            "    known = False",
        ]
    source.use(taken_apart)
    test = spec_test(source, f"{name}_s", spec)
    return [
        f"{name}_n, {name}_s = taken_apart({name})",
        f"known = {name}_n == {names} and {test}",
    ]


def fitted(found: Any, kind: type[Any], meta: TensorMeta) -> None:
    """Gives a wrapper that a class made the expected meta; raises if it differs (SUB-1).

    Strides of dimensions with at most one element may differ from eager's.
    """
    if type(found) is not kind or not is_made(found):
        raise broken(found, kind, meta)
    if found.meta.as_contiguous() is not meta.as_contiguous():
        raise broken(found, kind, meta)
    found.meta = meta


def broken(found: object, kind: type[object], meta: TensorMeta) -> Exception:
    """The error for a wrong result of `__tensor_unflatten__`."""
    shown = f"a {type(found).__name__}, {getattr(found, 'meta', 'no tensor')}"
    return noted(
        SubclassError(
            f"{kind.__name__}.__tensor_unflatten__ gives {shown}, expected a {kind.__name__}, "
            f"{meta}"
        ),
        "It gave that when the function was compiled. A class is rebuilt from its parts, spec and "
        "outer geometry alone. (SUB-1)",
    )


# ---------------------------------------------------------------------------------------- tangents
def write_tangent(
    source: FunctionSource, name: str, result: Role, wrapping: SubclassMeta | None
) -> None:
    """Adds the lines that bring an arriving gradient to the expected form (TAN-5)."""
    source.use(coerced)
    what = source.constant(result, "R", str(result))
    if wrapping is None:
        return
    how = source.record(wrapping, "W", str(wrapping))
    kind = source.constant(wrapping.kind, "T", wrapping.kind.__name__)
    spec = spec_test(source, f"{name}_s", wrapping.spec)
    names = [attr for attr, _, _ in wrapping.parts]
    source.use(taken_apart)
    source.add(
        f"if type({name}) is {kind}:",
        f"    {name}_n, {name}_s = taken_apart({name})",
        f"if type({name}) is not {kind} or {name}_n != {names} or not ({spec}):",
        f"    {name} = coerced({name}, {what}, {how})",
    )


def taken_apart(wrapper: Any) -> tuple[list[str], object]:
    """The result of `flatten`, with the names as a list; errors name the class (SUB-1)."""
    try:
        found = wrapper.__tensor_flatten__()
        if type(found) is tuple and len(found) == 2 and type(found[0]) in (list, tuple):
            return [*found[0]], found[1]
    except AttributeError:
        pass
    names, spec = flatten(wrapper)
    return [*names], spec


def coerced(
    grad: Tensor, result: Role, wrapping: SubclassMeta | None, *, keeps_history: bool = False
) -> Tensor:
    """A gradient of another class or spec, in the form of the recorded backward (TAN-5).

    Raises TangentError with both classes if the gradient's class cannot convert it.
    """
    kind = Tensor if wrapping is None else wrapping.kind
    spec = None if wrapping is None else wrapping.spec
    found = _in_form(grad, spec, kind, keeps_history=keeps_history)
    if wrapping is None:
        if isinstance(found, Tensor) and not is_wrapper(found) and found.shape == grad.shape:
            return found
    elif type(found) is kind and same_spec(flatten(found)[1], spec):
        names = [attr for attr, _, _ in wrapping.parts]
        if found.shape == wrapping.meta.shape and [*flatten(found)[0]] == names:
            return found
    raise _refused(grad, found, result, wrapping)


def dense_gradients(
    grads: Sequence[Tensor | None],
    tangents: Sequence[tuple[Result, TensorMeta]],
    is_wrapped: Sequence[bool],
) -> list[Tensor | None]:
    """The gradients, with dense tensors for wrappers that are not expected (TAN-5)."""
    return [
        grad if wrapped or grad is None or not is_wrapper(grad) else coerced(grad, role, None)
        for grad, wrapped, (role, _) in zip(grads, is_wrapped, tangents, strict=True)
    ]


def with_history(
    grads: Sequence[Tensor | None],
    tangents: Sequence[tuple[Result, TensorMeta]],
    metas: Mapping[Role, SubclassMeta],
) -> list[Tensor | None] | None:
    """The gradients in the expected forms; None if one of them loses its history."""
    found: list[Tensor | None] = []
    for grad, (role, _) in zip(grads, tangents, strict=True):
        wrapping = metas.get(Tangent(role))
        formed = None if grad is None else coerced_with_history(grad, role, wrapping)
        if formed is None and grad is not None:
            return None
        found.append(formed)
    return found


def _in_form(grad: object, spec: object, kind: type[object], *, keeps_history: bool = False) -> Any:
    """A gradient as its class converts it to another form; None if the class does not."""
    method = getattr(grad, "__coerce_same_metadata_as_tangent__", None)
    mode = STATE.grad_mode
    if not keeps_history:
        STATE.grad_mode = None if mode is None else False
    try:
        return None if method is None else method(kept_spec(spec), kind)
    finally:
        STATE.grad_mode = mode


def coerced_with_history(
    grad: Tensor, result: Role, wrapping: SubclassMeta | None
) -> Tensor | None:
    """A gradient as `coerced` returns it, with its history; None if the history is lost."""
    if _is_formed(grad, wrapping):
        return grad
    found = coerced(grad, result, wrapping, keeps_history=True)
    kept = _is_formed(found, wrapping) and edge_of(found) is not None
    return found if kept or edge_of(grad) is None else None


def _is_formed(grad: Tensor, wrapping: SubclassMeta | None) -> bool:
    """Whether a gradient and all its parts have the expected classes, names and specs."""
    if wrapping is None:
        return not is_wrapper(grad)
    if type(grad) is not wrapping.kind:
        return False
    names, spec = flatten(grad)
    if [*names] != [name for name, _, _ in wrapping.parts] or not same_spec(spec, wrapping.spec):
        return False
    return all(_is_formed(getattr(grad, name), inner) for name, _, inner in wrapping.parts)


def dense_part(part: Any, path: str, result: Any, kind: type[object], meta: TensorMeta) -> Tensor:
    """A part of a gradient as a dense tensor; TangentError if it has another form (TAN-4)."""
    found = _in_form(part, None, Tensor)
    if not is_like(found, meta):
        raise misshaped(part, path, result, kind, meta)
    dense: Tensor = found
    return dense


def _refused(grad: Tensor, found: object, result: Role, wrapping: SubclassMeta | None) -> Exception:
    """The error of TAN-5: the gradient's class, its converted form, and the expected class."""
    got = _named(grad)
    if isinstance(found, Tensor):
        got += f", which becomes {_named(found)}, {found.meta}"
    elif found is not None:
        got += f", which becomes {text_of(found)}"
    if wrapping is None:
        expected = "a Tensor, with memory of its own"
    else:
        expected = f"a {wrapping.kind.__name__} of spec {text_of(wrapping.spec)}"
        if type(grad) is wrapping.kind and same_spec(flatten(grad)[1], wrapping.spec):
            got += f" with the parts {[*flatten(grad)[0]]}"
            expected += f" with the parts {[attr for attr, _, _ in wrapping.parts]}"
    if isinstance(found, Tensor):
        expected += f", of shape {grad.shape if wrapping is None else wrapping.meta.shape}"
    return noted(
        TangentError(f"backward: the gradient of {result} is {got}, expected {expected}"),
        "The backward was compiled for gradients of the class of the result. "
        f"{type(grad).__name__}.__coerce_same_metadata_as_tangent__(spec, kind) may say what the "
        "gradient is in that form; detach() results that are not differentiated. (TAN-5)",
    )


def _named(value: Any) -> str:
    """A value in words: its class, and the spec of a wrapper."""
    spec = f" of spec {text_of(flatten(value)[1])}" if is_wrapper(value) else ""
    return f"a {type(value).__name__}{spec}"


def is_like(part: Any, meta: TensorMeta) -> bool:
    """Whether a part is a dense tensor of this shape and dtype, in any layout (TAN-4)."""
    dense = isinstance(part, Tensor) and not is_wrapper(part)
    return dense and part.meta.shape == meta.shape and part.meta.dtype is meta.dtype


def misshaped(
    part: object, path: str, result: Role, kind: type[object], meta: TensorMeta
) -> Exception:
    """The error for a part of a gradient with another shape or dtype than the recorded one."""
    shown = f", {part.meta}" if isinstance(part, Tensor) else ""
    return noted(
        TangentError(
            f"backward: in the gradient of {result}, a {kind.__name__}, attribute {path!r} is "
            f"{_named(part)}{shown}, expected a Tensor, {meta}"
        ),
        "The parts of a gradient are those of the result. (TAN-4)",
    )
