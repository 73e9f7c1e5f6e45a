"""Runs a case eagerly or compiled, and compares all that a user could observe (GEN-11)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

import attrs

import aotlite as al
from aotlite.eager.tensor_facts import Mark, facts_of
from aotlite.ir.errors import AliasError, UnsupportedError
from tests.end_to_end.helpers.cases import Call, Case, results_of, setup_of
from tests.helpers.programs import Aotlite, Step, execute, numbers

Body = Callable[..., Any]


@attrs.frozen
class Seen:
    """The observation of one tensor."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    dtype: Any
    requires_grad: bool
    node: bool | str
    """Whether it has a tape node; the error's name where asking raises."""
    version: int
    storage: int
    base: int | None
    """The number of its base, -1 for a base that is not among the values."""
    values: Any


@attrs.define
class World:
    """Everything that a user can observe. Objects and storages are numbered by first appearance."""

    error: Exception | None = None
    """The error of the call."""
    untouched: bool = True
    """Whether a call that raised left the setup values unchanged."""
    grad_mode: bool = True
    plain: list[Any] = attrs.field(factory=list)
    """The results that are no tensors, None for tensors."""
    objects: list[int] = attrs.field(factory=list)
    called: list[Seen] = attrs.field(factory=list)
    """After the call: setup values, then results."""
    written: list[Any] = attrs.field(factory=list)
    """The error of each write after the call."""
    after: list[list[Seen]] = attrs.field(factory=list)
    """The same after the writes, if there are any, and after the backward."""
    backward: list[Any] = attrs.field(factory=list)
    """The error of each backward."""
    grads: list[Any] = attrs.field(factory=list)
    """`.grad` of each object: values, strides, storage; after each backward."""


class _Engine(Aotlite):
    """Values of the second call differ from the first's: nothing of a call may be baked in."""

    def __init__(self, scale: float) -> None:
        self.scale = scale

    def fresh(self, values: list[float], shape: tuple[int, ...], requires_grad: bool) -> Any:
        return super().fresh([v * self.scale for v in values], shape, requires_grad)


def body_of(case: Case) -> Body:
    """The function that the case calls."""
    engine = Aotlite()

    def body(*inputs: Any) -> tuple[Any, ...]:
        values = list(inputs)
        execute(engine, case.program.body, values)
        return tuple(results_of(case, values))

    return body


def run_call(case: Case, number: int, function: Body) -> World:
    """The world after one call of `function`."""
    call = case.calls[number]
    engine = _Engine(1.0 if number == 0 else -2.0)
    setup: list[Any] = []
    try:
        execute(engine, setup_of(case, call), setup)
    except Exception as error:
        return World(error)
    return world_of(function, setup, call, engine)


def world_of(function: Body, setup: list[Any], call: Call, engine: Aotlite | None = None) -> World:
    """The world after `function` is called on some of the setup values, and what follows."""
    world = World()
    before = [_bytes_and_geometry(value) for value in setup]
    try:
        with nullcontext() if call.grad else al.no_grad():
            results = function(*[setup[i] for i in call.inputs])
            world.grad_mode = al.is_grad_enabled()
    except Exception as error:
        world.error = error
        world.untouched = before == [_bytes_and_geometry(value) for value in setup]
        return world
    _continue(call, engine or Aotlite(), world, setup, results)
    return world


def _continue(
    call: Call, engine: Aotlite, world: World, setup: list[Any], results: Sequence[Any]
) -> None:
    """Runs the user's actions on the results."""
    tensors = [r for r in results if isinstance(r, al.Tensor)]
    world.plain = [None if isinstance(r, al.Tensor) else (type(r), r) for r in results]
    values = [*setup, *tensors]
    world.objects, kept = _identities(values)
    world.called = _seen(kept, looks=call.looks)
    if call.after:
        world.written = [_raised(_write, engine, step, values) for step in call.after]
        world.after.append(_seen(kept, looks=False))
    _backward(call, engine, world, kept, tensors)
    world.after.append(_seen(kept, looks=True))


def _bytes_and_geometry(value: Any) -> Any:
    return (
        value.shape,
        value.stride(),
        value.storage_offset(),
        value.requires_grad,
        value.version,
        str(value.detach().tolist()),
    )


