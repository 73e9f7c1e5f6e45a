"""PRG-3, PRG-4: arguments and state are kept apart, and a call that is eager's is taken."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import aotlite as al
from aotlite.export import (
    ExportedProgram,
    aot_export_joint_simple,
    aot_export_joint_with_descriptors,
    aot_export_module,
    program,
)
from aotlite.ir.errors import ArgumentError, ExportError, UnsupportedError
from aotlite.programs.files import packed, program_of

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
        "argument a is also reached as GIVEN",
    ),
    "its parameter": (
        lambda: aot_export_module(MODULE, (MODULE.weight,)),
        "argument a is 'weight' of the Module",
    ),
    "a joint": (
        lambda: aot_export_joint_simple(times, (GIVEN,), trace_joint=False),
        "argument a is also reached as GIVEN",
    ),
    "a described joint": (
        lambda: aot_export_joint_with_descriptors(OTHER, (GIVEN,)),
        "argument a is also reached as GIVEN",
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
    state, argument = al.from_numpy(array[:2]), al.from_numpy(array[1:])
    with pytest.raises(ExportError, match="has an argument on the memory of state"):
        program(lambda x: x * state, argument)


@pytest.mark.rules("PRG-3")
def test_written_state_on_one_array_is_refused() -> None:
    """Each has a storage of its own, so that its copy would have, too."""
    array = al.zeros(3).numpy()
    total, same, rest = (al.from_numpy(each) for each in (array, array, array[1:]))
    with pytest.raises(ExportError, match="writes same or total, tensors on one ndarray"):
        program(lambda x: (same * 1, total.add_(x)), al.ones(3))
    with pytest.raises(ExportError, match="writes rest or total, tensors on one ndarray"):
        program(lambda x: (rest * 1, total.add_(x)), al.ones(3))
    assert (
        4.0
        == program(lambda x: (same * 1, (total + x).sum() + 1)[1], al.ones(3))(al.ones(3)).item()
    )


# ---------------------------------------------------------------------------- spellings of a call
def through_a_file(made: ExportedProgram) -> ExportedProgram:
    """The program as its file gives it."""
    return ExportedProgram(*program_of(packed(made.records, made.state)), backend="reference")


def spelled(a: Any, b: int = 2, *rest: int, j: Any, k: int = 3, **more: int) -> Any:
    return a * b, [x + 1 for x in rest], j - k, dict(more)


A, J = al.ones(2), al.full((2,), 5.0)
NUMBERS = st.sampled_from([2, 3])
Call = tuple[tuple[Any, ...], dict[str, Any]]


@st.composite
def calls(draw: st.DrawFn) -> Call:
    """A call of `spelled`: what it leaves out, passes by position or by name, in some order."""
    rest = draw(st.lists(NUMBERS, max_size=1))
    positions = [A, *([draw(NUMBERS)] if bool(rest) or draw(st.booleans()) else []), *rest]
    names: dict[str, Any] = {"j": J}
    if len(positions) == 1 and draw(st.booleans()):
        names["b"] = draw(NUMBERS)
    if len(positions) == 1 and draw(st.booleans()):
        positions, names["a"] = [], A
    for name in draw(st.lists(st.sampled_from(["k", "p", "q"]), unique=True)):
        names[name] = draw(NUMBERS)
    return tuple(positions), {name: names[name] for name in draw(st.permutations(list(names)))}


def meant(call: Call) -> Any:
    """What the function sees of a call."""
    bound = inspect.signature(spelled).bind(*call[0], **call[1])
    bound.apply_defaults()
    found = bound.arguments
    return [found["rest"], list(found["more"].items()), found["b"], found["k"]]


@pytest.mark.rules("PRG-4")
@settings(max_examples=30)
@example(((A,), {"j": J, "k": 3}), ((A,), {"k": 3, "j": J}))
@example(((A,), {"j": J}), ((A, 2), {"j": J}))
@example(((A, 2), {"j": J}), ((), {"j": J, "a": A}))
@example(((A,), {"j": J, "p": 2, "q": 2}), ((A,), {"j": J, "q": 2, "p": 2}))
@given(calls(), calls())
def test_other_spelling_of_a_call_is_taken_where_eager_cannot_tell(one: Call, other: Call) -> None:
    made = through_a_file(program(spelled, *one[0], **one[1]))
    if meant(one) != meant(other):
        with pytest.raises(ArgumentError):
            made(*other[0], **other[1])
        return
    mine, its = made(*other[0], **other[1]), spelled(*other[0], **other[1])
    assert [each.tolist() for each in (its[0], its[2])] == [mine[0].tolist(), mine[2].tolist()]
    assert its[1] == mine[1]
    assert list(its[3].items()) == list(mine[3].items())


def of_state(layer: Any, x: Any, by: int = 2) -> Any:
    return layer(x) * by


@functools.wraps(of_state)
def seeing(*args: Any, **kwargs: Any) -> Any:
    """It sees how arguments are passed."""
    return of_state(*args, **kwargs) * len(args)


LAYER = al.nn.Linear(2, 2)


@pytest.mark.rules("PRG-4")
def test_parameters_of_modules_are_left_out_and_wrappers_see_the_spelling() -> None:
    made = through_a_file(program(of_state, LAYER, A))
    assert made(x=A, by=2).tolist() == made(A).tolist()
    with pytest.raises(ArgumentError, match="by is 3, expected 2, as it was captured"):
        made(A, by=3)
    with pytest.raises(ArgumentError, match=r"are \(x=_\), expected \(_\)"):
        through_a_file(program(seeing, LAYER, A))(x=A)


@pytest.mark.rules("PRG-4")
def test_parameter_without_gradient_stands_for_a_tensor() -> None:
    parameter = al.nn.Parameter(al.ones(2), requires_grad=False)
    made = program(lambda x: (x, x * 2), A)
    found = made(parameter)
    assert found[0] is parameter
    assert [2.0, 2.0] == found[1].tolist()
    assert [2.0, 2.0] == program(lambda x: x * 2, parameter)(A).tolist()


WEIGHT: Any = al.ones(2, requires_grad=True)
TOTAL, COUNT = al.zeros(2), al.zeros(1)


def trained(x: Any) -> Any:
    (x * WEIGHT).sum().backward()
    TOTAL.add_(x)
    return COUNT.add_(1) * 1


def written(x: Any, y: Any) -> Any:
    return x.add_(y)


def added(x: Any, y: Any) -> Any:
    return x + y


LONG = al.ones(6)
OTHER_CALLS: dict[str, tuple[Callable[[], object], str]] = {
    "no function": (lambda: program(3, A), "export: the function is 3, expected a function"),  # type: ignore[arg-type]
    "memory": (
        lambda: program(written, A, J)(LONG[:2], LONG[1:3]),
        "share is one for x and y, y 4 bytes behind x, expected none",
    ),
    "one tensor": (lambda: program(added, A, J)(A, A), "y is the tensor x, expected a tensor of"),
    "keys": (
        lambda: program(lambda batch: batch["a"], {"a": A, "b": J})({"b": J, "a": A}),
        "are ({'b': _, 'a': _}), expected ({'a': _, 'b': _})\nPass keys of dicts in the same order",
    ),
    "other keys": (
        lambda: program(lambda batch: batch["ab"], {"ab": A})({"ba": A}),
        "are ({'ba': _}), expected ({'ab': _})\n",
    ),
}


@pytest.mark.rules("PRG-4")
@pytest.mark.parametrize("call, words", OTHER_CALLS.values(), ids=OTHER_CALLS)
def test_other_call_is_refused_by_the_names_of_its_arguments(
    call: Callable[[], object], words: str
) -> None:
    with pytest.raises(ArgumentError) as caught:
        call()
    assert words in "\n".join([str(caught.value), *getattr(caught.value, "__notes__", ()), ""])


@pytest.mark.rules("PRG-4")
def test_state_that_is_unlike_is_named_by_its_path() -> None:
    made = program(trained, A)
    made(A)
    with pytest.raises(ArgumentError, match="WEIGHT.grad is something else, expected None"):
        made(A)
    made.state["WEIGHT"].grad = None
    assert [2.0] == made(A).tolist()


@pytest.mark.rules("PRG-3")
def test_all_tensors_are_bound_or_none() -> None:
    made = program(trained, A)
    before = made.state["TOTAL"]
    with pytest.raises(ArgumentError, match=r"state 'COUNT' is f32\[3\], expected f32\[1\]"):
        made.bind({"TOTAL": al.ones(2), "COUNT": al.ones(3)})
    assert made.state["TOTAL"] is before
