"""Compiled functions: outside variables, side effects on Python objects, donated memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aotlite.conformance.adapter import Adapter, Array
from aotlite.conformance.models.compiled_functions import new
from aotlite.conformance.rules import attempt, expect, rule
from aotlite.conformance.witnesses.functions import defined, library_of, say

# --- variables


@rule("CMP-2", "an outside array is written at every call", (1, 2))
def closure_written(on: Adapter, case: int) -> None:
    """Each call of a function that writes an outside array writes it."""
    library = library_of(on)
    kept, a = new(on, (2,), 10.0), new(on)

    def function(x: Array) -> Any:
        return library.add_(kept, x)

    say(on, "def function(x):\n    {}.add_(x)", kept, function=function)
    compiled = on.compile(function)
    for _ in range(case):
        on.call(compiled, [a])
    expected = [10.0 + case, 11.0 + 2.0 * case]
    expect(on.to_list(kept), expected, f"the array from outside after {case} calls")


Outside = dict[str, Any]


@rule("CMP-3", "a rebound outside array is read, or refused", ("variable", "list", "dict"))
def closure_rebound(on: Adapter, case: str) -> None:
    """An outside variable, list item or dict item is looked up at every call."""
    library = library_of(on)
    variable, second, a = new(on, (1,), 10.0), new(on, (1,), 20.0), new(on, (1,))
    listed, mapped = [variable], {"key": variable}
    functions: Outside = {
        "variable": lambda x: library.add(x, variable),
        "list": lambda x: library.add(x, listed[0]),
        "dict": lambda x: library.add(x, mapped["key"]),
    }
    _rebinding(on, case, functions[case], variable)
    compiled = on.compile(functions[case])
    expect(on.to_list(on.call(compiled, [a])), [11.0], "the first result")
    variable = listed[0] = mapped["key"] = second
    say(on, f"{_PLACES[case]} = {{}}", second)
    made: list[Array] = []
    if attempt(lambda: made.append(on.call(compiled, [a]))) is None:
        expect(on.to_list(made[0]), [21.0], "the result with another array outside")


_PLACES = {"variable": "v", "list": "v[0]", "dict": "v['key']", "attribute": "v.it"}
_MADE = {"variable": "{}", "list": "[{}]", "dict": "dict(key={})", "attribute": "Object(it={})"}


def _rebinding(on: Adapter, case: str, function: Callable[..., object], value: object) -> None:
    """Adds the lines to the witness that define a function of an outside value."""
    say(on, f"v = {_MADE[case]}\ndef function(x):\n    return x + {_PLACES[case]}", value,
        function=function)  # fmt: skip


@rule("CMP-4", "a rebound outside number is read, or refused", ("variable", "list", "dict"))
def number_rebound(on: Adapter, case: str) -> None:
    """An outside number, in a variable, list or dict, is looked up at every call."""
    library = library_of(on)
    a = new(on, (1,))
    variable = 2.0
    listed, mapped = [variable], {"key": variable}
    functions: Outside = {
        "variable": lambda x: library.add(x, variable),
        "list": lambda x: library.add(x, listed[0]),
        "dict": lambda x: library.add(x, mapped["key"]),
    }
    _rebinding(on, case, functions[case], variable)
    compiled = on.compile(functions[case])
    expect(on.to_list(on.call(compiled, [a])), [3.0], "the first result")
    variable = listed[0] = mapped["key"] = 3.0
    say(on, f"{_PLACES[case]} = 3.0")
    made: list[Array] = []
    if attempt(lambda: made.append(on.call(compiled, [a]))) is None:
        expect(on.to_list(made[0]), [4.0], "the result with another number outside")


class Holder:
    """An object with an attribute, of a class that no library knows."""

    it: float = 2.0


@rule("CMP-4b", "an object's attribute is looked up at every call", ("attribute",), choice=True)
def attribute_rebound(on: Adapter, case: str) -> None:
    """The object is of a class that the library does not know. Many libraries document a no."""
    library, holder, a = library_of(on), Holder(), new(on, (1,))

    def function(x: Array) -> Any:
        return library.add(x, holder.it)

    _rebinding(on, case, function, holder.it)
    compiled = on.compile(function)
    on.call(compiled, [a])
    holder.it = 3.0
    say(on, "v.it = 3.0")
    result = on.to_list(on.call(compiled, [a]))
    expect(result, [4.0], "the result with another number in the object")


def _calls_seen(on: Adapter, calls: int) -> int:
    """Returns how often the Python code of a compiled function runs in `calls` calls."""
    library, seen, a = library_of(on), [], new(on, (1,))

    def function(x: Array) -> Any:
        seen.append(1)
        return library.mul(x, 2.0)

    lines = "seen = []\ndef function(x):\n    seen.append(1)\n    return x * 2.0"
    say(on, lines, function=function)
    compiled = on.compile(function)
    for _ in range(calls):
        on.call(compiled, [a])
    return len(seen)


@rule("CMP-5a", "Python side effects happen at every call", (1, 2, 3), choice=True)
def effects_each_call(on: Adapter, case: int) -> None:
    """Each compiled call repeats the side effects on Python objects, such as `list.append`."""
    expect(_calls_seen(on, case), case, f"the length of `seen` after {case} calls")


@rule("CMP-5b", "Python side effects happen once", (1, 2, 3), choice=True)
def effects_once(on: Adapter, case: int) -> None:
    """The Python code runs when the function is compiled, and in no later call."""
    expect(_calls_seen(on, case), 1, f"the length of `seen` after {case} calls")


@rule("CMP-6", "an argument can receive the result", ((1,), (2,), (2, 2), (0,)))
def out_argument(on: Adapter, case: tuple[int, ...]) -> None:
    """A function that copies its result into an argument and returns it writes that memory."""
    a, out = new(on, case), new(on, case, 50.0)

    def body(on: Adapter, a: Array, out: Array) -> Any:
        return on.copy_(out, on.mul(a, 2.0))

    function, _ = defined(on, body, [a, on.clone(out)])
    result = on.call(on.compile(function), [a, out])
    expect(on.to_list(out), on.to_list(on.mul(a, 2.0)), "the argument that receives the result")
    on.fill_(out, 7.0)
    expect(on.to_list(result), on.to_list(out), "the result after a write of that argument")


@rule("CMP-7", "an argument that is only read keeps its values", (1, 2, 0))
def arguments_kept(on: Adapter, case: int) -> None:
    """A compiled call changes no argument that the function does not write."""
    a, b = new(on, (case,)), new(on, (case,), 10.0)
    function, _ = defined(on, lambda on, a, b: on.add(on.mul(a, 2.0), b), [a, b])
    before = on.to_list(a), on.to_list(b)
    on.call(on.compile(function), [a, b])
    expect((on.to_list(a), on.to_list(b)), before, "the arguments after the call")


# --- identity


@rule("CMP-8", "a returned argument is the same object (`is`)", (1, 2, 0), choice=True)
def argument_identity(on: Adapter, case: int) -> None:
    """META-14, tested with immutable arrays too."""
    a = new(on, (case,))
    function, _ = defined(on, lambda on, a: a, [a])
    result = on.call(on.compile(function), [a])
    expect(result is a, True, "whether the result is the argument")


@rule("CMP-9", "a result returned twice is one object (`is`)", (1, 2, 0), choice=True)
def result_identity(on: Adapter, case: int) -> None:
    """META-13b, tested with immutable arrays too."""
    a = new(on, (case,))
    function, _ = defined(on, lambda on, a: (y := on.mul(a, 2.0), y), [a])
    first, second = on.call(on.compile(function), [a])
    expect(first is second, True, "whether both results are one object")


# --- donated memory


@rule("DON-1", "a donated argument is deleted, or unchanged", (1, 2))
def donated(on: Adapter, case: int) -> None:
    """The result is right; a later read of the argument is refused, or gives its values."""
    a = new(on, (case,))
    function, result = defined(on, lambda on, a: on.mul(a, 2.0), [a])
    expected = on.to_list(result)
    given = on.to_list(a)
    made = on.call(on.compile_donating(function), [a])
    expect(on.to_list(made), expected, "the result")
    read: list[Any] = []
    if attempt(lambda: read.append(on.to_list(a))) is None:
        expect(read, [given], "the donated argument")


@rule("DON-2", "an array that is donated and also another argument: refused or right", (1, 2))
def donated_twice(on: Adapter, case: int) -> None:
    """With one array as the donated and as the other argument, the call is refused or right."""
    a = new(on, (case,))
    function, result = defined(on, lambda on, a, b: on.add(on.mul(a, 2.0), b), [a, a])
    expected = on.to_list(result)
    compiled = on.compile_donating(function)
    made: list[Array] = []
    if attempt(lambda: made.append(on.call(compiled, [a, a]))) is None:
        expect(on.to_list(made[0]), expected, "the result")


@rule("DON-3", "a copy outlives a donated array", ("clone", "to_numpy"))
def copies_survive(on: Adapter, case: str) -> None:
    """A copy made before the donation, also by `to_numpy`, keeps its values."""
    a = new(on)
    lent = on.clone(a) if case == "clone" else on.to_numpy(a)
    function, _ = defined(on, lambda on, a: on.mul(a, 2.0), [a])
    on.call(on.compile_donating(function), [a])
    found = on.to_list(lent) if case == "clone" else lent.tolist()
    expect(found, [1.0, 2.0], f"the result of {case} after the donation")
