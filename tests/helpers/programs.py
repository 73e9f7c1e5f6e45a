"""Random programs of views, in-place writes and ops, as plain data that any engine can run.

A program is set up (leaves, views of them, duplicates), then its body runs on some of what was
set up, then gradients flow back from its outputs with fixed cotangents. `run(engine, program)`
gives the `World` afterwards: everything that a user could observe. `str(program)` is a script.

An engine is an object with `fresh`, `no_grad`, `backward` and `storage_of`; tensors of all engines
share PyTorch's method names. Arithmetic is on small integers in float64, so it is exact.
Programs are drawn by `tests.helpers.program_strategy.programs`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from operator import eq
from typing import Any, Protocol

import attrs

from aotlite.ir.errors import AliasError, AotliteError

MULTI_VIEWS = ("split", "unbind", "chunk")
GEOMETRY = ("t_", "transpose_", "squeeze_", "unsqueeze_", "as_strided_")


# ------------------------------------------------------------------------------------- the data
@attrs.frozen(repr=False)
class Ref:
    """The value with this number: setup values, or in a body its inputs and then its results."""

    index: int

    def __repr__(self) -> str:
        return f"Ref({self.index})"


@attrs.frozen
class Step:
    """One call: `op` is a method's name, `args` start with the tensor it is called on.

    Special: `fresh(shape, requires_grad)`, `getitem(x, index)`, `setitem(x, index, value)`, and
    `look(x)`, which asks for the tape node as a debugger would.
    """

    op: str
    args: tuple[Any, ...]
    grad: bool = True
    results: int = 1


@attrs.frozen
class Program:
    """`inputs` and `outputs` are numbers of setup values and of body values."""

    setup: tuple[Step, ...]
    inputs: tuple[int, ...]
    body: tuple[Step, ...]
    outputs: tuple[int, ...]
    together: bool = True
    """One backward from all outputs, or one from each in turn."""

    def __str__(self) -> str:
        lines = [*_script(self.setup, 0, "s"), f"def f({_names(range(len(self.inputs)), 'v')}):"]
        body = _script(self.body, len(self.inputs), "v")
        lines += ["    " + line for line in [*body, f"return [{_names(self.outputs, 'v')}]"]]
        how = "in one backward" if self.together else "one backward each"
        return "\n".join([*lines, f"f({_names(self.inputs, 's')})  # {how}"])


def _names(numbers: Any, letter: str) -> str:
    return ", ".join(f"{letter}{i}" for i in numbers)


def _script(steps: Sequence[Step], first: int, letter: str) -> list[str]:
    lines = []
    for step in steps:
        made = _names(range(first, first + step.results), letter)
        first += step.results
        args = [f"{letter}{a.index}" if isinstance(a, Ref) else repr(a) for a in step.args]
        prefix = "" if step.grad else "with no_grad(): "
        lines.append(prefix + _call_text(step, made, args))
    return lines


def _call_text(step: Step, made: str, args: list[str]) -> str:
    if step.op == "fresh":
        return f"{made} = fresh({', '.join(args)})"
    if step.op == "getitem":
        return f"{made} = {args[0]}[{args[1]}]"
    if step.op == "setitem":
        return f"{args[0]}[{args[1]}] = {args[2]}; {made} = {args[0]}"
    if step.op == "look":
        return f"{args[0]}.grad_fn"
    comma = "," if step.results == 1 and step.op in MULTI_VIEWS else ""
    return f"{made}{comma} = {args[0]}.{step.op}({', '.join(args[1:])})"


# ---------------------------------------------------------------------------------- the engines
class Engine(Protocol):
    """The functions of a library that a program needs besides tensor methods."""

    def fresh(self, values: list[float], shape: tuple[int, ...], requires_grad: bool) -> Any:
        """A new leaf of float64."""

    def no_grad(self) -> Any:
        """The context manager."""

    def backward(self, tensors: list[Any], gradients: list[Any], retain_graph: bool) -> None:
        """Adds to the `.grad` of leaves."""

    def grad(self, outputs: list[Any], inputs: list[Any], gradients: list[Any]) -> Sequence[Any]:
        """Gradients that can be differentiated again, None where an input is unused."""

    def storage_of(self, tensor: Any) -> Any:
        """Something hashable, equal for tensors that share a storage."""

    def base_of(self, tensor: Any) -> Any:
        """The base of a view, or None."""


class Aotlite:
    """aotlite's eager engine."""

    def fresh(self, values: list[float], shape: tuple[int, ...], requires_grad: bool) -> Any:
        import aotlite as al

        flat = al.tensor(values, dtype=al.float64)
        return flat.view(shape).detach().clone().requires_grad_(requires_grad)

    def no_grad(self) -> Any:
        import aotlite as al

        return al.no_grad()

    def backward(self, tensors: list[Any], gradients: list[Any], retain_graph: bool) -> None:
        import aotlite as al

        al.autograd.backward(tensors, gradients, retain_graph=retain_graph)

    def grad(self, outputs: list[Any], inputs: list[Any], gradients: list[Any]) -> Sequence[Any]:
        import aotlite as al

        return al.autograd.grad(outputs, inputs, gradients, create_graph=True, allow_unused=True)

    def storage_of(self, tensor: Any) -> Any:
        return id(tensor.storage)

    def base_of(self, tensor: Any) -> Any:
        return tensor.base


