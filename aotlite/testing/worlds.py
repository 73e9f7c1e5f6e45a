"""What a user observes of a program call by call, and what differs (GEN-11).

Works for any library: two libraries, or a function and its compiled form, can be compared.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from typing import Any

import attrs
import numpy as np

from aotlite.testing.engines import Engine
from aotlite.testing.engines.base import numbers
from aotlite.testing.exactness import BITS, are_exact, array_of
from aotlite.testing.programs import Program, setup_of

Body = Callable[..., list[Any]]


@attrs.frozen
class Seen:
    """What can be observed of one tensor."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    dtype: str
    requires_grad: bool
    leaf: bool | str
    """Whether it is a leaf; the error's name where asking raises."""
    node: bool | str
    """Whether it has a tape node; the error's name where asking raises."""
    version: int
    storage: int
    base: int | None
    """The number of its base, -1 for one that is not among the values."""
    values: bytes


@attrs.frozen
class Gradient:
    """What can be observed of a `.grad`; strides where they tell something."""

    values: bytes
    dtype: str
    stride: tuple[int, ...]
    storage: int
    requires_grad: bool


@attrs.define
class World:
    """All that can be observed of one call and what follows it. Objects and storages are numbered
    as they first appear."""

    error: Exception | None = None
    untouched: bool = True
    """Where the call raised: whether all that was there is as it was."""
    plain: list[Any] = attrs.field(factory=list)
    """The results that are no tensors, None for tensors."""
    given: int = 0
    """How many different objects the setup made."""
    objects: list[int] = attrs.field(factory=list)
    """Setup values, then results: which object each is."""
    called: list[Seen] = attrs.field(factory=list)
    backward: str | None = None
    """The class of the error that the backward raised."""
    grads: list[Gradient | None] = attrs.field(factory=list)
    write: str | None = None
    written: list[Seen] = attrs.field(factory=list)
    has_bits: bool = False
    """Whether the program looks at memory in another dtype: its values may be bits of others."""


@attrs.frozen
class Setting:
    """What a call is given, and what happens around it."""

    values: list[Any]
    """All tensors there are before the call."""
    args: Sequence[Any]
    grad: bool = True
    write: tuple[int, str] | None = None


def play_call(library: Engine, program: Program, number: int, body: Body) -> World:
    """The world after one call of `body`."""
    call = program.calls[number]
    values, args = setup_of(library, call)
    world = play(library, Setting(values, args, call.grad, call.write), body)
    world.has_bits = shows_bits(program)
    return world


def play(library: Engine, setting: Setting, body: Body) -> World:
    """The world after a call of `body`, a backward and a write."""
    world = World()
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


def shows_bits(program: Program) -> bool:
    """Whether the program has a view in a dtype whose numbers are others of the same bits."""
    steps = [*program.body, *(step for call in program.calls for step in call.setup)]
    kinds = {arg for step in steps for arg in step.args if isinstance(arg, str)} & KINDS.keys()
    return any(s.op == "view_dtype" for s in steps) and len({KINDS[name] for name in kinds}) > 1


KINDS = {
    **{name: name for name in ("int64", "int32", "float32", "float64", "bool")},
    "complex64": "float32",
    "complex128": "float64",
}
"""The numbers that memory of a dtype is made of."""


def tensors_in(library: Engine, values: Sequence[Any]) -> Iterator[Any]:
    """The tensors among the values, and in their tuples and lists."""
    for value in values:
        if isinstance(value, (tuple, list)):
            yield from tensors_in(library, value)
        elif isinstance(value, library.tensor_type):
            yield value


def _snapshot(library: Engine, value: Any) -> tuple[Any, ...]:
    return (
        tuple(value.shape),
        tuple(value.stride()),
        value.storage_offset(),
        value.requires_grad,
        library.version_of(value),
        library.storage_of(value),
        library.bytes_of(value.detach()),
    )


