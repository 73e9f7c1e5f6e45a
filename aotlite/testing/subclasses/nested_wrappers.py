"""S8: a class of pairs and pairs of a class have the same meaning.

A pair is a `TwoTensor`, on which an op acts on both halves. So a class made of a pair means the two
meanings of the halves, before and after any op.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from aotlite.eager.base.modes import no_grad
from aotlite.eager.base.tensor import Tensor
from aotlite.eager.subclass.protocol import is_wrapper
from aotlite.ir.errors import AotliteError, SubclassError
from aotlite.subclasses import TwoTensor
from aotlite.testing.laws.errors import broken
from aotlite.testing.laws.wrapper_functions import FUNCTIONS, WrapperFunction, tensors
from aotlite.testing.subclasses.kinds import Meanings, SubclassKind
from aotlite.testing.subclasses.reference import check_same, flat


def cases(kind: SubclassKind) -> Iterator[tuple[WrapperFunction, int]]:
    """The functions and tensors of the law."""
    for function in FUNCTIONS:
        for place in range(len(list(tensors(function.count)))):
            if _around(kind, function, place) is not None:
                yield function, place


def commutes(kind: SubclassKind, meanings: Meanings, function: WrapperFunction, place: int) -> None:
    """Raises Broken if the two nestings have different meanings after the function."""
    around, within = _around(kind, function, place), _within(kind, function, place)
    assert around is not None
    _compare("an argument", around, within, meanings)
    with no_grad():
        results = [_tried(function, each) for each in (within, around)]
    if any(isinstance(each, SubclassError) for each in results):
        return  # the class refuses it
    for each in results:
        if isinstance(each, AotliteError):
            raise each
    _compare("the result", results[1], results[0], meanings)
    _compare("an argument afterwards", around, within, meanings)


def _tried(function: WrapperFunction, args: list[object]) -> Any:
    try:
        return flat(function.function(*args))
    except AotliteError as error:
        return error


def _compare(what: str, around: list[Any], within: list[Any], meanings: Meanings) -> None:
    for mine, its in zip(around, within, strict=True):
        wanted = _in_order(meanings.worlds(its)) if isinstance(its, Tensor) else [its]
        name = f"{what} of pairs within, as against pairs around,"
        if isinstance(mine, Tensor) and mine.shape != its.shape:
            raise broken(f"{name} is {mine.meta}, expected {its.meta}")
        check_same(name, mine, wanted, meanings)


def _in_order(worlds: list[object]) -> list[object]:
    """The worlds of a pair in the order of inner pairs: the first of each half, the second, ..."""
    half = len(worlds) // 2
    return worlds if half < 2 else [worlds[k + h] for k in range(half) for h in (0, half)]


def _args(function: WrapperFunction, place: int) -> list[tuple[Tensor, Tensor]]:
    """The halves of the arguments."""
    dense = list(tensors(function.count))[place]
    return [(each.clone(), -each) for each in dense]


def _around(kind: SubclassKind, function: WrapperFunction, place: int) -> list[Any] | None:
    """The class, made of pairs; None if it refuses the tensors."""
    pairs = [TwoTensor(*halves) for halves in _args(function, place)]
    try:
        made = [kind.make(pair) for pair in pairs]
        halves = _within(kind, function, place)
        function.function(*[each[0].clone() for each in _args(function, place)])
    except AotliteError:
        return None
    return made if all(map(is_wrapper, [*made, *halves])) else None


def _within(kind: SubclassKind, function: WrapperFunction, place: int) -> list[Any]:
    """Pairs of the class."""
    return [TwoTensor(*[kind.make(half) for half in halves]) for halves in _args(function, place)]
