"""`unwrap_subclass_parameters`: parameters that are wrappers become dense ones (SUB-22).

Spec: `specs/subclasses.md`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from aotlite.eager.autograd.custom_function.function import Function
from aotlite.eager.base.tensor import Tensor
from aotlite.eager.subclass.protocol import flatten, is_wrapper, unflatten
from aotlite.ir.errors import ArgumentError, SubclassError, noted
from aotlite.ir.graph.role import part_suffix
from aotlite.nn.module import Module, members
from aotlite.nn.parameter import Buffer, Parameter


class _Wrap(Function):
    """Builds a wrapper from parts; the parts of its gradient are their gradients."""

    _is_formula = True

    @staticmethod
    def forward(ctx: Any, how: _How, *parts: Tensor) -> Any:
        ctx.how = how
        return how.wrapper_of([part.detach() for part in parts])

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return (None, *ctx.how.parts_of(grad))


class _How:
    """The recipe that rebuilds a parameter from attributes of its module."""

    def __init__(self, wrapper: Tensor, name: str) -> None:
        names, self.spec = flatten(wrapper)
        self.kind, self.meta, self.attributes = type(wrapper), wrapper.meta, names
        self.name = name
        self.held = [f"{name}{part_suffix(each)}" for each in names]
        self.inner: list[_How | None] = [
            _How(part, held) if is_wrapper(part) else None
            for part, held in zip([getattr(wrapper, n) for n in names], self.held, strict=True)
        ]

    def names(self) -> Iterator[str]:
        """The attributes that hold the dense parts."""
        for held, inner in zip(self.held, self.inner, strict=True):
            yield from [held] if inner is None else inner.names()

    def of(self, module: Module) -> Any:
        """The wrapper, built from the module's present attributes."""
        parts = [
            getattr(module, held) if inner is None else inner.of(module)
            for held, inner in zip(self.held, self.inner, strict=True)
        ]
        return _Wrap.apply(self, *parts)

    def wrapper_of(self, parts: list[Tensor]) -> object:
        inner = dict(zip(self.attributes, parts, strict=True))
        return unflatten(self.kind, inner, self.spec, self.meta.shape, self.meta.stride)

    def parts_of(self, grad: object) -> list[Tensor]:
        if type(grad) is not self.kind:
            raise noted(
                SubclassError(
                    f"unwrap_subclass_parameters: the gradient of {self.name!r} is a "
                    f"{type(grad).__name__}, expected a {self.kind.__name__}"
                ),
                "The parts of a gradient are the gradients of the parts. Keep the parameter whole "
                "where its gradient is of another class. (SUB-22)",
            )
        return [getattr(grad, name) for name in self.attributes]


def unwrap_subclass_parameters(module: Module) -> Module:
    """Replaces parameters that are wrappers by dense ones, in all submodules, in place.

    The parts of `p` become parameters `p__a`, `p__b` (buffers, where they cannot have gradients).
    Reading `p` builds the wrapper from them. So guards, optimizers and `state_dict` see dense
    tensors only. Returns the module. Raises ArgumentError for anything but a Module.

    >>> import aotlite as al
    >>> from aotlite.subclasses import TwoTensor
    >>> class Scale(al.nn.Module):
    ...     def __init__(self):
    ...         self.by = al.nn.Parameter(TwoTensor(al.ones(2), al.zeros(2)))
    ...     def forward(self, x):
    ...         return x * self.by
    >>> scale = unwrap_subclass_parameters(Scale())
    >>> [name for name, _ in scale.named_parameters()], type(scale.by).__name__
    (['by__a', 'by__b'], 'TwoTensor')
    """
    if not isinstance(module, Module):
        raise ArgumentError(
            f"unwrap_subclass_parameters: the module is a {type(module).__name__}, expected a "
            "Module"
        )
    found: list[tuple[Module, list[_How]]] = []
    for each in module.modules():
        wrappers = [*members(each, Parameter), *members(each, Buffer)]
        hows = [_How(value, name) for name, value in wrappers if is_wrapper(value)]
        found.append((each, hows))
        _check_free(each, hows)
    held: dict[tuple[int, str], Any] = {}
    for each, hows in found:
        for how in hows:
            value = getattr(each, how.name)
            delattr(each, how.name)
            _hold(each, how, value, held, requires_grad=value.requires_grad)
        if hows:
            _read_by(each, hows)
    return module


def _check_free(module: Module, hows: list[_How]) -> None:
    """Raises ArgumentError, before any change, if the name of a part is already used."""
    for how in hows:
        for name in how.names():
            if hasattr(module, name):
                raise noted(
                    ArgumentError(
                        f"unwrap_subclass_parameters: {type(module).__name__} has an attribute "
                        f"{name!r}, expected none: a part of {how.name!r} is to be called so"
                    ),
                    "Rename the attribute. (SUB-22)",
                )


def _hold(
    module: Module, how: _How, wrapper: object, made: dict[Any, Any], *, requires_grad: bool
) -> None:
    """Makes the dense parts attributes of the module; tied parameters stay tied."""
    for attribute, held, inner in zip(how.attributes, how.held, how.inner, strict=True):
        part = getattr(wrapper, attribute)
        if inner is not None:
            _hold(module, inner, part, made, requires_grad=requires_grad)
            continue
        place = id(part), attribute
        if place not in made:
            trains = requires_grad and part.dtype.is_differentiable
            made[place] = Parameter(part) if trains else Buffer(part)
        setattr(module, held, made[place])


def _read_by(module: Module, hows: list[_How]) -> None:
    """Gives the module a class of its own, with properties that build the wrappers."""
    kind = type(module)
    made = {how.name: property(how.of, doc=f"{how.kind.__name__} of its parts") for how in hows}
    module.__class__ = type(kind.__name__, (kind,), {**made, "__module__": kind.__module__})


unwrap_parameters = unwrap_subclass_parameters  # the name in the release before
