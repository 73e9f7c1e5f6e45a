"""Random tapes with what only Python can do: custom functions, packed values, regions; and hooks
that keep gradients and write them later, return views of them, or write what is saved.

`run(seed, tapes)` builds one, goes backward twice, and gives a picture of all that can be seen.
"""

from __future__ import annotations

from contextlib import nullcontext
from random import Random
from typing import Any

import aotlite as al
from tests.compiled_autograd.helpers.worlds import picture


class Doubled(al.autograd.Function):
    """Doubles; its backward is seen, and returns None, the gradient itself, or a new one."""

    @staticmethod
    def forward(ctx: Any, x: Any, y: Any, log: Any, how: int) -> Any:
        ctx.save_for_backward(x)
        ctx.log, ctx.how = log, how
        return x * 2 + y

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        ctx.log.append(("custom", picture(grad)))
        (x,) = ctx.saved_tensors
        both = {0: (grad * 2, grad), 1: (grad, grad), 2: (None, grad * x), 3: (grad * x, None)}
        return *both[ctx.how], None, None


factor = 2.0
"""What recorded backwards read. Hooks change it between tapes, and while one runs."""


def scaled(grad: Any) -> Any:
    return grad * factor


class Scaled(al.autograd.Function):
    """Its backward only computes: with a variable, a number, saved values, None for a gradient."""

    @staticmethod
    def forward(ctx: Any, x: Any, y: Any, how: int) -> Any:
        out = x * y
        ctx.save_for_backward(x, y, None, out)
        ctx.how = how
        ctx.set_materialize_grads(how % 2 == 0)
        return out, x + 1

    @staticmethod
    def backward(ctx: Any, grad: Any, other: Any) -> Any:
        x, y, _, out = ctx.saved_tensors
        if grad is None:
            return other, None, None
        found = scaled(grad) * y
        if other is not None:
            found = found + other.t()
        if ctx.how == 3:
            return found, None, None
        if ctx.how == 4:
            return grad, grad.t(), None
        last = (grad * x).clone()
        last.add_(out, alpha=0.5)
        return found, last, None


class Odd(al.autograd.Function):
    """Its backward does what no recording can: reads a value, writes, gives what is saved, ..."""

    @staticmethod
    def forward(ctx: Any, x: Any, how: int) -> Any:
        ctx.save_for_backward(x)
        ctx.how, ctx.kept = how, x.detach()
        return x * 2

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        (x,) = ctx.saved_tensors
        if ctx.how == 0 and (grad.sum() > 3).item():
            grad = grad * 3
        elif ctx.how == 1:
            x.detach().add_(0)
        elif ctx.how == 2:
            return x.detach(), None
        elif ctx.how == 3:
            grad.mul_(2)
        elif ctx.how == 4:
            raise ValueError("by a backward")
        elif ctx.how == 5:
            return grad[0], None
        return grad * 2, None


