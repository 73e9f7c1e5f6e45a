"""Whether a region's code may be repeated without being run: what it may do, and what it reads.

The proof that it changes nothing is the one for hooks (HOOK-2). Beyond it, the code must name no
attribute of tensors that is neither an op nor part of the meta. Rules: REG-23, REG-24.
Spec: `specs/equal_regions.md`.
"""

from __future__ import annotations

import builtins
import types
from collections.abc import Iterable, Sequence
from typing import Any

import attrs

from aotlite.eager.base.tensor import Tensor
from aotlite.eager.tracked_objects import TrackedCallable
from aotlite.ir.op import OPS
from aotlite.ir.op.composite import COMPOSITES
from aotlite.stages.records.guards.access_paths import NOTHING
from aotlite.stages.s1_capture.environment.access_search import is_users, names_used
from aotlite.stages.s1_capture.environment.bytecode_reads import methods_of
from aotlite.stages.s1_capture.hooks.purity import more_than_computes
from aotlite.stages.s1_capture.hooks.reachable import Known, variables_of

_OF_METAS = frozenset(
    "shape dtype device ndim dim size numel nelement stride itemsize element_size nbytes "
    "is_contiguous is_floating_point is_complex requires_grad meta value T mT H mH real imag "
    "reshape view_as expand_as copy_ zero_".split()
)
"""Attributes of tensors that ask their metas alone, or are ops by another name."""
_LATE = frozenset("zero_grad step train eval apply to cuda cpu requires_grad_".split())
"""Methods of Modules that change them."""


def _hidden_names() -> frozenset[str]:
    ops = {*OPS, *(name.rpartition(".")[2] for name in COMPOSITES)}
    return frozenset(dir(Tensor)) - ops - _OF_METAS | _LATE - ops


def reason_against(
    function: types.FunctionType, compared: Iterable[types.FunctionType], given: Sequence[object]
) -> str | None:
    """Why a region's function may do more than compute; None if it does not."""
    if not isinstance(function, types.FunctionType) or not is_users(function):
        return "it is no function of the user's"
    hidden = _hidden_names()
    for each in functions_of([function, *given]):
        for name in names_used(each.__code__)[1]:
            if name in hidden:
                return f"it reads the attribute {name!r}"
    more = more_than_computes(function, Known([function], compared), given)
    return None if more is None else f"it {more}"


def functions_of(things: Iterable[object]) -> list[types.FunctionType]:
    """The users' functions among the things and among their variables; methods of Modules."""
    queue, found, kinds = list(things), dict[int, types.FunctionType](), set[type]()
    for each in queue:  # grows while it is walked
        function = getattr(each, "__wrapped__", each) if type(each) is types.FunctionType else each
        if isinstance(function, types.FunctionType):
            if id(function) not in found and is_users(function):
                found[id(function)] = function
                queue += [value for _, value in variables_of(function)]
        elif isinstance(each, TrackedCallable) and type(each) not in kinds:
            kinds.add(type(each))
            queue += methods_of(type(each))
        elif isinstance(each, (tuple, list)):
            queue += each
        elif isinstance(each, dict):
            queue += each.values()
    return list(found.values())


@attrs.frozen(eq=False, repr=False)
class RegionVariables:
    """The variables and methods that a region's functions may read, as they were."""

    cells: tuple[tuple[types.CellType, object], ...]
    names: tuple[tuple[dict[str, Any], str, object], ...]
    """(namespace, name, value); NOTHING where the namespace lacks the name."""
    kinds: tuple[tuple[type, dict[str, object]], ...]
    """The classes of Modules, with their attributes."""

    @classmethod
    def of(cls, things: Iterable[object]) -> RegionVariables:
        """Those of the functions and Modules among the things."""
        things = list(things)
        functions = functions_of(things)
        modules = {type(each) for each in things if isinstance(each, TrackedCallable)}
        bases = [base for kind in modules for base in kind.__mro__ if is_users(base)]
        kinds = {base: dict(vars(base)) for base in bases}
        cells = [(cell, _contents(cell)) for f in functions for cell in f.__closure__ or ()]
        return cls(tuple(cells), tuple(_names_in(functions)), tuple(kinds.items()))

    def values(self) -> Iterable[object]:
        """The values of variables."""
        return [value for _, value in self.cells] + [value for _, _, value in self.names]

    def changed(self) -> str | None:
        """The name of one that has another value now; None if all are as they were."""
        for cell, value in self.cells:
            if _contents(cell) is not value:
                return "a variable of the function around it"
        for space, name, value in self.names:
            if space.get(name, NOTHING) is not value:
                return f"the variable {name!r}"
        for kind, before in self.kinds:
            now = vars(kind)
            if len(now) != len(before) or any(now.get(n, NOTHING) is not before[n] for n in before):
                return f"the class {kind.__name__}"
        return None


def _names_in(
    functions: Iterable[types.FunctionType],
) -> Iterable[tuple[dict[str, Any], str, object]]:
    for function in functions:
        names, attributes = names_used(function.__code__)
        for name in names:
            spaces = [function.__globals__]
            if name not in function.__globals__:
                spaces.append(vars(builtins))
            for space in spaces:
                value = space.get(name, NOTHING)
                yield space, name, value
                if isinstance(value, types.ModuleType) and is_users(value):
                    inner = vars(value)
                    yield from [(inner, each, inner.get(each, NOTHING)) for each in attributes]


def _contents(cell: types.CellType) -> object:
    try:
        return cell.cell_contents
    except ValueError:  # not bound yet
        return NOTHING
