"""The laws of a single wrapper, for strategies of wrappers, which have no maker.

The functions are those of `laws.wrapper_functions`; each runs on a deep copy of the wrapper, and on
its meaning.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np

import aotlite as al
from aotlite.eager.base.modes import no_grad
from aotlite.eager.base.tensor import Tensor
from aotlite.ir.errors import AotliteError, SubclassError
from aotlite.testing.laws.errors import Broken, broken, running
from aotlite.testing.laws.wrapper_functions import FUNCTIONS, WrapperFunction
from aotlite.testing.subclasses.masked_model import MaskedModel
from aotlite.testing.subclasses.reference import (
    check_same,
    cotangent,
    flat,
    is_refused,
    tried,
)
from aotlite.testing.subclasses.wrapper_laws import TriedWrapper, check_rebuilt

LAWS = {"pure": "S2", "view": "S5", "in-place": "S4"}
"""Kind of function -> its law."""


def check_instance(
    subject: TriedWrapper, wrapper: Tensor, laws: list[str], claims: dict[str, str]
) -> tuple[int, set[str]]:
    """Checks the wrapper; returns the number of checks, and the functions that it refuses."""
    cases, refused = 0, set()
    name = f"{subject.name} of {wrapper.meta}"
    if "S1" in laws:
        with running("S1", claims["S1"], name, wrapper):
            check_rebuilt(wrapper, subject)
        cases += 1
    for function in FUNCTIONS:
        for law, check in ((LAWS[function.kind], _gives), ("S3", _differentiates)):
            if law not in laws:
                continue
            with running(law, claims[law], f"{name}, {function.name}", wrapper):
                known = _tried(check, subject, wrapper, function)
            cases += known
            refused |= set() if known else {function.name}
    return cases, refused


def _tried(check: Callable[..., None], *args: object) -> bool:
    """Runs a check; returns whether the class knows the function."""
    try:
        check(*args)
    except Broken:
        raise
    except SubclassError:
        return False
    return True


def _gives(subject: TriedWrapper, wrapper: Tensor, function: WrapperFunction) -> None:
    """Checks that the meanings of results, and of the argument after them, are right."""
    given = copy.deepcopy(wrapper).detach()
    worlds = [_owned(each) for each in subject.meanings.worlds(given)]
    others = _others(wrapper, function)
    with no_grad():
        wanted = [tried(_called, function, [world, *others]) for world in worlds]
        if _is_no_sample(worlds, wanted):
            return
        found = _called(function, [given, *others])
    tolerance = subject.kind.tolerance
    if function.kind == "in-place":
        wanted = [[subject.meanings.stored(given, each[0])] for each in wanted]
        if found[0] is not given:
            raise broken("it gives another object, expected the wrapper that it writes")
    for k, each in enumerate(found):
        check_same(f"result {k}", each, [world[k] for world in wanted], subject.meanings, tolerance)


def _differentiates(subject: TriedWrapper, wrapper: Tensor, function: WrapperFunction) -> None:
    """Checks that the meaning of the gradient is the gradient of the meanings."""
    if function.kind == "in-place" or not wrapper.dtype.is_differentiable:
        return
    given = copy.deepcopy(wrapper).detach().requires_grad_()
    leaves = [_owned(each).requires_grad_() for each in _dense(subject.meanings.worlds(wrapper))]
    if not leaves:
        return
    others = _others(wrapper, function)
    wanted = [tried(_gradient, function, leaf, others) for leaf in leaves]
    if not is_refused(wanted):
        found = _gradient(function, given, others)
        check_same(
            "the gradient", found, wanted, subject.meanings, max(subject.kind.tolerance, 1e-6)
        )


def _gradient(function: WrapperFunction, leaf: Tensor, others: list[Tensor]) -> object:
    outs = [each for each in _called(function, [leaf, *others]) if each.requires_grad]
    given = [cotangent(each, k) for k, each in enumerate(outs)]
    return al.autograd.grad(outs, leaf, given)[0]


def _called(function: WrapperFunction, args: list[object]) -> list[Any]:
    return flat(function.function(*args))


def _others(wrapper: Tensor, function: WrapperFunction) -> list[Tensor]:
    """Further arguments: small dense numbers."""
    numbers = np.arange(wrapper.numel()) % 5 / 2 - 1
    dense = al.tensor(numbers.reshape(tuple(wrapper.shape)), dtype=wrapper.dtype)
    return [dense] * (function.count - 1)


def _owned(world: object) -> Any:
    return world.detach().clone() if isinstance(world, Tensor) else world


def _dense(worlds: list[object]) -> list[Any]:
    return [each for each in worlds if isinstance(each, Tensor)]


def _is_no_sample(worlds: list[object], wanted: list[object]) -> bool:
    """Whether the case is no sample: models have no methods, and a meaning may refuse it."""
    models = any(isinstance(each, MaskedModel) for each in worlds)
    return models or any(isinstance(each, AotliteError) for each in wanted)