def _identities(values: list[Any]) -> tuple[list[int], list[Any]]:
    numbers_of: dict[int, int] = {}
    kept: list[Any] = []
    for value in values:
        if id(value) not in numbers_of:
            numbers_of[id(value)] = len(kept)
            kept.append(value)
    return [numbers_of[id(value)] for value in values], kept


def _seen(kept: list[Any], *, looks: bool) -> list[Seen]:
    storages: dict[int, int] = {}
    objects = {id(value): i for i, value in enumerate(kept)}
    found = []
    for value in kept:
        check_facts(value)
        base = value.base
        found.append(
            Seen(
                shape=tuple(value.shape),
                stride=tuple(value.stride()),
                offset=value.storage_offset(),
                dtype=value.dtype,
                requires_grad=value.requires_grad,
                node=_node(value) if looks else "not asked",
                version=value.version,
                storage=storages.setdefault(id(value.storage), len(storages)),
                base=None if base is None else objects.get(id(base), -1),
                values=value.detach().tolist(),
            )
        )
    return found


def check_facts(value: Any) -> None:
    """Checks that the facts cached for guards are those computed anew, and caches these."""
    kept, value.facts = value.facts, None
    kept = kept.facts if isinstance(kept, Mark) else kept
    found = facts_of(value)
    assert kept is None or kept is found, f"{value.meta} remembers {kept}, and is {found}"


def _node(value: Any) -> bool | str:
    try:
        return value.grad_fn is not None and not value.is_leaf
    except Exception as error:
        return type(error).__name__


def _raised(action: Callable[..., Any], *args: Any, **named: Any) -> str | None:
    try:
        action(*args, **named)
    except Exception as error:
        return type(error).__name__
    return None


def _write(engine: Aotlite, step: Step, values: list[Any]) -> None:
    target = values[step.args[0].index]
    with nullcontext() if step.grad else engine.no_grad():
        getattr(target, step.op)(*step.args[1:])


def _backward(
    call: Call, engine: Aotlite, world: World, kept: list[Any], results: list[Any]
) -> None:
    tracked = [r for r in results if r.requires_grad]
    cotangents = [
        engine.fresh(numbers(r.numel(), 11 + i), tuple(r.shape), False)
        for i, r in enumerate(tracked)
    ]
    if call.backward == "together":
        if tracked:
            world.backward.append(_raised(al.autograd.backward, tracked, cotangents))
        world.grads.append(_gradients(kept))
        return
    for result, cotangent in zip(tracked, cotangents, strict=True):
        world.backward.append(_raised(result.backward, cotangent, retain_graph=True))
        world.grads.append(_gradients(kept))
        if call.backward == "alone":
            for value in kept:
                value.grad = None


def _gradients(kept: list[Any]) -> list[Any]:
    """For each object None, or its gradient's values, strides and number of storage."""
    storages = {id(value.storage): -1 - i for i, value in enumerate(kept)}
    found: list[Any] = []
    for value in kept:
        grad = value.grad
        if grad is None:
            found.append(None)
            continue
        storage = storages.setdefault(id(grad.storage), len(storages))
        strides = tuple(s for n, s in zip(grad.shape, grad.stride(), strict=True) if n > 1)
        found.append((grad.tolist(), strides if grad.numel() else (), storage, grad.requires_grad))
    return found


# ------------------------------------------------------------------------------------ comparing
REFUSALS: dict[type, tuple[str, ...]] = {
    AliasError: ("overlaps itself, expected a base with",),
    UnsupportedError: (
        "and both get gradients, expected one",
        "beyond the elements of an input",
        "memory that resize_ made grow",
        "before resize_ made its storage grow",
        "by set_ and requires grad there",
        "gets gradients of several shapes",
        "reaches outside the",
        "has a history of its own",
        "after as_strided_, expected uses before",
        "depends on a leaf that the function makes",
    ),
}
"""The calls that compiled functions may refuse before any effect, although eager runs (GEN-2)."""


def refusal(compiled: World) -> str | None:
    """The known refusal that the compiled call ended with."""
    for kind, texts in REFUSALS.items():
        for text in texts:
            if isinstance(compiled.error, kind) and text in str(compiled.error):
                return text
    return None