class Torch:
    """PyTorch's eager engine."""

    def __init__(self, torch: Any) -> None:
        self.torch = torch

    def fresh(self, values: list[float], shape: tuple[int, ...], requires_grad: bool) -> Any:
        flat = self.torch.tensor(values, dtype=self.torch.float64)
        return flat.view(shape).detach().clone().requires_grad_(requires_grad)

    def no_grad(self) -> Any:
        return self.torch.no_grad()

    def backward(self, tensors: list[Any], gradients: list[Any], retain_graph: bool) -> None:
        self.torch.autograd.backward(tensors, gradients, retain_graph=retain_graph)

    def grad(self, outputs: list[Any], inputs: list[Any], gradients: list[Any]) -> Sequence[Any]:
        return self.torch.autograd.grad(
            outputs, inputs, gradients, create_graph=True, allow_unused=True
        )

    def storage_of(self, tensor: Any) -> Any:
        return tensor.untyped_storage()._cdata

    def base_of(self, tensor: Any) -> Any:
        return tensor._base


# ---------------------------------------------------------------------------------- the running
@attrs.frozen
class Thing:
    """The observation of one tensor."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    requires_grad: bool
    is_leaf: bool
    has_node: bool | str
    version: int
    storage: int
    base: int | None
    values: tuple[float, ...]


@attrs.define
class World:
    """Everything that a user can observe after a program. Objects are numbered by appearance."""

    objects: list[int] = attrs.field(factory=list)
    """The object of each value, setup values first."""
    things: list[Thing] = attrs.field(factory=list)
    grads: list[Any] = attrs.field(factory=list)
    """For each object None, or the values and strides of its `.grad`."""
    raised: tuple[str, int, Exception] | None = None
    """The phase, the step, and the error that ended the program."""


def execute(engine: Engine, steps: Sequence[Step], values: list[Any]) -> None:
    """Runs the steps, appending each result to `values`."""
    for number, step in enumerate(steps):
        try:
            with nullcontext() if step.grad else engine.no_grad():
                values.extend(_call(engine, step, values))
        except Exception as error:
            error.step = number  # type: ignore[attr-defined]
            raise


def _call(engine: Engine, step: Step, values: list[Any]) -> Sequence[Any]:
    args = [values[a.index] if isinstance(a, Ref) else a for a in step.args]
    match step.op:
        case "fresh":
            shape, requires_grad = args
            return [engine.fresh(numbers(_count(shape), len(values)), shape, requires_grad)]
        case "getitem":
            return [args[0][args[1]]]
        case "setitem":
            args[0][args[1]] = args[2]
            return [args[0]]
        case "look":
            args[0].grad_fn  # noqa: B018  (asking is the step)
            return []
    result = getattr(args[0], step.op)(*args[1:])
    return result if isinstance(result, (tuple, list)) else [result]


def _count(shape: tuple[int, ...]) -> int:
    count = 1
    for size in shape:
        count *= size
    return count


def numbers(count: int, seed: int) -> list[float]:
    """Small integers, none of them 0, different for different seeds."""
    return [float((i * 5 + seed * 3) % 7 - 3 or 4) for i in range(count)]


def run(engine: Engine, program: Program) -> World:
    """The world after setup, body and backward."""
    setup: list[Any] = []
    values: list[Any] = []
    world = World()
    phase = "setup"
    try:
        execute(engine, program.setup, setup)
        phase = "body"
        values += [setup[i] for i in program.inputs]
        execute(engine, program.body, values)
    except Exception as error:
        world.raised = (phase, getattr(error, "step", -1), error)
    objects = _observe(engine, world, setup + values)
    if world.raised is None:
        try:
            _backward(engine, program, [values[i] for i in program.outputs])
        except Exception as error:
            world.raised = ("backward", 0, error)
    world.grads = [_gradient(thing) for thing in objects]
    return world


def _observe(engine: Engine, world: World, values: list[Any]) -> list[Any]:
    objects: dict[int, int] = {}
    kept: list[Any] = []
    for value in values:
        if id(value) not in objects:
            objects[id(value)] = len(kept)
            kept.append(value)
        world.objects.append(objects[id(value)])
    storages: dict[Any, int] = {}
    for value in kept:
        storage = storages.setdefault(engine.storage_of(value), len(storages))
        world.things.append(_thing(engine, value, storage, objects))
    return kept


def _thing(engine: Engine, value: Any, storage: int, objects: dict[int, int]) -> Thing:
    base = engine.base_of(value)
    try:
        has_node: bool | str = value.grad_fn is not None
    except Exception:
        has_node = "raises"
    return Thing(
        shape=tuple(value.shape),
        stride=_telling(value),
        offset=value.storage_offset(),
        requires_grad=value.requires_grad,
        is_leaf=has_node != "raises" and value.is_leaf,
        has_node=has_node,
        version=value._version,
        storage=storage,
        base=None if base is None else objects.get(id(base), -1),
        values=_flat(value),
    )


def _flat(value: Any) -> tuple[float, ...]:
    found: list[float] = []

    def walk(nested: Any) -> None:
        if isinstance(nested, list):
            for item in nested:
                walk(item)
        else:
            found.append(nested)

    walk(value.detach().tolist())
    return tuple(found)


def second_order(engine: Engine, program: Program) -> list[Any] | None:
    """Gradients, by setup leaf, of the sum of squares of gradients of a square of the outputs.

    None where a step is refused. Where nothing flows, a gradient is empty.
    """
    setup: list[Any] = []
    try:
        execute(engine, program.setup, setup)
        values = [setup[i] for i in program.inputs]
        leaves = [
            leaf for leaf in setup if leaf.is_leaf and leaf.requires_grad and leaf.grad_fn is None
        ]
        execute(engine, program.body, values)
        tracked, given = _cotangents(engine, [values[i] for i in program.outputs])
        if not tracked or not leaves:
            return []
        squares = [out * out * gradient for out, gradient in zip(tracked, given, strict=True)]
        first = engine.grad(squares, leaves, given)
        total = sum((g * g).sum() for g in first if g is not None)
        if isinstance(total, int) or not total.requires_grad:
            return [() for _ in leaves]
        total.backward()
    except Exception:
        return None
    return [_values_or_nothing(leaf.grad) for leaf in leaves]


def _values_or_nothing(grad: Any) -> tuple[float, ...]:
    """PyTorch tells zeros from no gradient at second order by details of its formulas."""
    values = () if grad is None else _flat(grad)
    return values if any(values) else ()


def _cotangents(engine: Engine, outputs: list[Any]) -> tuple[list[Any], list[Any]]:
    """The outputs that require grad, and a fixed gradient for each."""
    tracked = [out for out in outputs if out.requires_grad]
    given = [
        engine.fresh(numbers(_count(tuple(out.shape)), 11 + i), tuple(out.shape), False)
        for i, out in enumerate(tracked)
    ]
    return tracked, given


def _backward(engine: Engine, program: Program, outputs: list[Any]) -> None:
    tracked, given = _cotangents(engine, outputs)
    if program.together and tracked:
        engine.backward(tracked, given, False)
    elif not program.together:
        for out, gradient in zip(tracked, given, strict=True):
            engine.backward([out], [gradient], True)


def _gradient(value: Any) -> Any:
    import warnings

    with warnings.catch_warnings():  # PyTorch warns for tensors that are no leaves
        warnings.simplefilter("ignore")
        grad = value.grad
    return None if grad is None else (_flat(grad), _telling(grad, ones=False))


def _telling(value: Any, *, ones: bool = True) -> tuple[int, ...]:
    """The strides that say where elements lie; of views, also where a size is 1."""
    if 0 in value.shape:
        return ()
    return tuple([s for n, s in zip(value.shape, value.stride(), strict=True) if ones or n > 1])


# --------------------------------------------------------------------------------- the comparing
def differences(ours: World, theirs: World) -> list[str]:
    """The differences of two worlds, one line each; empty if a user cannot tell them apart."""
    found = _raised_differences(ours.raised, theirs.raised)
    if found:
        return found
    if ours.objects != theirs.objects:
        found.append(f"identity: {ours.objects} and {theirs.objects}")
    for i, (mine, its) in enumerate(zip(ours.things, theirs.things, strict=False)):
        for field in attrs.fields(Thing):
            a, b = getattr(mine, field.name), getattr(its, field.name)
            if not _SAME.get(field.name, eq)(a, b):
                found.append(f"{field.name} of object {i}: {a} and {b}")
    if ours.raised is None:
        for i, (mine, its) in enumerate(zip(ours.grads, theirs.grads, strict=False)):
            found += _gradient_differences(i, mine, its)
    return found


def _raised_differences(ours: Any, theirs: Any) -> list[str]:
    if ours is None and theirs is None:
        return []
    if ours is None or theirs is None or ours[:2] != theirs[:2]:
        return [f"raised: {_short(ours)} and {_short(theirs)}"]
    if not isinstance(ours[2], AotliteError) or not isinstance(ours[2], _PAIRED[type(theirs[2])]):
        return [f"class: {_short(ours)} and {_short(theirs)}"]
    return []


_PAIRED: dict[type, Any] = {
    # PyTorch raises RuntimeError for shapes too.
    RuntimeError: (RuntimeError, ValueError),
    IndexError: (IndexError, RuntimeError),
    ValueError: ValueError,
    TypeError: (TypeError, ValueError),
}


def _short(raised: Any) -> str:
    if raised is None:
        return "nothing"
    phase, step, error = raised
    return f"{phase} {step} {type(error).__name__}: {str(error).splitlines()[0][:110]}"


def _gradient_differences(number: int, ours: Any, theirs: Any) -> list[str]:
    if ours is None or theirs is None:
        return [] if ours is theirs else [f"grad of object {number}: {ours} and {theirs}"]
    found = []
    if not close(ours[0], theirs[0]):
        found.append(f"grad of object {number}: {ours[0]} and {theirs[0]}")
    if ours[1] != theirs[1]:
        found.append(f"grad stride of object {number}: {ours[1]} and {theirs[1]}")
    return found


def excuse(program: Program, ours: World, theirs: World) -> str | None:
    """The reason why these worlds of aotlite and PyTorch may differ; None if they may not."""
    mine, its = ours.raised, theirs.raised
    if its is not None and its[0] != "backward" and "a single memory location" in str(its[2]):
        steps = program.setup if its[0] == "setup" else program.body
        if steps[its[1]].op == "setitem":
            return "TEN-7: one value for all may be written to memory that overlaps itself"
    if mine is its is None and all(s.startswith("grad ") for s in differences(ours, theirs)):
        steps = (*program.setup, *program.body)
        if any(step.op in GEOMETRY and not step.grad for step in steps):
            return "TEN-24: PyTorch's history misses a t_ under no_grad"
        if any(step.op.startswith("as_strided") for step in steps):
            return "FUN-11: PyTorch drops the gradient of what as_strided sees outside a view"
    if its is not None and its[0] == "backward" and "refers to a single memory" in str(its[2]):
        return "TEN-17: PyTorch puts a part back through a window that overlaps itself"
    if any(step.op == "requires_grad_" for step in program.body):
        return "TEN-23: views taken before requires_grad_ follow their base"
    if mine is not None and isinstance(mine[2], AliasError):
        return "TEN-8: aotlite finds every overlap, PyTorch those of stride 0"
    if its is not None and its[0] == "backward" and any(text in str(its[2]) for text in _MIXED):
        return "TEN-3, TEN-24: PyTorch mixes the geometries before and after t_ in a backward"
    return None


_MIXED = (
    "invalid gradient at index",
    "invalid storage offset -",
    "must match the size of tensor",
    "requiring a storage size of",
)
EXACT = 2.0**50


def close(a: tuple[float, ...], b: tuple[float, ...]) -> bool:
    """Equal; beyond exact integers, equal but for the order of sums."""
    if a == b:
        return True
    if len(a) != len(b):
        return False
    scale = max(map(abs, (*a, *b)))
    return scale > EXACT and all(abs(x - y) <= 1e-12 * scale for x, y in zip(a, b, strict=True))


_SAME: dict[str, Callable[[Any, Any], bool]] = {
    "values": close,
    # A base that no value of the program is: where reshape copies, PyTorch hides that base.
    "base": lambda a, b: a == b or -1 in (a, b),
}
