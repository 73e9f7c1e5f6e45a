"""First and second derivatives of the sum of squares of results, by a file of order 2.

A file gives gradients of arguments `a`, and of bases of such. The leaves `l` lie behind them:

    first   = J^T c             c = the file's gradients of a, J = da/dl
    second  = d|first|^2 / dl   by J where c stays, and by the file's second pullback where J stays
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

import aotlite as al
from aotlite.export import program
from aotlite.ir.errors import UnsupportedError
from tests.programs.gradients_of_gradients import Setup, leaves_of
from tests.python_export.comparison import Arrays, module_of

Gradients = Mapping[str, np.ndarray | None]


def derivatives_by_file(setup: Setup, function: Callable[..., Any]) -> list[Any] | None:
    """What `gradients_of_gradients.derivatives` computes, by the file of the function.

    Raises UnsupportedError where the file has no second order.
    """
    values, args = setup()
    made = program(function, *args, order=2)
    module = module_of(made.to_python())
    entry = next((of for name, of in vars(module).items() if name.endswith("_of_order_2")), None)
    if entry is None and not any(name.endswith("_with_backward") for name in vars(module)):
        return [None] * len(leaves_of(values))  # no gradient reaches an argument
    if entry is None:
        raise UnsupportedError("the file has no second order")
    texts = [re.sub(r"^args\[(\d+)\]", r"arg_\1", name) for name in made.records.arguments.names]
    arrays = Arrays()
    results, pullback = entry(*[arrays.of(each) for each in args])
    wanted = pullback.__code__.co_varnames[: pullback.__code__.co_argcount]
    places = {name: int(name.rpartition("_")[2]) for name in wanted if name.startswith("d_output_")}
    found = {name: np.array(results[place]) for name, place in places.items()}
    first, again = pullback(**{name: np.array(2 * value) for name, value in found.items()})
    behind = _Leaves(setup, texts)
    if not behind.leaves:
        return None
    gradients, of_first, direct = behind.squared(first)
    second = again(
        **{f"d_{re.sub(r'[^0-9A-Za-z_]', '_', key)}": of for key, of in of_first.items()}
    )
    of_second = {name: np.array(2 * second[name]) for name in found if name in second}
    through, _ = pullback(**of_second)
    parts = [
        behind.reached({k: of for k, of in each.items() if k in behind.named})
        for each in (second, through)
    ]
    return [*gradients, *[_sum(each) for each in zip(direct, *parts, strict=True)]]


def _sum(parts: Sequence[np.ndarray | None]) -> np.ndarray | None:
    found = [each for each in parts if each is not None]
    return sum(found[1:], found[0]) if found else None


class _Leaves:
    """The leaves behind arguments of these names, and how these depend on them."""

    def __init__(self, setup: Setup, names: Sequence[str]) -> None:
        values, args = setup()
        self.leaves = leaves_of(values)
        self.named = dict(reversed(list(zip(names, args, strict=True))))
        self.named |= {f"{k}._base": getattr(x, "_base", None) for k, x in self.named.items()}

    def squared(self, first: Gradients) -> tuple[list[Any], dict[str, np.ndarray], list[Any]]:
        """The gradients of leaves by these of arguments; those of the sum of their squares by the
        gradients of arguments, and by the leaves where these stay."""
        given = {k: al.from_numpy(of.copy()) for k, of in first.items() if of is not None}
        for each in given.values():
            each.requires_grad_()
        found = self._through(given, create_graph=True)
        squares = [(each * each).sum() for each in found if each is not None]
        behind = [*given.values(), *self.leaves]
        total = sum(squares, al.zeros((), dtype=al.float64))
        ones = (
            al.autograd.grad(total, behind, allow_unused=True) if squares else [None] * len(behind)
        )
        arrays = [None if each is None else each.detach().numpy() for each in ones]
        of_first = {key: of for key, of in zip(given, arrays, strict=False) if of is not None}
        return [_array(each) for each in found], of_first, arrays[len(given) :]

    def reached(self, gradients: Gradients) -> list[np.ndarray | None]:
        """The gradients of leaves, by these of arguments."""
        given = {k: al.from_numpy(np.array(of)) for k, of in gradients.items() if of is not None}
        return [_array(each) for each in self._through(given)]

    def _through(self, given: Mapping[str, Any], **options: Any) -> list[Any]:
        if not given:
            return [None] * len(self.leaves)
        tensors = [self.named[key] for key in given]
        options |= {"allow_unused": True, "retain_graph": True}
        return list(al.autograd.grad(tensors, self.leaves, list(given.values()), **options))


def _array(tensor: Any) -> np.ndarray | None:
    return None if tensor is None else tensor.detach().numpy().copy()
