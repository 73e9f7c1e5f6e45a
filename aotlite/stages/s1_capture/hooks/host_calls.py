"""Hooks that each backward calls on real gradients: host callbacks, which are effects of the graph.

A wrapper gradient is passed as its dense parts, and rebuilt for the hook.
Used by `hooks/registered.py`. Rules: HOOK-2, TOK-4. Spec: `specs/hooks_inside.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import attrs

from aotlite.eager.base.host_callback import on_host
from aotlite.eager.base.storage import Storage
from aotlite.eager.base.tape.hooks import alike
from aotlite.eager.base.tensor import Tensor
from aotlite.eager.dispatch import dispatch
from aotlite.eager.subclass.protocol import (
    flatten,
    inner_tensors,
    is_wrapper,
    kept_spec,
    leaves_of,
    same_spec,
    unflatten,
)
from aotlite.ir.errors import SubclassError, noted
from aotlite.ir.geometry.overlap import has_internal_overlap
from aotlite.ir.meta import TensorMeta, tensor_meta
from aotlite.ir.meta.text import meta_text
from aotlite.ir.op.host_function import HostFunction
from aotlite.ir.ops.effects import HOST_CALLBACK
from aotlite.ir.symbols.python_number import plain

Hook = Callable[..., Any]


@attrs.frozen(eq=False, repr=False)
class HookSignature:
    """The form of a gradient: meta, class, spec and the forms of its parts, for a wrapper."""

    meta: TensorMeta
    kind: type[Tensor] | None
    spec: Any
    parts: dict[str, HookSignature]

    @classmethod
    def of(cls, tensor: Tensor) -> HookSignature:
        """The form of a tensor."""
        if not is_wrapper(tensor):
            return cls(tensor.meta, None, None, {})
        parts = {name: cls.of(part) for name, part in inner_tensors(tensor).items()}
        return cls(tensor.meta, type(tensor), kept_spec(flatten(tensor)[1]), parts)

    def metas(self) -> Iterator[TensorMeta]:
        """The metas of the dense parts, in the order of `leaves_of`."""
        if self.kind is None:
            yield self.meta
        for part in self.parts.values():
            yield from part.metas()

    def made(self, leaves: Iterator[object]) -> Any:
        """A tensor of this form, built of dense parts."""
        if self.kind is None:
            return next(leaves)
        parts = {name: part.made(leaves) for name, part in self.parts.items()}
        meta = self.meta
        return unflatten(self.kind, parts, kept_spec(self.spec), meta.shape, meta.stride)

    def is_of(self, tensor: Tensor) -> bool:
        """Whether a tensor has this form; strides do not count."""
        same = (self.meta.shape, self.meta.dtype) == (tensor.meta.shape, tensor.meta.dtype)
        if self.kind is None or not is_wrapper(tensor):
            return same and self.kind is None and not is_wrapper(tensor)
        inner = inner_tensors(tensor)
        same = same and type(tensor) is self.kind and same_spec(flatten(tensor)[1], self.spec)
        return same and all(part.is_of(inner[name]) for name, part in self.parts.items())


@attrs.frozen(eq=False, repr=False)
class HostCalledHook:
    """A hook as a host callback, for gradients of one form."""

    hook: Hook
    form: HookSignature
    function: HostFunction

    def happens(self, grad: Tensor) -> object:
        """Records the callback; returns the gradient that replaces `grad`."""
        text = "; ".join([meta_text(meta.as_contiguous()) for meta in self.form.metas()])
        parts = tuple(leaves_of(grad))
        found = dispatch(HOST_CALLBACK, HOST_CALLBACK.bind((self.function, parts, text), {}))
        return self.form.made(iter(found))


@attrs.frozen(eq=False, repr=False)
class HostCalledHooks:
    """The host-called hooks of one capture."""

    _called: list[HostCalledHook] = attrs.field(factory=list)

    def known(self, hook: Hook, grad: Tensor) -> HostCalledHook | None:
        """The callback made before for this hook and this form of gradient, if there is one."""
        for each in self._called:
            if each.hook is hook and each.form.meta is _in_numbers(grad.meta):
                if each.form.is_of(grad):
                    return each
        return None

    def later(self, hook: Hook, grad: Tensor) -> HostCalledHook:
        """A new callback for this hook and this form of gradient."""
        form = HookSignature.of(grad)
        form = attrs.evolve(form, meta=_in_numbers(form.meta))
        made = HostCalledHook(hook, form, HostFunction(hook, on_host(_on_arrays(hook, form))))
        self._called.append(made)
        return made


def _in_numbers(meta: TensorMeta) -> TensorMeta:
    """The meta without symbols: a callback's text declares results in numbers (DYN-23)."""
    return tensor_meta(plain(meta.shape), plain(meta.stride), meta.dtype, meta.device)


def _on_arrays(hook: Hook, form: HookSignature) -> Hook:
    """The hook as a function of the gradient's dense parts; returns those of its result."""
    metas = list(form.metas())

    def call(*values: object) -> Any:
        grad = form.made(iter(list(map(_arrived, values, metas))))
        given = hook(grad)
        found = grad if given is None else alike(hook, given, grad)
        if not form.is_of(found):
            raise _refused(hook, found, form)
        leaves = [leaf.contiguous() for leaf in leaves_of(found)]
        return leaves[0] if form.kind is None else tuple(leaves)

    return call


def _refused(hook: Hook, found: Tensor, form: HookSignature) -> Exception:
    name = getattr(hook, "__name__", type(hook).__name__)
    kind = Tensor if form.kind is None else form.kind
    return noted(
        SubclassError(
            f"hook: {name!r} returned a {type(found).__name__} of another class, spec or parts "
            f"than the gradient, expected a {kind.__name__} like it"
        ),
        "Hooks inside compiled functions keep the form of their gradient. (HOOK-2)",
    )


def _arrived(values: Any, meta: TensorMeta) -> object:
    made = meta.as_contiguous()
    dense: Any = Tensor(Storage(made.device.arrays.adopt(values, made)), made)
    return dense if meta.contiguous else _laid_out(dense, meta)


def _laid_out(grad: Tensor, meta: TensorMeta) -> Any:
    """The gradient with eager's strides; a stride of 0 is an expanded dimension."""
    pairs: Sequence[tuple[int, int]] = list(zip(meta.shape, meta.stride, strict=True))
    sizes = tuple([min(size, 1) if stride == 0 else size for size, stride in pairs])
    if has_internal_overlap(sizes, meta.stride):
        return grad
    memory = grad.new_empty((meta.span,))
    for dim, size in enumerate(sizes):
        grad = grad.narrow(dim, 0, size)
    memory.as_strided(sizes, meta.stride).copy_(grad)
    return memory.as_strided(meta.shape, meta.stride).detach()
