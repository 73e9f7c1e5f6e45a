"""The effects of a plain and of a compiled call: everything that an adapter can observe.

A program makes new arguments for each call, so that both calls start from equal states. Only
compiled calls are recorded for a witness; plain calls define the expected effects.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import attrs

from aotlite.conformance.adapter import Adapter, Array
from aotlite.conformance.error_source import demand_theirs
from aotlite.conformance.models.scenarios import weights
from aotlite.conformance.rules import expect
from aotlite.conformance.unsupported import Absent
from aotlite.conformance.witnesses.functions import library_of, tried


@attrs.frozen(eq=False)
class CallInputs:
    """The arguments of a call, other arrays that may alias them, and the leaves they depend on."""

    arguments: list[Array]
    others: list[Array] = attrs.field(factory=list)
    leaves: list[Array] = attrs.field(factory=list)


Make = Callable[[Adapter], CallInputs]
Body = Callable[..., Any]


@attrs.frozen
class EffectProgram:
    """A function of an adapter and arrays, and a maker of the arguments of each of its calls."""

    body: Body
    makes: tuple[Make, ...]


def program(body: Body, *makes: Make) -> EffectProgram:
    """Returns the program that calls one function with the arguments of each of `makes`."""
    return EffectProgram(body, makes)


@attrs.frozen(eq=False)
class ObservedCall:
    """One call: its inputs, their versions before the call, and its results or its error."""

    given: CallInputs
    counts: list[Any]
    results: list[Array]
    error: Exception | None

    @property
    def arrays(self) -> dict[str, Array]:
        """Name for people, such as `argument 0` -> array."""
        groups = ("argument", self.given.arguments), ("alias", self.given.others)
        named = {f"{name} {i}": each for name, group in groups for i, each in enumerate(group)}
        return named | {f"result {i}": each for i, each in enumerate(self.results)}


def compare(on: Adapter, case: EffectProgram, facets: Sequence[Facet]) -> None:
    """Calls the program plain and compiled, and compares facets of every call."""
    library = library_of(on)
    compiled: Any = None
    for make in case.makes:
        given = make(library)
        counts = _counts(library, given)
        if compiled is None:
            compiled = on.compile(_define(on, case.body, make(library)))
        result, error = _run(case.body, library, given.arguments)
        plain = ObservedCall(given, counts, _results(result), error)
        _see(on, plain, _call(on, compiled, make(on)), facets)


def _define(on: Adapter, body: Body, given: CallInputs) -> Callable[..., object]:
    """Returns the function, with its lines recorded on a run with distinct arrays."""
    library, arguments = library_of(on), given.arguments
    if len({id(each) for each in arguments}) < len(arguments):
        arguments = [library.clone(each) for each in arguments]
    return tried(on, body, arguments)[0]


def _call(on: Adapter, compiled: object, given: CallInputs) -> ObservedCall:
    counts = _counts(library_of(on), given)
    result, error = _run(lambda on, *arrays: on.call(compiled, list(arrays)), on, given.arguments)
    return ObservedCall(given, counts, _results(result), error)


def _run(body: Body, on: Adapter, arguments: Sequence[Array]) -> tuple[object, Exception | None]:
    try:
        return body(on, *arguments), None
    except Absent:
        raise
    except Exception as error:
        demand_theirs(error)
        return None, error


def _results(result: object) -> list[Array]:
    if result is None:
        return []
    return list(result) if isinstance(result, list | tuple) else [result]


def _see(on: Adapter, plain: ObservedCall, compiled: ObservedCall, facets: Sequence[Facet]) -> None:
    expect(_refusal(compiled), _refusal(plain), "whether the compiled call is refused")
    expect(len(compiled.results), len(plain.results), "the number of results")
    library = library_of(on)
    for facet in facets:
        what = (facet.__doc__ or "").splitlines()[0].rstrip(".").lower()
        caller = on if facet is gradients else library
        expect(*_difference(facet(caller, compiled), facet(library, plain)), what)


def _difference(got: object, expected: Any) -> tuple[object, object]:
    """Returns both values; of two dictionaries, the entries that differ."""
    if not isinstance(got, dict):
        return got, expected
    keys = [key for key in expected if got[key] != expected[key]]
    return {key: got[key] for key in keys}, {key: expected[key] for key in keys}


def _refusal(call: ObservedCall) -> str:
    return "not refused" if call.error is None else "refused"


# --- facets: observable properties of a call

Facet = Callable[[Adapter, ObservedCall], Any]


def values(on: Adapter, call: ObservedCall) -> dict[str, Any]:
    """The values."""
    return {name: on.to_list(each) for name, each in call.arrays.items()}


def identity(on: Adapter, call: ObservedCall) -> list[list[str]]:
    """The groups of arguments and results that are one object."""
    if library_of(on).immutable:
        raise Absent("arrays that can be written")
    return _groups(call.arrays, lambda one, two: one is two)


def shapes(on: Adapter, call: ObservedCall) -> dict[str, object]:
    """The shapes."""
    return {name: on.shape(each) for name, each in call.arrays.items()}


def strides(on: Adapter, call: ObservedCall) -> dict[str, Any]:
    """The strides."""
    return {name: on.strides(each) for name, each in call.arrays.items()}


def histories(on: Adapter, call: ObservedCall) -> dict[str, tuple[bool, bool]]:
    """Whether each array requires a gradient, and whether it is a leaf."""
    arrays = call.arrays.items()
    return {name: (on.requires_grad(each), on.is_leaf(each)) for name, each in arrays}


def counts(on: Adapter, call: ObservedCall) -> list[int]:
    """The increases of the versions of the arguments and their aliases."""
    if not call.counts:
        raise Absent("write_count")
    arrays = [*call.given.arguments, *call.given.others]
    return [on.write_count(a) - before for a, before in zip(arrays, call.counts, strict=True)]


def sharing(on: Adapter, call: ObservedCall) -> dict[str, list[str]]:
    """The arrays that show a write of each array."""
    library = library_of(on)
    seen: dict[str, list[str]] = {}
    for number, (name, written) in enumerate(call.arrays.items()):
        before = values(library, call)
        library.fill_(library.detach(written), 100.0 + number)
        after = values(library, call)
        seen[name] = [each for each in after if after[each] != before[each]]
    return seen


def gradients(on: Adapter, call: ObservedCall) -> list[Any]:
    """The gradients of the leaves."""
    for each in call.results:
        if library_of(on).requires_grad(each):
            given = weights(on.to_list(each))
            on.backward_kept(each, on.from_list(given, "float64"))
    found = [on.grad(leaf) for leaf in call.given.leaves]
    return [None if each is None else on.to_list(each) for each in found]


def _groups(arrays: dict[str, Array], same: Callable[[Array, Array], bool]) -> list[list[str]]:
    groups: list[list[str]] = []
    for name, each in arrays.items():
        known = next((group for group in groups if same(arrays[group[0]], each)), None)
        if known is None:
            groups.append([name])
        else:
            known.append(name)
    return groups


def _counts(on: Adapter, given: CallInputs) -> list[object]:
    try:
        return [on.write_count(a) for a in (*given.arguments, *given.others)]
    except Absent:
        return []
