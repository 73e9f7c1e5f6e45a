"""Functions that ask for what a capture cannot give, catch the refusal, and go on.

`ASKS` are the questions, `CATCHES` the ways to catch, `PLACES` where users' Python runs. Each place
makes a function of an attempt: a function of a tensor that gives a number.
"""

from __future__ import annotations

import contextlib
import pickle
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

import aotlite as al
from aotlite import nn
from aotlite.subclasses import TwoTensor

Ask = Callable[[Any], Any]
Attempt = Callable[[Any], float]
OUTSIDE = al.ones(2, requires_grad=True)
OUTSIDE.register_hook(lambda grad: None)
MODULE = nn.Linear(2, 2)


def _written(x: Any) -> None:
    MODULE.count = x.numel()


def _inference(x: Any) -> None:
    with al.inference_mode():
        x + 1


def _went_back(x: Any) -> None:
    with al.enable_grad():
        (x.detach() * OUTSIDE).sum().backward()


ASKS: dict[str, Ask] = {
    "item": lambda x: x.sum().item(),
    "bool": lambda x: bool(x.sum() > 0),
    "int": lambda x: int(x.sum()),
    "float": lambda x: float(x.sum()),
    "complex": lambda x: complex(x.sum()),
    "index": lambda x: [0, 1, 2, 3][x.argmax()],
    "tolist": lambda x: x.tolist(),
    "numpy": lambda x: x.detach().numpy(),
    "asarray": lambda x: np.asarray(x.detach()),
    "array": lambda x: x.array,
    "array of what is outside": lambda x: OUTSIDE.detach().array,
    "array of a leaf outside": lambda x: OUTSIDE.array,
    "contains": lambda x: 1.0 in x,
    "data_ptr": lambda x: x.data_ptr(),
    "storage": lambda x: x.untyped_storage().data_ptr(),
    "pickle": lambda x: pickle.dumps(x.detach()),
    "pickle of what is outside": lambda x: pickle.dumps(MODULE),
    "a size of a mask": lambda x: 1 if x[x > 0].shape[0] > 1 else 2,
    "a number of nonzero": lambda x: len(x.nonzero()),
    "attribute": _written,
    "inference": _inference,
    "backward": _went_back,
    "version": lambda x: al.autograd.graph.increment_version(x.detach()),
    "set_": lambda x: x.detach().clone().set_(x.untyped_storage()),
    "seed": lambda x: al.initial_seed(),
}

"""The actions that a capture refuses, and eager runs."""


def _wrote_leaf(x: Any) -> None:
    with al.enable_grad():
        al.ones(2, requires_grad=True).add_(x.sum())


RAISED: dict[str, Ask] = {
    "shapes": lambda x: x @ al.ones(3),
    "several": lambda x: al.ones(2).mul(x.sum()).item(),
    "bool of several": lambda x: bool(al.ones(2) * x.sum()),
    "int of several": lambda x: int(al.ones(2) * x.sum()),
    "index of floats": lambda x: [1, 2][x.sum()],
    "numpy of what requires grad": lambda x: al.ones(2, requires_grad=True).numpy(),
    "mask of another shape": lambda x: (al.ones(2) * x.sum())[al.ones(3) > 0],
    "too many masks": lambda x: al.ones(2)[al.ones(2) > x.sum(), al.ones(2) > 0],
    "write of a leaf": _wrote_leaf,
    "dtype": lambda x: x.to("nothing"),
    "hook of what needs none": lambda x: x.detach().register_hook(len),
    "backward of what needs none": lambda x: x.detach().sum().backward(),
    "item of a wrapper": lambda x: TwoTensor(x.detach().sum(), x.detach().sum()).item(),
    "len of a number": lambda x: len(x.sum()),
    "overlap": lambda x: al.ones(1).expand(2).add_(x.sum()),
}
"""The actions for which eager raises an error, whatever the values."""


def _except(ask: Ask, x: Any) -> float:
    try:
        ask(x)
    except Exception:
        return 3.0
    return 2.0


def _except_named(ask: Ask, x: Any) -> float:
    try:
        ask(x)
    except al.UnsupportedError:
        return 3.0
    return 2.0


def _bare(ask: Ask, x: Any) -> float:
    try:
        ask(x)
    except:  # noqa: E722
        return 3.0
    return 2.0


def _suppress(ask: Ask, x: Any) -> float:
    factor = 3.0
    with contextlib.suppress(RuntimeError):
        ask(x)
        factor = 2.0
    return factor


def _finally(ask: Ask, x: Any) -> float:
    factor = 3.0
    try:
        ask(x)
        factor = 2.0
    finally:
        return factor  # noqa: B012


class _Swallow:
    def __enter__(self) -> None: ...

    def __exit__(self, *exc: object) -> bool:
        return True


