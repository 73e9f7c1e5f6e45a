"""Programs about aliasing and mutation as plain data, which run on any engine.

    Program(body=(step, ...), results=(value, ...), calls=(call, ...))
    Call(setup=(step, ...), args=(value, ...), grad=True, write=(place, "mul_"))
    Step(op, (argument, ...), no_grad=False)

The same body is called once for each of `calls`, with other arguments, on one function. Each step
gives one value. In a setup, `"$3"` is the value of its step 3. In a body, `"$0"` to `"$n-1"` are
the n arguments and the values of its steps follow; an op that writes gives the object that it
wrote, one with several results a tuple, of which `"$3.1"` is part 1. `results` holds such strings,
numbers and None; the body returns the list of them. `grad=False` is a call under `no_grad`. After
the call and a backward from all results that require grad, `write` writes the result at a place
under `no_grad`.

`op` is a method of tensors that all libraries have (`add_`, `select`, `sum`, ...), or one of

    make(seed, shape, dtype, requires_grad)   a leaf of small whole numbers, none of them 0
    full(shape, number, dtype)                a tensor of one number
    ints(list)                                an int64 tensor
    getitem(x, index), setitem(x, index, value)   index: a list of ints, "1:3", "...", "none", "$k"
    index_put_(x, index, value)               index: a list of "$k" of int64 or bool tensors
    real(x), imag(x)                          the attributes
    view_as_real(x), view_as_complex(x)       functions
    view_dtype(x, dtype), to(x, dtype)        dtypes are names: "float64"
    resize_(x, shape)                         new memory is zeros
    alias(x), hidden_alias(x)                 what a library's table calls so

Everything that depends on the library is in its `Engine`. Arithmetic is on small whole numbers, so
that it is exact. `eval(repr(program), vars(aotlite.testing))` is the program. Spec:
specs/testing.md. Rules: GEN-11, GEN-12, GEN-13.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import attrs

from aotlite.ir.errors import ArgumentError, FormatError
from aotlite.testing.engines import Engine, engine

if TYPE_CHECKING:
    from aotlite.testing.worlds import World

Watch = Callable[["Step", list[Any], Any], None]


def frozen(value: Any) -> Any:
    """A value of programs with tuples for lists."""
    return tuple(map(frozen, value)) if isinstance(value, (list, tuple)) else value


@attrs.frozen(repr=False)
class Step:
    """One op on earlier values."""

    op: str
    args: tuple[Any, ...] = attrs.field(default=(), converter=frozen)
    no_grad: bool = attrs.field(default=False, converter=bool)
    """Whether it runs under `no_grad`."""

    def __repr__(self) -> str:
        more = ", no_grad=True" if self.no_grad else ""
        return f"Step({self.op!r}, {self.args!r}{more})"


def _steps(given: Sequence[Any]) -> tuple[Step, ...]:
    return tuple(each if isinstance(each, Step) else Step(*each) for each in given)


@attrs.frozen(repr=False)
class Call:
    """One call of a program's body, and what happens around it."""

    setup: tuple[Step, ...] = attrs.field(converter=_steps)
    """Makes the arguments."""
    args: tuple[Any, ...] = attrs.field(converter=frozen)
    grad: bool = attrs.field(default=True, kw_only=True)
    """False: the call is under `no_grad`."""
    write: tuple[int, str] | None = attrs.field(default=None, converter=frozen, kw_only=True)
    """The result that is written after the backward, and by which op."""

    def __repr__(self) -> str:
        more = ("" if self.grad else ", grad=False") + (
            f", write={self.write!r}" if self.write else ""
        )
        return f"Call({self.setup!r}, {self.args!r}{more})"


def _calls(given: Sequence[Call]) -> tuple[Call, ...]:
    return tuple(given)


