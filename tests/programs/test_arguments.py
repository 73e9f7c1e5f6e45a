"""PRG-3, PRG-4: arguments and state are kept apart, and a call that is eager's is taken."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import aotlite as al
from aotlite.export import (
    aot_export_joint_simple,
    aot_export_joint_with_descriptors,
    aot_export_module,
    program,
)
from aotlite.ir.errors import ExportError, UnsupportedError

GIVEN = al.ones(2)


def times(a: Any) -> Any:
    return (a * GIVEN,)


class Times(al.nn.Module):
    """Its argument may be its parameter, or a tensor of this file."""

    def __init__(self, *, own: bool) -> None:
        self.weight = al.nn.Parameter(al.ones(2))
        self.own = own

    def forward(self, a: Any) -> Any:
        return (a * (self.weight if self.own else self.weight * GIVEN),)


def of_gradient(x: Any, y: Any) -> Any:
    return x.grad * y


def accumulating(x: Any, y: Any) -> Any:
    (x * y).sum().backward()
    return x.detach()


def with_gradient() -> Any:
    x = al.ones(2, requires_grad=True)
    x.grad = al.ones(2)
    return x


MODULE, OTHER = Times(own=True), Times(own=False)
LEAF = with_gradient()
TWICE: dict[str, tuple[Callable[[], object], str]] = {
    "program": (lambda: program(times, GIVEN), "reaches argument a also as GIVEN"),
    "of a Module": (lambda: program(MODULE, MODULE.weight), "argument a also as Times.weight"),
    "a gradient": (lambda: program(of_gradient, LEAF, LEAF.grad), "argument y also as x.grad"),
    "reading .grad": (lambda: program(of_gradient, LEAF, al.ones(2)), "reads x.grad"),
    "adding to .grad": (lambda: program(accumulating, LEAF, al.ones(2)), "reads x.grad"),
    "to_python": (
        lambda: al.compile(times).to_python(args=(GIVEN,)),
        "argument a is also reached as GIVEN",
    ),
    "a Module": (
        lambda: aot_export_module(OTHER, (GIVEN,)),
        "user input 0 is also reached as GIVEN",
    ),
    "its parameter": (
        lambda: aot_export_module(MODULE, (MODULE.weight,)),
        "user input 0 is 'weight' of the Module",
    ),
    "a joint": (
        lambda: aot_export_joint_simple(times, (GIVEN,), trace_joint=False),
        "user input 0 is also reached as GIVEN",
    ),
    "a described joint": (
        lambda: aot_export_joint_with_descriptors(OTHER, (GIVEN,)),
        "user input 0 is also reached as GIVEN",
    ),
}


@pytest.mark.rules("PRG-3", "EXP-1", "PYX-2")
@pytest.mark.parametrize("export, words", TWICE.values(), ids=TWICE)
def test_argument_that_is_reached_by_another_path_is_refused(
    export: Callable[[], object], words: str
) -> None:
    """One input would stand for both, and a call may pass another tensor."""
    with pytest.raises((ExportError, UnsupportedError)) as caught:
        export()
    assert words in str(caught.value)
    assert caught.value.__notes__


@pytest.mark.rules("PRG-3")
def test_state_of_an_array_that_an_argument_has_is_refused() -> None:
    array = al.ones(3).numpy()
    state, given = al.from_numpy(array[:2]), al.from_numpy(array[1:])
    with pytest.raises(ExportError, match="has an argument on the memory of state"):
        program(lambda x: x * state, given)