def _exit(ask: Ask, x: Any) -> float:
    factor = 3.0
    with _Swallow():
        ask(x)
        factor = 2.0
    return factor


def _twice(ask: Ask, x: Any) -> float:
    return max(_except(ask, x), _suppress(ask, x))


def _replaced(ask: Ask, x: Any) -> float:
    """What is raised in the place of the refusal is caught further out, or nowhere."""
    try:
        ask(x)
    except Exception as error:
        raise KeyError("another") from error
    return 2.0


def _exits(ask: Ask, x: Any) -> float:
    try:
        ask(x)
    except Exception:
        raise SystemExit(3) from None
    return 2.0


CATCHES: dict[str, Callable[[Ask, Any], float]] = {
    "except": _except,
    "except named": _except_named,
    "bare": _bare,
    "suppress": _suppress,
    "finally": _finally,
    "__exit__": _exit,
    "twice": _twice,
    "another error": _replaced,
    "SystemExit": _exits,
}


# ----------------------------------------------------------------------------------------- places
def _in_function(attempt: Attempt) -> Any:
    return lambda x: x * attempt(x)


def _in_compiled(attempt: Attempt) -> Any:
    inner = al.compile(_in_function(attempt), backend="reference")
    return lambda x: inner(x) + 1


def _in_module(attempt: Attempt) -> Any:
    class Times(nn.Module):
        def forward(self, x: Any) -> Any:
            return x * attempt(x)

    return Times()


def _in_custom(attempt: Attempt, *, backward: bool) -> Any:
    class Times(al.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * (2.0 if backward else attempt(x))

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            return grad * (attempt(grad) if backward else 2.0)

    return lambda x: Times.apply(x * 1)


def _in_hook(attempt: Attempt) -> Any:
    """It uses a tensor of the function, so that it can be recorded alone."""

    def f(x: Any) -> Any:
        y = x * 2

        def hook(grad: Any) -> Any:
            return grad * attempt(y)

        y.register_hook(hook)
        return (y * y).sum()

    return f


def _in_hook_of_node(attempt: Attempt) -> Any:
    def f(x: Any) -> Any:
        y = x * 2
        y.grad_fn.register_prehook(lambda grads: tuple([g * attempt(g) for g in grads]))
        return (y * y).sum()

    return f


def _in_region(attempt: Attempt) -> Any:
    return lambda x: al.checkpoint(lambda y: y * attempt(y), x * 1)


def _in_region_again(attempt: Attempt) -> Any:
    """A region that asks when it is computed again."""

    def f(x: Any) -> Any:
        runs = []

        def region(y: Any) -> Any:
            runs.append(0)
            with al.no_grad():
                factor = attempt(y)
            return y.exp() * (factor if len(runs) > 1 else 2.0)

        return al.checkpoint(region, x * 1)

    return f


class Asking(TwoTensor):
    """A pair whose dispatch makes an attempt."""

    attempt: Any

    @classmethod
    def forget(cls) -> None:
        """Leaves the place of the attempt empty, into which a function may put another one."""
        if "attempt" in vars(cls):
            del cls.attempt

    @classmethod
    def __tensor_dispatch__(cls, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if func is al.ops.sin:
            args = (args[0] * Asking.attempt(args[0].a),)
        return super().__tensor_dispatch__(func, types, args, kwargs)


def _in_dispatch(attempt: Attempt) -> Any:
    def f(x: Any) -> Any:
        Asking.attempt = staticmethod(attempt)
        return Asking(x * 1, x * 2).sin().a

    return f


def _in_gradient(attempt: Attempt) -> Any:
    """In a backward that the function runs."""

    def f(x: Any) -> Any:
        times = _in_custom(attempt, backward=True)
        (grad,) = al.autograd.grad(times(x).sum(), x, create_graph=True)
        return grad * x

    return f


def _in_thread(attempt: Attempt) -> Any:
    def f(x: Any) -> Any:
        found: list[float] = []

        def run() -> None:
            with contextlib.suppress(BaseException):
                found.append(attempt(x))

        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
        return x * (found[0] if found else 4.0)

    return f


PLACES: dict[str, Callable[[Attempt], Any]] = {
    "function": _in_function,
    "compiled": _in_compiled,
    "Module": _in_module,
    "custom forward": lambda attempt: _in_custom(attempt, backward=False),
    "custom backward": lambda attempt: _in_custom(attempt, backward=True),
    "hook": _in_hook,
    "hook of a node": _in_hook_of_node,
    "region": _in_region,
    "region again": _in_region_again,
    "dispatch": _in_dispatch,
    "gradient": _in_gradient,
}
HOOKS = ("hook", "hook of a node")
"""Places that no `except` may be at, whatever it catches (HOOK-3)."""
THREAD = _in_thread
