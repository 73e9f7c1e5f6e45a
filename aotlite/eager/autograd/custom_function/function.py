"""`Function`: ops that users define with a forward and a backward of their own.

`apply` runs the forward without recording a history. Then it makes one tape node, whose `run` calls
the user's backward. Rules: TEN-19, TEN-30, TEN-31. Spec: `specs/autograd.md`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any, ClassVar

from aotlite.eager.autograd.custom_function.context import FunctionCtx, Undifferentiable
from aotlite.eager.autograd.custom_function.node import CustomNode
from aotlite.eager.autograd.differentiable_views import edge_of
from aotlite.eager.autograd.inplace_writes import check_writable, rebase
from aotlite.eager.autograd.nodes.gradient_forms import keep_form
from aotlite.eager.base.capture_protocol import Recorder
from aotlite.eager.base.modes import STATE, no_grad
from aotlite.eager.base.tape.node import Edge
from aotlite.eager.base.tape.view_root import CreationKind
from aotlite.eager.base.tensor import Tensor
from aotlite.eager.subclass.protocol import refuse_inner_function
from aotlite.ir.errors import ArgumentError, AutogradError, noted


class Function:
    """Base class of functions with a custom gradient.

    A subclass defines the static methods `forward(ctx, *args)` and `backward(ctx, *grads)`. Instead
    of the first, it may define `forward(*args)` and `setup_context(ctx, inputs, output)`. It is
    called by `apply`.

    >>> import aotlite as al
    >>> class Reversed(al.autograd.Function):
    ...     @staticmethod
    ...     def forward(ctx, x):
    ...         return x.view_as(x)
    ...     @staticmethod
    ...     def backward(ctx, grad):
    ...         return -grad
    >>> x = al.ones(2, requires_grad=True)
    >>> Reversed.apply(x).sum().backward()
    >>> x.grad
    tensor([-1., -1.])
    """

    _is_formula: ClassVar[bool] = False
    """Set by aotlite's own functions: the backward is linear in the gradients, without effects."""

    @staticmethod
    def forward(*args: Any, **kwargs: Any) -> Any:
        """The results: tensors, or other values, which have no gradient."""
        raise ArgumentError("Function: 'forward' is missing, expected a static method of that name")

    @staticmethod
    def setup_context(ctx: object, inputs: tuple[object, ...], output: object) -> None:
        """Saves values for the backward, where `forward` has no `ctx`."""
        raise ArgumentError("Function: 'setup_context' is called, expected a subclass that has it")

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        """A gradient or None for each argument of the forward."""
        raise AutogradError(
            "Function: 'backward' is missing, expected a static method 'backward' or 'vjp'"
        )

    @staticmethod
    def vjp(ctx: object, *grad_outputs: object) -> Any:
        """A second name for `backward`."""
        raise AutogradError(
            "Function: 'backward' is missing, expected a static method 'backward' or 'vjp'"
        )

    @classmethod
    def apply(cls, *args: object, **kwargs: object) -> Any:
        """The results of the forward, with a tape node that runs the backward."""
        recorder = STATE.recorder
        if recorder is not None and recorder.eager_values is not None:
            return recorder.eager_values.apply(cls, args, kwargs)
        return _Call(cls, args, kwargs).results()

    def __call__(self, *args: object, **kwargs: object) -> Any:
        name = type(self).__name__
        raise noted(
            AutogradError(f"{name}: an instance is called, expected {name}.apply(...)"),
            "A Function has static methods, and no instances are made of it. (TEN-30)",
        )