def _continue(library: Engine, setting: Setting, world: World, results: list[Any]) -> None:
    """What the user does with the results."""
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


def _plain(value: Any) -> Any:
    """A result that is no tensor, to compare: nan is like nan, and 0.0 not like -0.0."""
    return repr(value) if isinstance(value, (float, complex)) else value


def observed(library: Engine, values: Sequence[Any], *, has_bits: bool = False) -> World:
    """What can be observed now of tensors that are different objects."""
    return World(
        objects=list(range(len(values))),
        called=_seen(library, list(values)),
        grads=_gradients(library, list(values)),
        has_bits=has_bits,
    )


def _distinct(values: list[Any]) -> tuple[list[int], list[Any]]:
    found: dict[int, int] = {}
    kept: list[Any] = []
    for value in values:
        if id(value) not in found:
            found[id(value)] = len(kept)
            kept.append(value)
    return [found[id(value)] for value in values], kept


def _seen(library: Engine, kept: list[Any]) -> list[Seen]:
    objects = {id(value): i for i, value in enumerate(kept)}
    storages: dict[int, int] = {}
    return [_seen_one(library, value, objects, storages) for value in kept]


def _seen_one(
    library: Engine, value: Any, objects: dict[int, int], storages: dict[int, int]
) -> Seen:
    base = library.base_of(value)
    return Seen(
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


def asked(value: Any, name: str) -> bool | str:
    """`is_leaf`, or whether there is a `grad_fn`; the error's name where asking raises."""
    try:
        found = getattr(value, name)
    except Exception as error:
        return type(error).__name__
    return found if name == "is_leaf" else found is not None


def backward_error(library: Engine, returned: list[Any]) -> str | None:
    """Runs a backward from all results that require grad; the class of the error that it raised."""
    tracked = [result for result in returned if result.requires_grad]
    if not tracked:
        return None
    cotangents = [_cotangent(library, result, i) for i, result in enumerate(tracked)]
    return _raised(library.backward, tracked, cotangents)


def _cotangent(library: Engine, result: Any, place: int) -> Any:
    dtype = str(result.dtype).rpartition(".")[2]
    values = numbers(result.numel(), 11 + place, dtype)
    return library.make(values, tuple(result.shape), dtype, grad=False)


def _raised(action: Callable[..., Any], *args: Any) -> str | None:
    try:
        action(*args)
    except Exception as error:
        return type(error).__name__
    return None


def _gradients(library: Engine, kept: list[Any]) -> list[Gradient | None]:
    storages = {library.storage_of(value): -1 - i for i, value in enumerate(kept)}
    found: list[Gradient | None] = []
    for value in kept:
        grad = value.grad if asked(value, "is_leaf") is True else None
        if grad is None:
            found.append(None)
            continue
        telling = [s for n, s in zip(grad.shape, grad.stride(), strict=True) if n > 1]
        storage = storages.setdefault(library.storage_of(grad), len(storages))
        values = library.bytes_of(grad.detach())
        stride = tuple(telling) if grad.numel() else ()
        found.append(Gradient(values, str(grad.dtype), stride, storage, grad.requires_grad))
    return found


# ------------------------------------------------------------------------------------ comparing
def differences(mine: World, its: World) -> list[str]:
    """What differs, one line each; empty if a user cannot tell the two apart."""
    if its.error is not None or mine.error is not None:
        return _error_differences(mine, its)
    for name in ("plain", "objects", "backward", "write"):
        a, b = getattr(mine, name), getattr(its, name)
        if a != b:
            return [f"{name}: {a}, eager {b}"]
    found = _seen_differences("after the call", mine.called, its.called, its.given)
    if its.backward is None and mine.grads != its.grads:
        found += _gradient_differences(mine.grads, its.grads, exact=is_exact(its))
    found += _seen_differences("after the write", mine.written, its.written, its.given)
    return found if not found or is_exact(its) else [*found, NOT_EXACT]


NOT_EXACT = "its numbers are not exact: rounding may be all that differs"


def _error_differences(mine: World, its: World) -> list[str]:
    if mine.error is not None and not mine.untouched:
        return [f"touched: the call raised {mine.error!r} and its inputs changed"]
    if type(mine.error) is not type(its.error):
        return [f"error: {mine.error!r}, eager {its.error!r}"]
    return []


def _seen_differences(when: str, mine: list[Seen], its: list[Seen], given: int) -> list[str]:
    if mine == its:
        return []
    found = []
    shared = Counter(each.storage for each in its)
    for i, (a, b) in enumerate(zip(mine, its, strict=True)):
        if a == b:
            continue
        for field in attrs.fields(Seen):
            x, y = getattr(a, field.name), getattr(b, field.name)
            alone = i >= given and shared[b.storage] == 1
            if x != y and not (alone and _is_hidden(field.name, a, b)):
                x, y = _shown(x, b.dtype), _shown(y, b.dtype)
                found.append(f"{field.name} of object {i} {when}: {x}, eager {y}")
    return found


def _is_hidden(name: str, mine: Seen, its: Seen) -> bool:
    """META-10: of a result that nothing else shares memory with, nobody can see what it views."""
    return name in ("base", "offset") and mine.base is None and its.base in (None, -1)


def _gradient_differences(
    mine: list[Gradient | None], its: list[Gradient | None], *, exact: bool
) -> list[str]:
    found = []
    for i, (a, b) in enumerate(zip(mine, its, strict=True)):
        if a == b:
            continue
        if a is None or b is None:
            found.append(f"gradient of object {i}: {a}, eager {b}")
            continue
        same = same_exactly if exact else same_numbers
        if attrs.evolve(a, values=b.values) != b or not same(a.values, b.values, b.dtype):
            texts = [(_shown(g.values, g.dtype), attrs.astuple(g)[1:]) for g in (a, b)]
            found.append(f"gradient of object {i}: {texts[0]}, eager {texts[1]}")
    return found


def is_exact(world: World) -> bool:
    """Whether all numbers of a world are exact (`aotlite.testing.exactness`), gradients included.

    In a program that looks at memory in another dtype, values may be the bits of other numbers.
    They are compared bit for bit like all values, and only its gradients are asked here.
    """
    seen: list[Seen | Gradient] = [each for each in world.grads if each is not None]
    if not world.has_bits:
        seen += [*world.called, *world.written]
    return are_exact(array_of(each.values, each.dtype) for each in seen)


def same_exactly(mine: bytes, its: bytes, dtype: str) -> bool:
    """The same numbers, -0.0 as 0.0 and any nan as another.

    A gradient that is added to zeros loses the sign of its zeros, one that is passed on keeps it,
    and which of both is done is the compiler's business; so are the bits of a nan.
    """
    a, b = array_of(mine, dtype), array_of(its, dtype)
    return a.shape == b.shape and bool(((a == b) | ((a != a) & (b != b))).all())


def same_numbers(mine: bytes, its: bytes, dtype: str) -> bool:
    """As `same_exactly`; numbers that are not exact may differ by the order of sums."""
    if same_exactly(mine, its, dtype):
        return True
    a, b = array_of(mine, dtype), array_of(its, dtype)
    if a.shape != b.shape or are_exact([b]):
        return False
    with np.errstate(all="ignore"):
        size = np.maximum(abs(a), abs(b))
        equal = (a == b) | ((a != a) & (b != b))
        room = 1e-5 if BITS.get(b.dtype.name, 50) < 50 else 1e-9
        finite = size[np.isfinite(size)]
        return bool((equal | (abs(a - b) <= room * finite.max(initial=0.0))).all())


def _shown(value: Any, dtype: str) -> Any:
    return array_of(value, dtype).tolist() if isinstance(value, bytes) else value
