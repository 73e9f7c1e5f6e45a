"""Assertions that a compiled function has the effects of eager.

Place: scripts, laws, relations and the pytest plugin raise and catch its errors. It compares
observations; `observe` decides which differences are allowed. Rules: GEN-1, GEN-2, GEN-11.
Spec: specs/testing.md.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import attrs
import optree

from aotlite.ir.errors import ArgumentError
from aotlite.testing.compiled import Compile, differences_of, kind_of
from aotlite.testing.engines import Engine, engine
from aotlite.testing.engines.base import SPECIAL
from aotlite.testing.observe.differences import differences
from aotlite.testing.observe.observation import Observation
from aotlite.testing.observe.observe_call import Setting, observe
from aotlite.testing.programs.program import Program
from aotlite.testing.programs.steps import is_name
from aotlite.testing.shrinking import shrunk


class ProgramError(AssertionError):
    """A check that failed on a program, which the error carries.

    The pytest plugin shrinks the program of the last such error of a test, and stores its script.
    """

    def __init__(
        self,
        message: str,
        program: Program | None = None,
        check: Callable[[Program], Sequence[str]] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(message)
        self.program = program
        """The program; None if the check was of functions."""
        self.check = check
        """Program -> the differences, one line each; a smaller program must show the same kind."""
        self.options = options
        """The arguments of `Program.to_script`."""

    def smallest(self, seconds: float | None = None) -> Program | None:
        """A smaller program with the same kind of difference."""
        program, check = self.program, self.check
        if program is None or check is None:
            return program
        wanted = kind_of(check(program))
        return shrunk(program, lambda each: kind_of(check(each)) == wanted, seconds=seconds)


class Difference(ProgramError):
    """Two functions that do not have the same effects."""

    found: Sequence[str] = ()
    """The differences, one line each."""


def _as_tuple(values: Iterable[object]) -> tuple[object, ...]:
    return tuple(values)


@attrs.frozen
class Inputs:
    """The arguments of a call, and other tensors that are observed after it.

    >>> import aotlite as al
    >>> leaf = al.ones(3, requires_grad=True)
    >>> Inputs((leaf * 1,), also=[leaf]).also
    (tensor([1., 1., 1.], requires_grad=True),)
    """

    args: tuple[Any, ...] = attrs.field(converter=_as_tuple)
    also: tuple[object, ...] = attrs.field(default=(), converter=_as_tuple)


# ------------------------------------------------------------------------------------- functions
def assert_same_effects(
    eager: Callable[..., object],
    compiled: Callable[..., object],
    inputs: Callable[[], object],
    *,
    on: str | Engine = "aotlite",
    **after: object,
) -> None:
    """Raises `Difference` if a user can tell a call of `compiled` from a call of `eager`.

    `inputs()` makes new arguments for each of the two: a tuple, `Inputs` to observe further
    tensors, or one argument. Compared are values, gradients, mutations, aliasing, identity,
    strides, versions, histories and errors, after the call and a backward from all results that
    require grad. `grad=False` calls under `no_grad`; `write=(0, "mul_")` then writes result 0 by
    `mul_(2)`, and compares again.

    >>> import aotlite as al
    >>> def f(x):
    ...     return x[1:].mul_(2)
    >>> assert_same_effects(f, al.compile(f), lambda: al.ones(3))
    >>> try:
    ...     assert_same_effects(f, lambda x: f(x.mul_(2)), lambda: al.ones(2))
    ... except Difference as error:
    ...     print(error.found[1])
    values of input 0 after the call: [2.0, 4.0], eager [1.0, 2.0]
    """
    __tracebackhide__ = True
    library = engine(on)
    mine, its = (_world_of(library, each, inputs, after) for each in (compiled, eager))
    found = differences(mine, its)
    if found:
        again = _world_of(library, eager, inputs, after)
        lines = [*found, *_unsteady(its, again)]
        raise _difference("assert_same_effects", [_named(line, its) for line in lines])


def _unsteady(once: Observation, again: Observation) -> list[str]:
    """Returns the message if two eager runs differ: the program is nondeterministic."""
    if once.error is not None and type(once.error) is type(again.error):
        return []
    found = differences(*(attrs.evolve(each, untouched=True) for each in (once, again)))
    if not found:
        return []
    first = found[0].replace(", eager ", ", then ")
    return [f"nondeterministic: eager, or inputs(), does not give the same twice: {first}"]


def _world_of(
    library: Engine,
    function: Callable[..., Any],
    inputs: Callable[[], object],
    after: dict[str, Any],
) -> Observation:
    given = _given(inputs())
    wrong = sorted(set(after) - {"grad", "write"})
    if wrong:
        raise ArgumentError(
            f"assert_same_effects: an argument is {wrong[0]!r}, expected grad, write or on"
        )
    setting = Setting(_tensors(library, [given.args, given.also]), given.args, **after)

    def body(*args: Any) -> list[Any]:
        leaves, structure = optree.tree_flatten(function(*args), none_is_leaf=True)
        # The structure comes last, as a plain result, so that the indices of results stay.
        return [*leaves, str(structure)]

    return observe(library, setting, body)


def _given(made: object) -> Inputs:
    if isinstance(made, Inputs):
        return made
    return Inputs(made if isinstance(made, tuple) else (made,))


def _tensors(library: Engine, tree: Any) -> list[Any]:
    """The different tensors of a tree."""
    leaves: list[Any] = optree.tree_leaves(tree, none_is_leaf=True)
    found = {id(leaf): leaf for leaf in leaves if isinstance(leaf, library.tensor_type)}
    return list(found.values())


def _named(line: str, its: Observation) -> str:
    """A line about "object 3" with the name from the call: "input 1", "result 0".

    Inputs are counted over the tensors of the arguments, then the further ones.
    """
    words = {number: f"input {number}" for number in range(its.given)}
    for place, number in enumerate(its.objects[its.given :]):
        words.setdefault(number, f"result {place}")
    return re.sub(r"object (\d+)", lambda found: words[int(found[1])], line)


def _difference(where: str, found: Sequence[str]) -> Difference:
    head = f"{where}: compiled differs from eager, expected the same effects"
    error = Difference("\n".join([head, *(f"  {line}" for line in found)]))
    error.found = tuple(found)
    return error


# -------------------------------------------------------------------------------------- programs
def check_program(
    program: Program,
    *,
    on: str | Engine = "aotlite",
    compile: Compile | None = None,
    **options: object,
) -> None:
    """Raises `Difference`, with the program, unless compiled calls have the effects of eager calls.

    All calls go to one function, made by `compile(body, **options)`, by default `aotlite.compile`.
    A call that is refused before any effect is no difference (GEN-2). *Err* `ArgumentError` for a
    body with an unknown op or an unknown name.

    >>> from aotlite.testing import Call, Program
    >>> call = Call([["make", [0, [3], "float64", False]]], ["$0"])
    >>> check_program(Program([["mul_", ["$0", 2]]], ["$1"], [call]), verify=2)
    """
    __tracebackhide__ = True
    _expect_well_formed(program, engine(on))

    def check(each: Program) -> list[str]:
        return differences_of(each, on=on, compile=compile, **options)

    found = check(program)
    if found:
        error = _difference("check_program", found)
        error.program, error.check, error.options = program, check, options
        if compile is not None:
            error.options = {"compile": place_of(compile), **options}
        raise error


def _expect_well_formed(program: Program, library: Engine) -> None:
    """Raises `ArgumentError` for a body that always fails: both sides would raise the same error,
    without a difference."""
    for step in program.body if type(library).call is Engine.call else ():
        if step.op not in SPECIAL and not hasattr(library.tensor_type, step.op):
            raise ArgumentError(
                f"check_program: a step is {step.op!r}, expected an op that {library.name} has"
            )
    for call in program.calls:
        for place, step in enumerate(program.body):
            _expect_names(step.args, len(call.args) + place)
        _expect_names(program.results, len(call.args) + len(program.body))


def _expect_names(values: Iterable[Any], known: int) -> None:
    for value in values:
        if isinstance(value, tuple):
            _expect_names(value, known)
        elif is_name(value) and int(value[1:].partition(".")[0]) >= known:
            raise ArgumentError(
                f"check_program: a name is {value!r}, expected one of the {known} values before it"
            )


def place_of(function: object) -> str:
    """Returns the import path of a function: "module:name"."""
    kind = function if hasattr(function, "__qualname__") else type(function)
    return f"{kind.__module__}:{kind.__qualname__}"