@attrs.frozen(repr=False)
class Program:
    """A function of steps, and calls of it.

    >>> call = Call([["make", [0, [2], "float64", False]]], ["$0"])
    >>> program = Program([["mul_", ["$0", 2]]], ["$1"], [call])
    >>> program.body, program.arity
    ((Step('mul_', ('$0', 2)),), 1)
    >>> program.run()[0].objects  # the result is the argument
    [0, 0]
    """

    body: tuple[Step, ...] = attrs.field(converter=_steps)
    results: tuple[Any, ...] = attrs.field(converter=frozen)
    calls: tuple[Call, ...] = attrs.field(converter=_calls)

    def __repr__(self) -> str:
        return f"Program({self.body!r}, {self.results!r}, {self.calls!r})"

    @property
    def arity(self) -> int:
        """The number of the body's arguments."""
        return len(self.calls[0].args) if self.calls else 0

    def run(self, on: str | Engine = "aotlite", function: Any = None) -> list[World]:
        """What can be observed of each call on an engine, of the body or of `function` instead.

        `function` is called like the body: a compiled form of `function_of(engine)`, say.
        """
        from aotlite.testing.worlds import play_call

        chosen = engine(on)
        function = self.function_of(chosen) if function is None else function
        return [play_call(chosen, self, number, function) for number in range(len(self.calls))]

    def function_of(self, on: str | Engine = "aotlite") -> Callable[..., list[Any]]:
        """The body as a function of an engine's tensors."""
        return body_of(engine(on), self)

    # --- as text that runs
    def to_script(self, *, compile: str | None = None, **options: Any) -> str:
        """A file that calls the function eagerly and compiled, and asserts equal effects.

        `options` are the compiled function's; `compile="module:name"` is another compile function.

        >>> call = Call([["make", [0, [2], "float64", False]]], ["$0"])
        >>> print(Program([["mul_", ["$0", 2]]], ["$1"], [call]).to_script())
        import aotlite as al
        from aotlite.testing import assert_same_effects
        <BLANKLINE>
        <BLANKLINE>
        def inputs():
            x = al.tensor([-3.0, 2.0], dtype=al.float64)
            return x
        <BLANKLINE>
        <BLANKLINE>
        def f(x):
            x.mul_(2)
            return [x]
        <BLANKLINE>
        <BLANKLINE>
        assert_same_effects(f, al.compile(f), inputs)
        <BLANKLINE>
        """
        from aotlite.testing.scripts.files import script_file

        return script_file(self, compile=compile, **options)

    def to_pytest(
        self,
        name: str = "test_compiled_equals_eager",
        *,
        compile: str | None = None,
        **options: Any,
    ) -> str:
        """A file with one test function for pytest, which asserts what the script asserts."""
        from aotlite.testing.scripts.files import pytest_file

        return pytest_file(self, name, compile=compile, **options)

    def to_numpy(self) -> str:
        """A file with the same steps in plain NumPy: views are views, and writes are in place.

        It shows the values and who shares memory. History is a comment there. Raises
        `UnsupportedError`, which names the step, for one that arrays cannot do.
        """
        from aotlite.testing.scripts.others import numpy_file

        return numpy_file(self)

    def to_torch(self, *, compiled: bool = False) -> str:
        """A file with the same steps in PyTorch, `compiled` also by its `aot_function`."""
        from aotlite.testing.scripts.others import torch_file

        return torch_file(self, compiled=compiled)

    def to_json(self) -> str:
        """One line of JSON, which `from_json` reads."""
        return json.dumps(_plain(self), separators=(",", ":"))

    @staticmethod
    def from_json(text: str) -> Program:
        """The program of a line that `to_json` wrote. Raises `FormatError` for anything else."""
        try:
            read = json.loads(text)
            calls = [Call(**call) for call in read["calls"]]
            return Program(read["body"], read["results"], calls)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise FormatError(
                f"Program.from_json: the text is {text[:60]!r}, expected what to_json writes"
            ) from error


def _plain(program: Program) -> dict[str, Any]:
    calls = [
        {"setup": list(map(_row, c.setup)), "args": c.args, "grad": c.grad, "write": c.write}
        for c in program.calls
    ]
    return {"body": list(map(_row, program.body)), "results": program.results, "calls": calls}


def _row(step: Step) -> list[Any]:
    return [step.op, step.args, *([True] if step.no_grad else [])]


# ------------------------------------------------------------------------------------ the running
def run_steps(
    library: Engine, steps: Sequence[Step], values: list[Any], watch: Watch | None = None
) -> None:
    """Runs steps and appends the value of each; `watch(step, args, result)` looks on."""
    for step in steps:
        args = [resolved(value, values) for value in step.args]
        with library.no_grad() if step.no_grad else nullcontext():
            result = library.call(step.op, args)
        values.append(result)
        if watch is not None:
            watch(step, args, result)


def is_name(value: Any) -> bool:
    """Whether an argument is the name of a value: "$3" or "$3.1"."""
    return isinstance(value, str) and value[:1] == "$"


def resolved(value: Any, values: Sequence[Any]) -> Any:
    """An argument with values in place of their names; dtypes and indices stay names."""
    if is_name(value):
        place, _, part = value[1:].partition(".")
        if not place.isdecimal() or int(place) >= len(values):
            raise ArgumentError(
                f"program: a name is {value!r}, expected one of the {len(values)} values before it"
            )
        found = values[int(place)]
        return found[int(part)] if part else found
    if isinstance(value, tuple):
        return tuple(resolved(item, values) for item in value)
    return value


def returned(program: Program, values: Sequence[Any]) -> list[Any]:
    """What the body returns."""
    return [resolved(value, values) for value in program.results]


class _Body:
    """A plain object, into which a capture that searches for what a function reads does not look:
    programs read nothing but their arguments."""

    def __init__(self, library: Engine, program: Program, watch: Watch | None) -> None:
        self.library = library
        self.program = program
        self.watch = watch

    def run(self, args: tuple[Any, ...]) -> list[Any]:
        values = list(args)
        run_steps(self.library, self.program.body, values, self.watch)
        return returned(self.program, values)


def body_of(
    library: Engine, program: Program, watch: Watch | None = None
) -> Callable[..., list[Any]]:
    """The program's function."""
    whole = _Body(library, program, watch)

    def body(*args: Any) -> list[Any]:
        return whole.run(args)

    return body


def setup_of(library: Engine, call: Call) -> tuple[list[Any], list[Any]]:
    """All values of a call's setup, and the arguments among them."""
    values: list[Any] = []
    run_steps(library, call.setup, values)
    return values, [resolved(value, values) for value in call.args]
