"""`vjp`, `jvp`, `jacobian`, `hessian`, `vhp`, `hvp` of Python functions, as in PyTorch.

All of them call `autograd.grad`, once or twice. A Jacobian-vector product is the derivative of the
vector-Jacobian product with regard to the vector (the "double backward trick").
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import attrs

from aotlite.eager.autograd.functional import grad
from aotlite.eager.base.modes import enable_grad
from aotlite.eager.base.tensor import Tensor
from aotlite.eager.creation.from_data import call, ones_like, zeros_like
from aotlite.ir.errors import ArgumentError, AutogradError, ShapeError, UnsupportedError

__all__ = ["hessian", "hvp", "jacobian", "jvp", "vhp", "vjp"]

Tensors = tuple[Tensor, ...]


def vjp(
    func: Callable[..., object],
    inputs: object,
    v: object = None,
    create_graph: bool = False,
    strict: bool = False,
) -> tuple[Any, Any]:
    """(`func(*inputs)`, the product of `v` with its Jacobian: a gradient for each input).

    `v` may be left out where `func` returns one element. `strict` raises AutogradError for a result
    that does not depend on an input.
    """
    with enable_grad():
        call = _Call.of("vjp", func, inputs, create_graph=create_graph, strict=strict)
        given = call.vector("v", v, call.outputs)
        found = call.gradients(call.outputs, call.inputs, given, graph=create_graph)
        return call.shown_outputs(), call.shown(found, call.inputs)


def jvp(
    func: Callable[..., object],
    inputs: object,
    v: object = None,
    create_graph: bool = False,
    strict: bool = False,
) -> tuple[Any, Any]:
    """(`func(*inputs)`, the product of its Jacobian with `v`: a derivative for each result)."""
    with enable_grad():
        call = _Call.of("jvp", func, inputs, create_graph=create_graph, strict=strict)
        given = call.vector("v", v, call.inputs)
        found = call.pushed(call.outputs, given)
        return call.shown_outputs(), call.shown(found, call.outputs, like_many=call.many_outputs)


def jacobian(
    func: Callable[..., object],
    inputs: object,
    create_graph: bool = False,
    strict: bool = False,
    vectorize: bool = False,
    strategy: str = "reverse-mode",
) -> Any:
    """The Jacobian of `func`: for each result and input, a tensor with the shapes of both.

    It runs one backward for each element of the results. `vectorize` is accepted and has no effect.

    >>> import aotlite as al
    >>> jacobian(lambda x: x * x, al.tensor([1.0, 2.0]))
    tensor([[2., 0.],
            [0., 4.]])
    """
    if strategy != "reverse-mode":
        raise UnsupportedError(
            f"jacobian: argument 'strategy' is {strategy!r}, expected 'reverse-mode'"
        )
    with enable_grad():
        call = _Call.of("jacobian", func, inputs, create_graph=create_graph, strict=strict)
        rows = [call.matrix(i, out) for i, out in enumerate(call.outputs)]
        if not call.many_inputs:
            rows = [row[0] for row in rows]
        return tuple(rows) if call.many_outputs else rows[0]


def hessian(
    func: Callable[..., object],
    inputs: object,
    create_graph: bool = False,
    strict: bool = False,
    vectorize: bool = False,
    outer_jacobian_strategy: str = "reverse-mode",
) -> Any:
    """The Hessian of a `func` that returns one number: a tensor for each pair of inputs."""

    def gradient(*inner: Tensor) -> object:
        call = _Call.of("hessian", func, inner, create_graph=True, strict=strict)
        out = call.only_number()
        found = call.gradients((out,), call.inputs, (ones_like(out),), graph=True)
        return call.filled(found, call.inputs)

    many = isinstance(inputs, tuple)
    found = jacobian(
        gradient,
        inputs if many else (inputs,),
        create_graph,
        strict,
        vectorize,
        outer_jacobian_strategy,
    )
    return found if many else found[0][0]


def vhp(
    func: Callable[..., object],
    inputs: object,
    v: object = None,
    create_graph: bool = False,
    strict: bool = False,
) -> tuple[Any, Any]:
    """(`func(*inputs)`, one number; the product of `v` with its Hessian)."""
    with enable_grad():
        call = _Call.of("vhp", func, inputs, create_graph=create_graph, strict=strict)
        given = call.vector("v", v, call.inputs)
        slope = call.slope()
        found = call.gradients(slope, call.inputs, given, graph=create_graph)
        return call.shown_outputs(), call.shown(found, call.inputs)


def hvp(
    func: Callable[..., object],
    inputs: object,
    v: object = None,
    create_graph: bool = False,
    strict: bool = False,
) -> tuple[Any, Any]:
    """(`func(*inputs)`, one number; the product of its Hessian with `v`)."""
    with enable_grad():
        call = _Call.of("hvp", func, inputs, create_graph=create_graph, strict=strict)
        given = call.vector("v", v, call.inputs)
        found = call.pushed(call.slope(), given)
        return call.shown_outputs(), call.shown(found, call.inputs)


@attrs.frozen(eq=False)
class _Call:
    """A call of a function on inputs that require grad, with its results."""

    name: str
    inputs: Tensors
    outputs: Tensors
    many_inputs: bool
    many_outputs: bool
    create_graph: bool
    strict: bool

    @classmethod
    def of(
        cls,
        name: str,
        func: Callable[..., object],
        inputs: object,
        *,
        create_graph: bool,
        strict: bool,
    ) -> _Call:
        many_inputs, given = _tensors(name, "argument 'inputs'", inputs)
        if create_graph:  # a view of each: who computes with them goes on from there
            inner = tuple([t.view_as(t) for t in given])
            inner = tuple([t if t.requires_grad else t.detach().requires_grad_() for t in inner])
        else:
            inner = tuple([t.detach().requires_grad_() for t in given])
        many_outputs, outputs = _tensors(name, "the result of the function", func(*inner))
        call = cls(name, inner, outputs, many_inputs, many_outputs, create_graph, strict)
        for i, each in enumerate(outputs):
            if strict and not each.requires_grad:
                raise AutogradError(
                    f"{name}: result {i} does not depend on the inputs, expected one that does "
                    "where 'strict' is True"
                )
        return call

    # --- checks
    def vector(self, what: str, value: object, like: Tensors) -> Tensors:
        """`v` as tensors, checked; 1 if it is left out and `like` is one element."""
        if value is None:
            if len(like) != 1 or like[0].numel() != 1:
                raise AutogradError(
                    f"{self.name}: argument {what!r} is None, expected a tensor like "
                    f"{', '.join(str(t.meta) for t in like)}"
                )
            return (ones_like(like[0]),)
        _, given = _tensors(self.name, f"argument {what!r}", value)
        if [t.shape for t in given] != [t.shape for t in like]:
            raise ShapeError(
                f"{self.name}: argument {what!r} has shapes {[t.shape for t in given]}, expected "
                f"{[t.shape for t in like]}"
            )
        return self.settled(given)

    def only_number(self) -> Tensor:
        """The result, if it is one real number."""
        if self.many_outputs or self.outputs[0].numel() != 1:
            shapes = [t.shape for t in self.outputs]
            raise AutogradError(
                f"{self.name}: the function gives tensors of shapes {shapes}, expected one tensor "
                "of one element"
            )
        return self.outputs[0]

    # --- derivatives
    def gradients(
        self, outputs: Sequence[Any], inputs: Tensors, vector: Tensors, *, graph: bool
    ) -> list[Tensor | None]:
        """The gradients of those outputs that have a history."""
        pairs = [
            (out, v)
            for out, v in zip(outputs, vector, strict=True)
            if out is not None and out.requires_grad
        ]
        if not pairs:
            found: Sequence[Tensor | None] = [None] * len(inputs)
        else:
            outs, vs = zip(*pairs, strict=True)
            found = grad(outs, inputs, vs, retain_graph=True, create_graph=graph, allow_unused=True)
        if self.strict:
            for i, each in enumerate(found):
                if each is None:
                    raise AutogradError(
                        f"{self.name}: the results do not depend on input {i}, expected them to "
                        "where 'strict' is True"
                    )
        return list(found)

    def slope(self) -> list[Tensor]:
        """The gradient of the only result."""
        out = self.only_number()
        found = self.gradients((out,), self.inputs, (ones_like(out),), graph=True)
        return self.filled(found, self.inputs)

    def pushed(self, outputs: Sequence[Tensor], vector: Tensors) -> list[Tensor | None]:
        """The derivatives of the outputs in the direction of `vector`."""
        weights = tuple([zeros_like(t).requires_grad_() for t in outputs])
        back = self.gradients(outputs, self.inputs, weights, graph=True)
        return self.gradients(back, weights, vector, graph=self.create_graph)

    def matrix(self, index: int, out: Tensor) -> Any:
        """The derivatives of one result for each input."""
        flat = out.reshape(-1)
        rows: list[list[Tensor]] = [[] for _ in self.inputs]
        for k in range(flat.numel()):
            row = self.gradients(
                (flat[k],), self.inputs, (ones_like(flat[k]),), graph=self.create_graph
            )
            for column, each in zip(rows, self.filled(row, self.inputs), strict=True):
                column.append(each)
        made = [
            call("stack", tuple(column)).view((*out.shape, *t.shape))
            if column
            else t.new_zeros((*out.shape, *t.shape))
            for column, t in zip(rows, self.inputs, strict=True)
        ]
        return self.settled(made)

    # --- results
    def filled(self, found: Sequence[Tensor | None], like: Sequence[Tensor]) -> list[Tensor]:
        """The gradients, with zeros for None."""
        pairs = zip(found, like, strict=True)
        return [zeros_like(t) if each is None else each for each, t in pairs]

    def settled(self, tensors: Sequence[Tensor]) -> Tensors:
        """The tensors, detached unless `create_graph` is set."""
        return tuple([each if self.create_graph else each.detach() for each in tensors])

    def shown(
        self, found: Sequence[Tensor | None], like: Tensors, *, like_many: bool | None = None
    ) -> object:
        """The tensors in the structure of the inputs, or as `like_many` says."""
        many = self.many_inputs if like_many is None else like_many
        made = self.settled(self.filled(found, like))
        return made if many else made[0]

    def shown_outputs(self) -> object:
        """The results of the function in their own structure."""
        made = self.settled(self.outputs)
        return made if self.many_outputs else made[0]


def _tensors(name: str, what: str, value: Any) -> tuple[bool, Tensors]:
    many = isinstance(value, (tuple, list))
    given = tuple(value) if many else (value,)
    for each in given:
        if not isinstance(each, Tensor):
            raise ArgumentError(f"{name}: {what} is {value!r}, expected a tensor or tensors")
    return many, given
