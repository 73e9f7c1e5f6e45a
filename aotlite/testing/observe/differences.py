"""The differences between two observations (GEN-11), and whether their numbers are exact.

Place: above `observation`; it runs nothing. It ignores the differences that the rules allow: bases
and offsets that no user can observe (META-10), signs of zeros in gradients.
"""

from __future__ import annotations

from collections import Counter

import attrs
import numpy as np

from aotlite.testing.observe.exact_numbers import BITS, are_exact, array_of
from aotlite.testing.observe.observation import GradientSnapshot, Observation, TensorSnapshot


def differences(mine: Observation, its: Observation) -> list[str]:
    """Returns the differences, one a line; empty if a user cannot tell the two apart."""
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


def _error_differences(mine: Observation, its: Observation) -> list[str]:
    if mine.error is not None and not mine.untouched:
        return [f"touched: the call raised {mine.error!r} and its inputs changed"]
    if type(mine.error) is not type(its.error):
        return [f"error: {mine.error!r}, eager {its.error!r}"]
    return []


def _seen_differences(
    when: str, mine: list[TensorSnapshot], its: list[TensorSnapshot], given: int
) -> list[str]:
    if mine == its:
        return []
    found = []
    shared = Counter(each.storage for each in its)
    for i, (a, b) in enumerate(zip(mine, its, strict=True)):
        if a == b:
            continue
        for field in attrs.fields(TensorSnapshot):
            x, y = getattr(a, field.name), getattr(b, field.name)
            alone = i >= given and shared[b.storage] == 1
            if x != y and not (alone and _is_unobservable(field.name, a, b)):
                x, y = _shown(x, b.dtype), _shown(y, b.dtype)
                found.append(f"{field.name} of object {i} {when}: {x}, eager {y}")
    return found


def _is_unobservable(name: str, mine: TensorSnapshot, its: TensorSnapshot) -> bool:
    """META-10: the offset and base of a result that shares no memory are not observable."""
    return name in ("base", "offset") and mine.base is None and its.base in (None, -1)


def _gradient_differences(
    mine: list[GradientSnapshot | None], its: list[GradientSnapshot | None], *, exact: bool
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


def is_exact(world: Observation) -> bool:
    """Whether all numbers of an observation are exact (see `exact_numbers`), gradients included.

    In a program with views of another dtype, values may be the bits of other numbers; these are not
    checked here, only gradients are.
    """
    seen: list[TensorSnapshot | GradientSnapshot] = [
        each for each in world.grads if each is not None
    ]
    if not world.has_bits:
        seen += [*world.called, *world.written]
    return are_exact(array_of(each.values, each.dtype) for each in seen)


def same_exactly(mine: bytes, its: bytes, dtype: str) -> bool:
    """Whether the numbers are equal; -0.0 equals 0.0, and all nans are equal.

    A gradient that is added to zeros loses the sign of its zeros, one that is passed on keeps it. A
    compiler is free to do either, and to return any nan.
    """
    a, b = array_of(mine, dtype), array_of(its, dtype)
    return a.shape == b.shape and bool(((a == b) | ((a != a) & (b != b))).all())


def same_numbers(mine: bytes, its: bytes, dtype: str) -> bool:
    """Like `same_exactly`, but inexact numbers may differ by rounding."""
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


def _shown(value: object, dtype: str) -> object:
    return array_of(value, dtype).tolist() if isinstance(value, bytes) else value
