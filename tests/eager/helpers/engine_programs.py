"""Random programs of ops, writes, hooks, functions of users and modes, as plain data.

`run(lib, program)` returns all that can be observed of one on aotlite or PyTorch: the calls of
hooks in order, values, gradients, and the class of the error that ended it. Arithmetic is on small
integers in float64, so it is exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import attrs
from hypothesis import strategies as st

from tests.eager.helpers.both import values

SIZE = 4


@attrs.frozen
class Step:
    """`op` on values (numbers modulo those there are); in a block of `mode`."""

    op: str
    first: int
    second: int
    mode: str = "grad"


@attrs.frozen
class Program:
    """Three leaves, steps that each add values, and gradients asked for in one of several ways."""

    steps: tuple[Step, ...]
    output: int
    way: str
    inputs: tuple[int, ...]


OPS = (
    *("mul", "add", "neg", "square", "part", "flip"),
    *("mul_", "part_mul_", "add_", "zero_part"),
    *("hook", "hook", "scale_hook", "pre", "post", "collected", "remove", "retain", "retain"),
    *("scaled", "same", "viewed", "written", "several", "once"),
    *("detach", "detach_", "requires_grad_"),
)
WAYS = ("backward", "twice", "inputs", "grad", "create_graph")
MODES = (*["grad"] * 8, "no_grad", "inference")

UNLIKE = {("detach_", "inference")}
"""In inference mode PyTorch's `detach_` does nothing."""

steps = st.builds(
    Step, st.sampled_from(OPS), st.integers(0, 9), st.integers(0, 9), st.sampled_from(MODES)
).filter(lambda step: (step.op, step.mode) not in UNLIKE)
programs = st.builds(
    Program,
    st.lists(steps, min_size=1, max_size=8).map(tuple),
    st.integers(0, 9),
    st.sampled_from(WAYS),
    st.lists(st.integers(0, 9), min_size=1, max_size=2).map(tuple),
)


@attrs.define
class World:
    """The observation of a run of a program."""

    log: list[Any] = attrs.field(factory=list)
    """The notes of hooks of tensors and nodes, in order."""
    leaves: dict[int, list[Any]] = attrs.field(factory=dict)
    """The notes of hooks of each leaf; the order between leaves is free."""
    things: list[Any] = attrs.field(factory=list)
    raised: tuple[int, type[Exception], Exception] | None = None


def run(lib: Any, program: Program) -> World:
    """The world after a program, or after the error that ended it."""
    world = World()
    run = _Run(lib, world)
    number = 0
    try:
        for number, step in enumerate(program.steps):
            with ExitStack() as stack:
                if step.mode != "grad":
                    mode = lib.no_grad if step.mode == "no_grad" else lib.inference_mode
                    stack.enter_context(mode())
                run.step(number, step)
        number = -1
        run.backward(program)
    except Exception as error:
        world.raised = number, type(error), error
    run.look()
    return world


def inside(program: Program) -> Any:
    """A function of three tensors that runs the steps and gives the output."""
    import aotlite as al

    def body(*inputs: Any) -> Any:
        run = _Run(al, World(), list(inputs))
        for number, step in enumerate(program.steps):
            with al.no_grad() if step.mode == "no_grad" else al.enable_grad():
                run.step(number, step)
        return run.value(program.output)

    return body


def eager_only(program: Program) -> bool:
    """Whether a step can be for eager alone: what it would do is refused in a capture."""
    ops = {"collected", "retain"}
    return any(step.op in ops or step.mode == "inference" for step in program.steps)