def differences(compiled: World, eager: World) -> list[str]:
    """The differences, one line each; empty if a user cannot tell the two apart."""
    if eager.error is not None or compiled.error is not None:
        return _error_differences(compiled, eager)
    found = []
    for name in ("grad_mode", "plain", "objects", "written", "backward"):
        mine, its = getattr(compiled, name), getattr(eager, name)
        if mine != its:
            found.append(f"{name}: compiled {mine}, eager {its}")
    if not found:
        found += _seen_differences("after the call", compiled.called, eager.called)
        for mine, its in zip(compiled.after, eager.after, strict=True):
            found += _seen_differences("later", mine, its)
        found += _gradient_differences(compiled, eager)
    return found


def _error_differences(compiled: World, eager: World) -> list[str]:
    if compiled.error is not None and not compiled.untouched:
        return [f"touched: the call raised {compiled.error!r} and its inputs changed"]
    if refusal(compiled) is not None:
        return []
    if type(compiled.error) is not type(eager.error):
        return [f"error: compiled {compiled.error!r}, eager {eager.error!r}"]
    return []


def _seen_differences(when: str, compiled: list[Seen], eager: list[Seen]) -> list[str]:
    found = []
    shared = Counter(each.storage for each in eager)
    for i, (mine, its) in enumerate(zip(compiled, eager, strict=True)):
        alone = mine.base is None and shared[its.storage] == 1
        for field in attrs.fields(Seen):
            a, b = getattr(mine, field.name), getattr(its, field.name)
            # META-10: of a view that nothing else shares memory with, the base is hidden.
            if field.name == "base" and mine.base is None and its.base == -1:
                continue
            if field.name == "offset" and alone:
                continue
            if field.name == "base" and -1 in (a, b) and None not in (a, b):
                continue
            if field.name == "values" and _same_numbers(a, b):
                continue
            if a != b:
                found.append(f"{field.name} of object {i} {when}: compiled {a}, eager {b}")
    return found


def _gradient_differences(compiled: World, eager: World) -> list[str]:
    if eager.backward and any(eager.backward) and eager.backward != ["alone"]:
        usable = [raised is None for raised in eager.backward]
    else:
        usable = [True] * len(eager.grads)
    found = []
    for k, (mine, its) in enumerate(zip(compiled.grads, eager.grads, strict=True)):
        if not all(usable[: k + 1]):
            break
        for i, (a, b) in enumerate(zip(mine, its, strict=True)):
            if a != b and not (a and b and a[1:] == b[1:] and _same_numbers(a[0], b[0])):
                found.append(f"grad of object {i} after backward {k}: compiled {a}, eager {b}")
    return found


EXACT = 2.0**50


def _same_numbers(a: Any, b: Any) -> bool:
    """Equal; beyond exact integers, equal but for the order of sums."""
    if isinstance(a, list) or isinstance(b, list):
        return type(a) is type(b) and len(a) == len(b) and all(map(_same_numbers, a, b))
    if a == b or (a != a and b != b):
        return True
    return max(abs(a), abs(b)) > EXACT and abs(a - b) <= 1e-9 * max(abs(a), abs(b))


def inputs_share_memory(case: Case) -> bool:
    """Whether two different inputs of some call lie on one storage."""
    for call in case.calls:
        setup: list[Any] = []
        execute(_Engine(1.0), setup_of(case, call), setup)
        inputs = {id(setup[i]): setup[i] for i in call.inputs}.values()
        if len({id(value.storage) for value in inputs}) < len(inputs):
            return True
    return False


def check(case: Case, **options: Any) -> tuple[list[str], list[str]]:
    """(differences, known refusals) over the calls of one compiled object."""
    body = body_of(case)
    compiled = al.compile(body, **{"verify": 2, **options})
    found: list[str] = []
    refused: list[str] = []
    for number in range(len(case.calls)):
        mine = run_call(case, number, compiled)
        its = run_call(case, number, body)
        found += [f"call {number}: {line}" for line in differences(mine, its)]
        known = refusal(mine)
        if known is not None:
            refused.append(known)
    return found, refused
