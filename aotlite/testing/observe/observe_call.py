"""Calls a function and observes the call, a backward and a write (GEN-11).

Place: above engines and `observation`; `differences` compares its results. It works for any
library, so that two libraries, or a function and its compiled form, can be compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from typing import Any

import attrs

from aotlite.testing.engines import Engine
from aotlite.testing.engines.base import EngineTensor
from aotlite.testing.engines.interpreter import setup_of
from aotlite.testing.observe.observation import GradientSnapshot, Observation, TensorSnapshot
from aotlite.testing.programs.numbers import numbers
from aotlite.testing.programs.steps import ProgramData

Body = Callable[..., list[Any]]


@attrs.frozen
class Setting:
    """The arguments of a call, and the actions around it."""

    values: list[Any]
    """All tensors that exist before the call."""
    args: Sequence[Any]
    grad: bool = True
    write: tuple[int, str] | None = None


def observe_call(library: Engine, program: ProgramData, number: int, body: Body) -> Observation:
    """Returns the observation of one call of `body`."""
    call = program.calls[number]
    values, args = setup_of(library, call)
    world = observe(library, Setting(values, args, call.grad, call.write), body)
    world.has_bits = shows_bits(program)
    return world


def observe(library: Engine, setting: Setting, body: Body) -> Observation:
    """Returns the observation of a call of `body`, a backward and a write."""
    world = Observation()
    before = [_snapshot(library, value) for value in tensors_in(library, setting.values)]
    try:
        with nullcontext() if setting.grad else library.no_grad():
            results = body(*setting.args)
    except Exception as error:
        world.error = error.with_traceback(None)
        after = [_snapshot(library, value) for value in tensors_in(library, setting.values)]
        world.untouched = before == after
        return world
    _continue(library, setting, world, results)
    return world


def shows_bits(program: ProgramData) -> bool:
    """Whether the program has a view of a dtype with other numbers for the same bits."""
    steps = [*program.body, *(step for call in program.calls for step in call.setup)]
    kinds = {arg for step in steps for arg in step.args if isinstance(arg, str)} & KINDS.keys()
    return any(s.op == "view_dtype" for s in steps) and len({KINDS[name] for name in kinds}) > 1


KINDS = {
    **{name: name for name in ("int64", "int32", "float32", "float64", "bool")},
    "complex64": "float32",
    "complex128": "float64",
}
"""Dtype -> the dtype of the numbers in its memory; complex numbers are pairs of floats."""


def tensors_in(library: Engine, values: Sequence[object]) -> Iterator[Any]:
    """The tensors among the values, and in their tuples and lists."""
    for value in values:
        if isinstance(value, (tuple, list)):
            yield from tensors_in(library, value)
        elif isinstance(value, library.tensor_type):
            yield value


def _snapshot(library: Engine, value: EngineTensor) -> tuple[object, ...]:
    return (
        tuple(value.shape),
        tuple(value.stride()),
        value.storage_offset(),
        value.requires_grad,
        library.version_of(value),
        library.storage_of(value),
        library.bytes_of(value.detach()),
    )


def _continue(library: Engine, setting: Setting, world: Observation, results: list[Any]) -> None:
    """Observes the results, then runs a backward and a write, and observes again."""
    kind = library.tensor_type
    values = list(tensors_in(library, setting.values))
    world.plain = [None if isinstance(r, kind) else (type(r), _plain(r)) for r in results]
    returned = list(tensors_in(library, results))
    world.objects, kept = _distinct([*values, *returned])
    world.given = len(set(world.objects[: len(values)]))
    world.called = _seen(library, kept)
    world.backward = backward_error(library, returned)
    world.grads = _gradients(library, kept)
    if setting.write and returned:
        place, op = setting.write
        target = returned[place % len(returned)]
        with library.no_grad():
            world.write = _raised(getattr(target, op), 2)
    world.written = _seen(library, kept)


def _plain(value: object) -> object:
    """A result that is no tensor, in a form in which nan equals nan, and 0.0 differs from -0.0."""
    return repr(value) if isinstance(value, (float, complex)) else value


def observe_tensors(
    library: Engine, values: Sequence[object], *, has_bits: bool = False
) -> Observation:
    """Returns the observation of the present state of tensors, which are different objects."""
    return Observation(
        objects=list(range(len(values))),
        called=_seen(library, list(values)),
        grads=_gradients(library, list(values)),
        has_bits=has_bits,
    )


def _distinct(values: list[object]) -> tuple[list[int], list[object]]:
    found: dict[int, int] = {}
    kept: list[Any] = []
    for value in values:
        if id(value) not in found:
            found[id(value)] = len(kept)
            kept.append(value)
    return [found[id(value)] for value in values], kept


def _seen(library: Engine, kept: list[object]) -> list[TensorSnapshot]:
    objects = {id(value): i for i, value in enumerate(kept)}
    storages: dict[int, int] = {}
    return [_seen_one(library, value, objects, storages) for value in kept]


def _seen_one(
    library: Engine, value: Any, objects: dict[int, int], storages: dict[int, int]
) -> TensorSnapshot:
    base = library.base_of(value)
    return TensorSnapshot(
        tuple(value.shape),
        tuple(value.stride()),
        value.storage_offset(),
        str(value.dtype),
        value.requires_grad,
        asked(value, "is_leaf"),
        asked(value, "grad_fn"),
        library.version_of(value),
        storages.setdefault(library.storage_of(value), len(storages)),
        None if base is None else objects.get(id(base), -1),
        library.bytes_of(value.detach()),
    )


def asked(value: object, name: str) -> bool | str:
    """`is_leaf`, or whether there is a `grad_fn`; the class name of the error if it raises."""
    try:
        found = getattr(value, name)
    except Exception as error:
        return type(error).__name__
    return found if name == "is_leaf" else found is not None


def backward_error(library: Engine, returned: list[Any]) -> str | None:
    """Runs a backward from all results that require grad; returns the class name of its error."""
    tracked = [result for result in returned if result.requires_grad]
    if not tracked:
        return None
    cotangents = [_cotangent(library, result, i) for i, result in enumerate(tracked)]
    return _raised(library.backward, tracked, cotangents)


def _cotangent(library: Engine, result: EngineTensor, place: int) -> object:
    dtype = str(result.dtype).rpartition(".")[2]
    values = numbers(result.numel(), 11 + place, dtype)
    return library.make(values, tuple(result.shape), dtype, grad=False)


def _raised(action: Callable[..., object], *args: object) -> str | None:
    try:
        action(*args)
    except Exception as error:
        return type(error).__name__
    return None


def _gradients(library: Engine, kept: list[Any]) -> list[GradientSnapshot | None]:
    storages = {library.storage_of(value): -1 - i for i, value in enumerate(kept)}
    found: list[GradientSnapshot | None] = []
    for value in kept:
        grad = value.grad if asked(value, "is_leaf") is True else None
        if grad is None:
            found.append(None)
            continue
        telling = [s for n, s in zip(grad.shape, grad.stride(), strict=True) if n > 1]
        storage = storages.setdefault(library.storage_of(grad), len(storages))
        values = library.bytes_of(grad.detach())
        stride = tuple(telling) if grad.numel() else ()
        found.append(GradientSnapshot(values, str(grad.dtype), stride, storage, grad.requires_grad))
    return found