class _Run:
    """One run of a program."""

    def __init__(self, lib: Any, world: World, pool: list[Any] | None = None) -> None:
        self.lib = lib
        self.world = world
        self.own = functions(lib)
        self.pool = pool or [
            lib.tensor([float(k + i) for i in range(SIZE)], dtype=lib.float64, requires_grad=True)
            for k in (1, -2, 3)
        ]
        self.leaves = {id(t): k for k, t in enumerate(self.pool)}
        self.handles: list[Any] = []

    def value(self, number: int) -> Any:
        return self.pool[number % len(self.pool)]

    # --- steps
    def step(self, number: int, step: Step) -> None:
        x, y = self.value(step.first), self.value(step.second)
        found = getattr(self, "do_" + step.op, None)
        if found is not None:
            found(number, x, y)
        else:
            self.pool += self.compute(step.op, x, y)

    def compute(self, op: str, x: Any, y: Any) -> Sequence[Any]:
        n = min(x.shape[0], y.shape[0])
        match op:
            case "mul":
                return [x[:n] * y[:n]]
            case "add":
                return [x[:n] + y[:n]]
            case "neg":
                return [-x]
            case "square":
                return [x * x]
            case "part":
                return [x[: max(1, x.shape[0] // 2)]]
            case "flip":
                return [x.view(1, -1)[0]]
            case "mul_":
                return [x.mul_(2)]
            case "part_mul_":
                return [x[:n].mul_(y[:n] * 1)]
            case "add_":
                return [x.add_(y * 1) if x.shape == y.shape else x.add_(1)]
            case "zero_part":
                x[:1] = 0.0
                return []
            case "detach":
                return [x.detach()]
            case "several":
                return self.own[op].apply(x, 3.0)[:2]
            case _:
                return [self.own[op].apply(x, 3.0)]

    # --- hooks
    def note(self, x: Any, name: Any) -> Any:
        """Where a hook of this tensor notes what it sees."""
        leaf = self.leaves.get(id(x))
        log = self.world.log if leaf is None else self.world.leaves.setdefault(leaf, [])
        return lambda *seen: log.append((name, *seen))

    def do_hook(self, number: int, x: Any, y: Any) -> None:
        note = self.note(x, ("hook", number))
        self.handles.append(x.register_hook(lambda grad: note(values(grad))))

    def do_scale_hook(self, number: int, x: Any, y: Any) -> None:
        note = self.note(x, ("scale", number))

        def hook(grad: Any) -> Any:
            note(values(grad))
            return None if grad is None else grad * 2

        self.handles.append(x.register_hook(hook))

    def do_pre(self, number: int, x: Any, y: Any) -> None:
        note = self.note(x, ("pre", number))
        if x.grad_fn is not None:
            self.handles.append(x.grad_fn.register_prehook(lambda grads: note(values(*grads))))

    def do_post(self, number: int, x: Any, y: Any) -> None:
        note = self.note(x, ("post", number))
        if x.grad_fn is not None:  # what comes out differs where a node has another form
            self.handles.append(x.grad_fn.register_hook(lambda i, o: note(values(*o))))

    def do_collected(self, number: int, x: Any, y: Any) -> None:
        note = self.note(x, ("collected", number))
        hook = x.register_post_accumulate_grad_hook
        self.handles.append(hook(lambda leaf: note(values(leaf.grad))))

    def do_remove(self, number: int, x: Any, y: Any) -> None:
        if self.handles:
            self.handles.pop().remove()

    def do_retain(self, number: int, x: Any, y: Any) -> None:
        x.retain_grad()

    def do_detach_(self, number: int, x: Any, y: Any) -> None:
        x.detach_()

    def do_requires_grad_(self, number: int, x: Any, y: Any) -> None:
        x.requires_grad_()

    # --- gradients
    def backward(self, program: Program) -> None:
        out = self.value(program.output)
        inputs = [self.value(i) for i in program.inputs]
        weights = self.lib.tensor([1.0, 2.0, -1.0, 3.0], dtype=self.lib.float64)[: out.shape[0]]
        grad = self.lib.autograd.grad
        match program.way:
            case "backward":
                out.backward(weights)
            case "twice":
                out.backward(weights, retain_graph=True)
                out.backward(weights)
            case "inputs":
                out.backward(weights, inputs=inputs)
            case "grad":
                found = grad(out, inputs, weights, allow_unused=True)
                self.world.things += values(*found)
            case "create_graph":
                found = grad(out, inputs, weights, allow_unused=True, create_graph=True)
                self.world.things += values(*found)
                if any(g is not None and g.requires_grad for g in found):
                    total = sum(g.sum() for g in found if g is not None)
                    self.world.things += values(*grad(total, inputs, allow_unused=True))

    def look(self) -> None:
        """Notes the present observation of each value."""
        for tensor in self.pool:
            retains = tensor.is_leaf or tensor.retains_grad if self._has_history(tensor) else False
            self.world.things.append(
                (
                    values(tensor),
                    tensor.requires_grad,
                    tensor.is_inference(),
                    None if tensor.is_inference() else tensor._version,
                    values(tensor.grad) if retains else None,
                )
            )

    def _has_history(self, tensor: Any) -> bool:
        """Whether its history may be asked for."""
        try:
            tensor.grad_fn  # noqa: B018  (asking may raise)
        except RuntimeError:
            return False
        return True


def functions(lib: Any) -> dict[str, Any]:
    """Functions with gradients of their own, none of which is the true one."""

    class Base(lib.autograd.Function):
        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            return grads[0] * ctx.k, None

    class Scaled(Base):
        @staticmethod
        def forward(ctx: Any, x: Any, k: float) -> Any:
            ctx.k = k
            ctx.save_for_backward(x)
            return x * k

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            return grads[0] * ctx.saved_tensors[0], None

    class Same(Base):
        @staticmethod
        def forward(ctx: Any, x: Any, k: float) -> Any:
            ctx.k = k
            return x

    class Viewed(Base):
        @staticmethod
        def forward(ctx: Any, x: Any, k: float) -> Any:
            ctx.k = k
            return x.view(-1)

    class Written(Base):
        @staticmethod
        def forward(ctx: Any, x: Any, k: float) -> Any:
            ctx.k = k
            x.mul_(2)
            ctx.mark_dirty(x)
            return x

    made = (Scaled, Same, Viewed, Written, *_with_own_backwards(lib, Base))
    return {each.__name__.lower(): each for each in made}


def _with_own_backwards(lib: Any, base: Any) -> tuple[Any, ...]:
    """A function with two results, one without a gradient, and one that is differentiable once."""

    class Several(base):
        @staticmethod
        def forward(ctx: Any, x: Any, k: float) -> Any:
            y, fixed = x * 2, x * 3
            ctx.mark_non_differentiable(fixed)
            ctx.save_for_backward(y)
            return y, fixed

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            return grads[0] * ctx.saved_tensors[0] + grads[1], None

    class Once(base):
        @staticmethod
        def forward(ctx: Any, x: Any, k: float) -> Any:
            return x * 2

        @staticmethod
        @lib.autograd.function.once_differentiable
        def backward(ctx: Any, *grads: Any) -> Any:
            return grads[0] * 5, None

    return Several, Once