class Scene:
    """The tensors of a tape, and what its hooks have kept and seen."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.log: list[Any] = []
        self.kept: list[Any] = []
        self.leaves = [
            al.tensor([[1.0, 2.0], [3.0, 4.0 + k]], requires_grad=True) for k in range(3)
        ]
        self.tensors: list[Any] = list(self.leaves)

    def pick(self) -> Any:
        return self.rng.choice(self.tensors[-4:])

    def step(self) -> None:
        """One more op, region or function."""
        a, b, rng = self.pick(), self.pick(), self.rng
        kind = rng.randrange(14)
        if kind == 0:
            made = Doubled.apply(a, b, self.log, rng.randrange(4))
        elif kind == 1:
            with al.autograd.graph.saved_tensors_hooks(self._pack, self._unpack):
                made = a * b
        elif kind == 2:
            made = al.checkpoint(lambda x, y: (x * 0.5).sin() * y, a, b)
        elif kind in (3, 4):
            made = a + b
        elif kind == 5:
            made = a.t()
        elif kind == 6:
            made = a.sum(0).expand(2, 2)
        elif kind == 7:
            made = al.cat(list((a * b).split(1)))
        elif kind == 8:
            made = (a * 0.25).tanh()
        elif kind == 9:
            made = a.clone().mul_(0.5)
        elif kind in (11, 12):
            made = Scaled.apply(a, b, rng.randrange(5))[rng.randrange(2)]
        elif kind == 13 and rng.randrange(3) == 0:
            made = Odd.apply(a, rng.randrange(6))
        else:
            made = a @ b * 0.125
        self.tensors.append(made)

    def _pack(self, value: Any) -> Any:
        return value.tolist()

    def _unpack(self, packed: Any) -> Any:
        self.log.append("unpack")
        return al.tensor(packed)

    def hook(self, number: int) -> None:
        """One more hook on some tensor."""
        tensor, rng = self.rng.choice(self.tensors), self.rng
        kind = rng.randrange(15)
        node = al.autograd.graph.get_gradient_edge(tensor).node
        if kind == 0:
            node.register_prehook(lambda grads: self._told(number, *grads))
        elif kind == 1:
            node.register_prehook(
                lambda grads: tuple([None if g is None else g * 2 for g in grads])
            )
        elif kind == 2:
            node.register_hook(lambda into, out: self._told(number, *into, *out))
        elif kind == 3 and not tensor.is_leaf:
            node.register_hook(
                lambda into, out: tuple([None if g is None else g + 1 for g in into])
            )
        elif kind == 4 and tensor.is_leaf:
            tensor.register_post_accumulate_grad_hook(lambda leaf: self._told(number, leaf.grad))
        elif kind == 5:
            tensor.retain_grad()
        else:
            tensor.register_hook(lambda grad: self._called(kind, number, grad, tensor))

    def _told(self, number: int, *grads: Any) -> None:
        self.log.append((number, [picture(grad) for grad in grads]))

    def _called(self, kind: int, number: int, grad: Any, tensor: Any) -> Any:
        self._told(number, grad)
        if grad is None:
            return None
        if kind == 6:
            self.kept.append(grad)
        elif kind == 7 and self.kept:
            self.kept[-1].mul_(2)
        elif kind == 8 and self.kept and self.kept[-1].shape == grad.shape:
            return self.kept[-1]
        elif kind == 9:
            return grad.t()
        elif kind == 10:
            grad.add_(1)
        elif kind == 11 and number % 5 == 0:
            self.rng.choice(self.leaves).detach().mul_(1)
        elif kind == 12 and number % 4 == 0:
            raise ValueError(f"raised by hook {number}")
        elif kind == 14:
            _set_factor(number + 0.5)
        elif kind == 13:
            return grad * 2 if len(self.log) % 2 else None
        return None


def _set_factor(value: float) -> None:
    global factor
    factor = value


def run(seed: int, tapes: Any) -> Any:
    """All that can be seen of a tape, by the engine or by `tapes`."""
    _set_factor(2.0 + seed % 2)
    scene = Scene(seed)
    for _ in range(scene.rng.randrange(2, 9)):
        scene.step()
    for number in range(scene.rng.randrange(1, 7)):
        scene.hook(number)
    roots = [each for each in scene.tensors[-2:] if each.requires_grad]
    grads = [al.ones(2, 2) * (k + 1) for k in range(len(roots))]
    outcomes: list[Any] = []
    with nullcontext() if tapes is None else al.compiled_autograd.enable(tapes):
        for retain in (True, False):
            try:
                al.autograd.backward(roots, grads, retain_graph=retain)
                outcomes.append("done")
            except Exception as error:
                outcomes.append((type(error).__name__, str(error)))
    seen = [picture(tensor.grad) for tensor in scene.leaves]
    seen += [picture(tensor.grad) for tensor in scene.tensors if tensor.requires_grad]
    return (
        outcomes,
        seen,
        scene.log,
        [picture(each) for each in (*scene.kept, *grads)],
        [each.version for each in (*scene.tensors, *grads, *scene.kept)],
    )
