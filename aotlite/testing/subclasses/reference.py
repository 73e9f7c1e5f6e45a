"""The reference of ops on wrappers: the op on their meanings, and the comparison with it.

`expected(name, args, kwargs)` is the op on dense tensors, or on models of masked ones.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import aotlite as al
from aotlite.eager.base.tensor import Tensor
from aotlite.eager.creation.from_data import call
from aotlite.ir.errors import AotliteError
from aotlite.testing.laws.errors import broken
from aotlite.testing.laws.ops.runs import same_bits
from aotlite.testing.subclasses.kinds import Meanings, in_world
from aotlite.testing.subclasses.masked_model import MaskedModel, NotSaid, apply, models_in


def expected(name: str, args: Any, kwargs: Any) -> Any:
    """Returns the result of an op on the meanings of wrappers in one world."""
    if any(True for _ in models_in((args, kwargs))):
        return apply(name, args, kwargs)
    return call(name, *args, **kwargs)


def tried(function: Callable[..., object], *args: object) -> Any:
    """Returns the result of a function, or aotlite's error that it raises."""
    try:
        return function(*args)
    except (AotliteError, NotSaid) as error:
        return error


def is_refused(wanted: list[object]) -> bool:
    """Whether a world refuses the arguments, which are then no sample.

    Raises `Broken` if no rule defines the result in a world.
    """
    unsaid = next((each for each in wanted if isinstance(each, NotSaid)), None)
    if unsaid is not None:
        raise broken(str(unsaid))
    return any(isinstance(each, AotliteError) for each in wanted)


def flat(value: object) -> list[Any]:
    """The results of an op in order, tensors and others."""
    if isinstance(value, (tuple, list)):
        return [each for item in value for each in flat(item)]
    return [value]


def check_same(
    what: str, found: object, wanted: list[object], meanings: Meanings, tolerance: float = 0.0
) -> None:
    """Raises Broken unless a result has the wanted meaning in each world."""
    worlds = meanings.worlds(found) if isinstance(found, Tensor) else [found]
    if len(worlds) not in (1, len(wanted)):
        raise broken(f"{what} means {len(worlds)} tensors, expected {len(wanted)}")
    for k, each in enumerate(wanted):
        world = worlds[k if len(worlds) > 1 else 0]
        where = what if len(wanted) == 1 else f"{what}, world {k},"
        _check_one(where, world, each, tolerance)


def _check_one(what: str, got: object, wanted: object, tolerance: float) -> None:
    if isinstance(wanted, MaskedModel) or isinstance(got, MaskedModel):
        _check_masked(what, got, wanted, tolerance)
    elif isinstance(wanted, Tensor):
        _check_tensor(what, got, array(wanted), tolerance)
    elif got != wanted and not (got != got and wanted != wanted):
        raise broken(f"{what} is {got!r}, expected {wanted!r}")


def _check_masked(what: str, got: object, wanted: object, tolerance: float) -> None:
    if not (isinstance(wanted, MaskedModel) and isinstance(got, MaskedModel)):
        kinds = [type(each).__name__ for each in (got, wanted)]
        raise broken(f"{what} is a {kinds[0]}, expected a {kinds[1]}")
    _check_tensor(f"the mask of {what}", got.mask, array(wanted.mask), 0.0)
    _check_tensor(what, got.filled(), array(wanted.filled()), tolerance)


def _check_tensor(what: str, got: object, wanted: np.ndarray, tolerance: float) -> None:
    if not isinstance(got, Tensor):
        raise broken(f"{what} is {got!r}, expected a tensor")
    mine = array(got)
    if same_bits(mine, wanted) or (tolerance and near(mine, wanted, tolerance)):
        return
    raise broken(f"{what} is {got.dtype}{mine.tolist()}, expected {wanted.dtype}{wanted.tolist()}")


def near(mine: np.ndarray, wanted: np.ndarray, tolerance: float) -> bool:
    """Whether numbers differ by no more than a part of the largest of them, or of 1."""
    if mine.shape != wanted.shape or mine.dtype != wanted.dtype or mine.dtype.kind not in "fc":
        return False
    with np.errstate(all="ignore"):
        same = (mine == wanted) | (np.isnan(mine) & np.isnan(wanted))
        finite = abs(wanted[np.isfinite(wanted)])
        room = tolerance * max(1.0, float(finite.max(initial=0.0)))
        return bool((same | (abs(mine - wanted) <= room)).all())


def array(tensor: Tensor) -> np.ndarray:
    """The numbers of a dense tensor, which may have a history."""
    return np.asarray(tensor.detach().array)


# ------------------------------------------------------------------------------------ gradients
def gradients(function: Callable[[], Any], leaves: list[Any]) -> list[Any]:
    """Gradients of the results, for cotangents that are the same for each world."""
    outs = [each for each in flat(function()) if getattr(each, "requires_grad", False)]
    if not outs or not leaves:
        return [None] * len(leaves)
    given = [cotangent(each, k) for k, each in enumerate(outs)]
    return list(al.autograd.grad(outs, leaves, given, allow_unused=True))


def cotangent(out: Any, seed: int) -> Any:
    """Small numbers of a result's shape and dtype."""
    count = int(np.prod(out.shape))
    numbers = (np.arange(count) * 5 + seed) % 7 / 4 - 0.5
    return al.tensor(numbers.reshape(tuple(out.shape)), dtype=out.dtype)


def modeled_gradients(name: str, args: object, kwargs: object) -> list[Any]:
    """Gradients for the leaves among dense arguments and models, in order."""
    leaves = [each.data if isinstance(each, MaskedModel) else each for each in _leaves(args)]
    wanted = [each for each in leaves if each.requires_grad]

    def function() -> Any:
        found = flat(expected(name, args, kwargs))
        return [each.filled(0.0) if isinstance(each, MaskedModel) else each for each in found]

    return gradients(function, wanted)


def _leaves(value: object) -> list[Any]:
    return [each for each in flat(value) if isinstance(each, (MaskedModel, Tensor))]


def leaf_in(value: object, number: int, meanings: Meanings) -> Any:
    """Arguments in a world as leaves, with their `requires_grad`."""
    if isinstance(value, (tuple, list)):
        return tuple([leaf_in(each, number, meanings) for each in value])
    if not isinstance(value, Tensor):
        return value
    found = in_world(value.detach(), number, meanings)
    if isinstance(found, MaskedModel):
        data = found.data.detach()
        return MaskedModel(data.requires_grad_() if value.requires_grad else data, found.mask)
    found = found.detach()
    return found.requires_grad_() if value.requires_grad else found