class _Call:
    """One call of a function."""

    def __init__(self, made: type[Function], args: tuple[Any, ...], kwargs: Any) -> None:
        self.has_setup = made.setup_context is not Function.setup_context
        if self.has_setup or kwargs:
            args, kwargs = _placed(made, args, kwargs, with_ctx=not self.has_setup)
        recorder = STATE.recorder
        if recorder is not None:
            args = tuple([recorder.here(a) if isinstance(a, Tensor) else a for a in args])
        self.made = made
        self.args = args
        self.kwargs = kwargs
        needed = tuple([isinstance(a, Tensor) and a.requires_grad for a in args])
        self.is_tracked = bool(STATE.grad_mode) and any(needed)
        self.edges: list[Edge | None] = [
            edge_of(a) if need and self.is_tracked else None
            for a, need in zip(args, needed, strict=True)
        ]
        self.ctx = FunctionCtx(f"{made.__name__}Backward", needed)
        self.node: CustomNode | None = None
        self.outs: list[Any] = []
        self.views: list[Tensor] = []

    def results(self) -> Any:
        with no_grad():
            if self.has_setup:
                output = self.made.forward(*self.args, **self.kwargs)
                self.made.setup_context(self.ctx, self.args, output)
            else:
                output = self.made.forward(self.ctx, *self.args, **self.kwargs)
        self.outs = list(output) if isinstance(output, tuple) else [output]
        recorder = STATE.recorder
        if recorder is not None:
            recorder.unrecorded = True
            self.outs = [recorder.here(o) if isinstance(o, Tensor) else o for o in self.outs]
        self._check_dirty()
        if self.is_tracked:
            metas = [o.meta if isinstance(o, Tensor) else None for o in self.outs]
            self.node = CustomNode(self.ctx, _backward_of(self.made), self.args, self.edges, metas)
            self.node.is_formula = self.made._is_formula
        with no_grad():
            self.outs = [self._out(i, each) for i, each in enumerate(self.outs)]
        if self.node is not None:
            self._finish(self.node, recorder)
        return tuple(self.outs) if isinstance(output, tuple) else self.outs[0]

    def _finish(self, node: CustomNode, recorder: Recorder | None) -> None:
        if len(self.views) > 1:
            for view in self.views:
                view._kind = CreationKind.MULTI_OUTPUT
        self.ctx._save_now(node, self.args, self.outs)
        if recorder is not None:
            values = [o.value for o in self.outs if isinstance(o, Tensor)]
            node.origin = values[0] if values else None
            recorder.count_tape_node()
        if STATE.watch is not None:
            STATE.watch.made(node)

    def _check_dirty(self) -> None:
        returned = {id(each) for each in self.outs}
        for each in self.ctx._dirty:
            if id(each) not in returned:
                raise noted(
                    AutogradError(
                        f"{self.made.__name__}: a tensor marked dirty is not returned, expected "
                        "every input that is modified in place to be a result"
                    ),
                    "Return it from the forward. (TEN-30)",
                )

    def _out(self, index: int, out: Any) -> object:
        if not isinstance(out, Tensor):
            return out
        is_input = any(out is a for a in self.args)
        is_dirty = any(out is each for each in self.ctx._dirty)
        if is_dirty:
            out.storage.version += 1
        fixed = any(out is each for each in self.ctx._constant)
        if self.node is None or fixed or not out.dtype.is_differentiable:
            if is_dirty and not out.requires_grad:
                return out
            return _without_history(out, is_input=is_input)
        if is_dirty:
            self._rebase(self.node, index, out)
            return out
        if is_input:
            out = out.alias()
        return self._linked(self.node, index, out)

    def _rebase(self, node: CustomNode, index: int, out: Tensor) -> None:
        """Gives an input that the forward has written its new history."""
        place = next((i for i, a in enumerate(self.args) if a is out), None)
        mode, STATE.grad_mode = STATE.grad_mode, True
        try:
            check_writable(self.made.__name__, out, [a for a in self.args if a is not out])
        finally:
            STATE.grad_mode = mode
        if out._chain and sum(isinstance(each, Tensor) for each in self.outs) > 1:
            raise noted(
                AutogradError(
                    f"{self.made.__name__}: a view is modified in place and other tensors are "
                    "returned, expected one result then"
                ),
                "Modify a clone() of it. (TEN-30)",
            )
        root = out._root
        own = None if place is None or self.edges[place] is None else place
        rebase(out, node, index, None if root is None else root.edge(), own)

    def _linked(self, node: CustomNode, index: int, out: Tensor) -> Tensor:
        """A result with this node as its history."""
        root = out._root
        if out.__tensor_dispatch__ is not None:
            refuse_inner_function(self.made.__name__, "the result", out, of_gradients=True)
        out._leaf = False
        out._node, out._index, out.facts = node, index, None
        if out.__tensor_dispatch__ is not None:
            keep_form(out)
        if out._base is not None:
            out._kind = CreationKind.CUSTOM
            out._seen = out.storage.version
            self.views.append(out)
        elif root is not None:  # views of it were taken in the forward
            root.node, root.index = (node, index) if not out._chain else (None, 0)
            out._seen = out.storage.version
        return out


def _placed(
    made: type[Function], args: tuple[object, ...], kwargs: Any, *, with_ctx: bool
) -> tuple[tuple[object, ...], object]:
    """(positional, keyword) arguments of the forward, with defaults; keyword-only ones by name."""
    signature = inspect.signature(made.forward)
    try:
        bound = signature.bind(*(None,) * with_ctx, *args, **kwargs)
    except TypeError as error:
        raise ArgumentError(
            f"{made.__name__}: the arguments do not fit ({error}), expected those of "
            f"forward{signature}"
        ) from error
    bound.apply_defaults()
    for name, value in bound.kwargs.items():
        if isinstance(value, Tensor) and value.requires_grad:
            raise ArgumentError(
                f"{made.__name__}: argument {name!r}, which has no place, requires grad, expected "
                "tensors that do as positional arguments of the forward"
            )
    return bound.args[int(with_ctx) :], bound.kwargs


def _without_history(out: Tensor, *, is_input: bool) -> Tensor:
    if not out.requires_grad:
        return out.alias() if is_input else out
    if is_input:
        return out.detach()
    return out if out._base is not None else out.detach_()


def _backward_of(made: type[Function]) -> Callable[..., object]:
    if made.vjp is Function.vjp:
        return made.backward
    if made.backward is not Function.backward:
        raise AutogradError(
            f"{made.__name__}: both 'backward' and 'vjp' are there, expected one of them"
        )
    return made.vjp


def once_differentiable(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorates a backward whose results cannot be differentiated again.

    The backward runs without grad mode; differentiating its results raises an AutogradError.
    """

    @wraps(function)
    def wrapper(ctx: Any, *grads: Any) -> Any:
        with no_grad():
            found = function(ctx, *grads)
        if not STATE.grad_mode:
            return found
        several = isinstance(found, tuple)
        ends = [edge_of(g) for g in grads if isinstance(g, Tensor)]
        node = Undifferentiable(
            f"{ctx._name}: its backward is differentiated again and is marked with "
            "once_differentiable, expected first derivatives only",
            "Write the backward in tensor operations, without the mark. (TEN-30)",
            [*ends, *ctx._edges()],
        )
        marked = [node.mark(each) for each in (found if several else (found,))]
        return tuple(marked) if several else marked[0]

    return wrapper
