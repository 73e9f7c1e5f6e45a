"""`check_backend`: the laws of a backend, which compiles a pure graph to a callable on windows.

B1  it compiles a graph, or refuses it with an error of aotlite's, and does not change it
B2  results are windows of the outputs' geometry, and None for None
B3  values are the reference interpreter's, bit for bit or within the case's tolerance
B4  only the closing copies write inputs
B5  results share memory with inputs and with each other only where they do in the graph
B6  a later call does not change the results of an earlier one
B7  two compilations of one graph compute the same
B8  concurrent calls compute the same
B9  a call's memory is freed after it
B10 an input may start anywhere in its buffer
B11 it refuses the calls that the kernels refuse, with the same error
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import attrs
import numpy as np

from aotlite.backends.lookup import backend_from
from aotlite.backends.protocol import Backend, Window, WindowFunction
from aotlite.ir.errors import AotliteError, ArgumentError, BackendError
from aotlite.ir.graph import Graph, Node
from aotlite.ir.graph.role import IntermediateBase, Output, Part
from aotlite.ir.run.interpreter import ArrayValue
from aotlite.testing.laws.errors import Broken, Checked, broken, running
from aotlite.testing.laws.graphs import runs
from aotlite.testing.laws.graphs.corpus import GraphCase, graphs
from aotlite.testing.laws.graphs.op_graphs import failing_graphs
from aotlite.testing.laws.graphs.passes import cases_of
from aotlite.testing.laws.graphs.runs import (
    Given,
    Ran,
    copied,
    given,
    picture,
    same_results,
    special,
)

__all__ = ["BACKEND_LAWS", "BackendLaw", "check_backend"]

CALLS = 4
"""The number of calls in a row: a callable may change with the number of its calls."""
MARGIN = 16
"""The number of elements before an input in its buffer. It is a multiple of all ratios of item
sizes, so that the input can be viewed in any dtype (OPS-6)."""


@attrs.frozen
class BackendLaw:
    """A named law: `check(backend, case)` raises if it is broken."""

    name: str
    claim: str
    check: Callable[[Backend, GraphCase], None]
    fails: bool = False
    """Whether its cases are graphs that raise when they run."""


def check_backend(
    backend: object, graphs: Iterable[Graph | GraphCase] | None = None, *, tolerance: float = 0.0
) -> Checked:
    """Checks a backend; returns the laws that it keeps. Raises LawError for the first broken one.

    `backend` is what `compile` takes: a name, a `Backend`, or a function from a graph to a function
    of arrays. `graphs` write nothing but the copies that close them; a corpus of forwards,
    backwards and graphs with closing copies without. `graphs_of` gives those of single ops. A graph
    that the backend refuses with an error of aotlite's is left out, and counted.

    A backend that fuses rounds elsewhere than kernels that are called one by one: floats may be off
    the reference's by `tolerance` times the largest of their array, or times 1.

    >>> from aotlite.testing import laws
    >>> print(laws.check_backend("reference"))
    backend 'reference' obeys B1, B2, B3, B4, B5, B6, B7, B8, B9, B10, B11 on 86 cases
    """
    found = backend_from(backend)
    subject = f"backend {found.name!r}"
    cases = _default_cases() if graphs is None else cases_of(graphs)
    cases = tuple([attrs.evolve(case, tolerance=max(case.tolerance, tolerance)) for case in cases])
    refused = [case.name for case in map(copied, cases) if not _obeys(found, subject, case)]
    if len(refused) == len(cases):
        raise ArgumentError(
            f"laws: {subject} refuses all of {len(cases)} graphs, expected it to take one"
        )
    failing = failing_graphs() if graphs is None else ()
    for case in failing:
        for law in BACKEND_LAWS:
            if law.fails:
                with running(law.name, law.claim, f"{subject} on {case.name}", case):
                    law.check(found, case)
    names = tuple(law.name for law in BACKEND_LAWS if failing or not law.fails)
    taken = len(cases) + len(failing) - len(refused)
    return Checked(subject, names, taken, refused=tuple(refused))


def _default_cases() -> tuple[GraphCase, ...]:
    return graphs("forward", "backward", "closing")


def _obeys(backend: Backend, subject: str, case: GraphCase) -> bool:
    """Whether the backend compiles the case; raises LawError if it then breaks a law."""
    where = f"{subject} on {case.name}"
    first, *rest = [law for law in BACKEND_LAWS if not law.fails]
    with running(first.name, first.claim, where, case):
        try:
            first.check(backend, case)
        except AotliteError:
            return False
    for law in rest:
        with running(law.name, law.claim, where, case):
            law.check(backend, case)
    return True


# ------------------------------------------------------------------------------------------ runs
def _called(run: WindowFunction, graph: Graph, inputs: Sequence[ArrayValue]) -> Ran:
    """Calls it once; returns the results as values with the metas of the outputs."""
    windows: list[Window] = [(value.buffer, value.start) for value in inputs]
    results: Any = run(windows)
    if not isinstance(results, (list, tuple)) or len(results) != len(graph.outputs):
        raise broken(f"it gives {results!r}, expected a list of {len(graph.outputs)} results")
    values = [_value(k, r, o) for k, (r, o) in enumerate(zip(results, graph.outputs, strict=True))]
    return Ran(tuple(inputs), tuple(values))


def _value(index: int, result: Any, output: object) -> object:
    if not isinstance(output, Node):
        if result is not None:
            raise broken(f"result {index} is {result!r}, expected None as in the graph")
        return None
    is_window = type(result) is tuple and len(result) == 2 and type(result[1]) is int
    if not is_window:
        raise broken(f"result {index} is {result!r}, expected (buffer, start)")
    return ArrayValue(result[0], output.meta, result[1])  # type: ignore[arg-type]


def _expected(case: GraphCase, inputs: Given, margin: int = 0) -> Ran:
    return runs.run(case.graph, inputs.fresh(margin))


def _off(
    names: Sequence[object], expected: Sequence[object], got: Sequence[object], case: GraphCase
) -> Broken | None:
    """Returns the error for a difference from the reference beyond the tolerance; or None."""
    return same_results(names, expected, got, case.tolerance)


def _fail(found: Broken | None, case: GraphCase, inputs: Given) -> None:
    """Raises an error, if there is one, with the graph and the inputs as notes."""
    if found is not None:
        notes = getattr(found, "__notes__", ())
        raise broken(str(found), *notes, f"the graph:\n{case.graph.code}", f"on {inputs.shown}")


# ------------------------------------------------------------------------------------------ laws
def _takes(backend: Backend, case: GraphCase) -> None:
    before = picture(case.graph)
    run = backend.compile(case.graph)
    if not callable(run):
        raise broken(f"it gives {run!r}, expected a callable")
    if picture(case.graph) != before:
        raise broken("it changes the graph that it is given")


def _gives_windows(backend: Backend, case: GraphCase) -> None:
    run = backend.compile(case.graph)
    for inputs in given(case):
        for index, value in enumerate(_called(run, case.graph, inputs.fresh()).results):
            if isinstance(value, ArrayValue):
                _check_room(index, value)


def _check_room(index: int, value: ArrayValue) -> None:
    meta, buffer = value.meta, value.buffer
    room = getattr(buffer, "nbytes", 0) // meta.dtype.itemsize
    if meta.numel and not 0 <= value.start <= room - meta.span:
        raise broken(
            f"result {index} is {meta} from element {value.start} of {room}, expected a window "
            "inside its buffer"
        )


def _gives_values(backend: Backend, case: GraphCase) -> None:
    run = backend.compile(case.graph)
    for inputs in (*given(case), *special(case)):
        expected = _expected(case, inputs)
        for _ in range(CALLS):
            got = _called(run, case.graph, inputs.fresh())
            _fail(_off(case.graph.output_roles, expected.results, got.results, case), case, inputs)


def _writes_what_the_graph_writes(backend: Backend, case: GraphCase) -> None:
    run = backend.compile(case.graph)
    names = [f"input {node.role} afterwards" for node in case.graph.placeholders]
    for inputs in given(case):
        expected = _expected(case, inputs)
        for _ in range(CALLS):
            got = _called(run, case.graph, inputs.fresh())
            _fail(_off(names, expected.inputs, got.inputs, case), case, inputs)


def _shares_as_the_graph(backend: Backend, case: GraphCase) -> None:
    run = backend.compile(case.graph)
    for inputs in given(case):
        expected = _expected(case, inputs).sharing()
        for _ in range(CALLS):
            got = _called(run, case.graph, inputs.fresh()).sharing()
            for (mine, other), shared in got.items():
                role = case.graph.output_roles[int(mine.split()[1])]
                seen = isinstance(role, (Output, IntermediateBase, Part))
                if seen and shared and not expected[mine, other]:
                    what = f"{mine} ({role}) shares memory with {other}, expected memory of its own"
                    _fail(broken(what), case, inputs)


def _keeps_results_apart(backend: Backend, case: GraphCase) -> None:
    run = backend.compile(case.graph)
    for inputs in given(case):
        for _ in range(CALLS - 1):
            first = _called(run, case.graph, inputs.fresh())
            kept = Ran((), tuple(_copied(value) for value in first.results))
            _called(run, case.graph, _others(case, inputs).fresh())
            names = [f"{role} after another call" for role in case.graph.output_roles]
            _fail(same_results(names, kept.results, first.results), case, inputs)


def _others(case: GraphCase, inputs: Given) -> Given:
    """Inputs of zeros; the same inputs if the graph raises for zeros."""
    with np.errstate(invalid="ignore"):  # of nan and infinities
        zeros = Given(inputs.metas, tuple(a * 0 for a in inputs.arrays))
    return inputs if _error(lambda: _expected(case, zeros)) else zeros


def _copied(value: object) -> object:
    return np.array(value.array) if isinstance(value, ArrayValue) else value


def _compiles_alike(backend: Backend, case: GraphCase) -> None:
    compiled = [backend.compile(case.graph) for _ in range(2)]
    for inputs in given(case):
        first, second = (_called(run, case.graph, inputs.fresh()) for run in compiled)
        _fail(same_results(case.graph.output_roles, first.results, second.results), case, inputs)


def _takes_calls_at_once(backend: Backend, case: GraphCase) -> None:
    run = backend.compile(case.graph)
    every = given(case) * 4
    expected = [_expected(case, inputs) for inputs in every]
    with ThreadPoolExecutor(2) as pool:
        futures = [pool.submit(_called, run, case.graph, inputs.fresh()) for inputs in every]
        found = [future.result() for future in futures]
    for inputs, mine, its in zip(every, expected, found, strict=True):
        names = [f"{role} of calls at once" for role in case.graph.output_roles]
        _fail(_off(names, mine.results, its.results, case), case, inputs)


def _keeps_nothing(backend: Backend, case: GraphCase) -> None:
    run = backend.compile(case.graph)
    for inputs in given(case)[:1]:
        for _ in range(CALLS):
            kept = _buffers_after(run, case, inputs)
            if any(buffer() is not None for buffer in kept):
                gc.collect()  # a cycle may hold it until then
            if any(buffer() is not None for buffer in kept):
                _fail(broken("it keeps memory of a call that is over"), case, inputs)


def _buffers_after(run: WindowFunction, case: GraphCase, inputs: Given) -> list[Any]:
    """Calls it and drops the results; returns weak references to the buffers of the call."""
    ran = _called(run, case.graph, inputs.fresh())
    constants = [id(value) for value in case.graph.constants.values()]
    results = [value for value in ran.results if isinstance(value, ArrayValue)]
    buffers = [value.buffer for value in (*ran.inputs, *results)]
    owners = [b for b in buffers if id(b) not in constants and id(b.base) not in constants]
    return [weakref.ref(buffer) for buffer in owners]


def _takes_windows(backend: Backend, case: GraphCase) -> None:
    run = backend.compile(case.graph)
    for inputs in given(case):
        expected = _expected(case, inputs, MARGIN)
        for _ in range(CALLS):
            got = _called(run, case.graph, inputs.fresh(MARGIN))
            names = [f"{role} of inputs inside of buffers" for role in case.graph.output_roles]
            _fail(_off(names, expected.results, got.results, case), case, inputs)
            whole = [(a.buffer, b.buffer) for a, b in zip(expected.inputs, got.inputs, strict=True)]
            if any(a.tobytes() != b.tobytes() for a, b in whole):
                _fail(broken("memory around an input changed, expected none to"), case, inputs)


def _refuses_what_kernels_refuse(backend: Backend, case: GraphCase) -> None:
    inputs = Given(tuple(n.meta for n in case.graph.placeholders), case.arrays or ())  # type: ignore[misc]
    expected = _error(lambda: _expected(case, inputs))
    try:
        run = backend.compile(case.graph)
    except AotliteError:
        return
    for _ in range(CALLS):
        got = _error(lambda: _called(run, case.graph, inputs.fresh()))
        if type(got) is not type(expected) and not isinstance(got, BackendError):
            said = "gives results" if got is None else f"raises {got!r}"
            _fail(broken(f"it {said}, expected {expected!r}"), case, inputs)


def _error(call: Callable[[], object]) -> Exception | None:
    try:
        call()
    except Broken:
        raise
    except Exception as error:
        return error
    return None


BACKEND_LAWS: tuple[BackendLaw, ...] = (
    BackendLaw("B1", "it compiles or refuses a graph, and does not change it", _takes),
    BackendLaw("B2", "results are windows of the outputs' geometry", _gives_windows),
    BackendLaw("B3", "values are the reference interpreter's", _gives_values),
    BackendLaw("B4", "only the closing copies write inputs", _writes_what_the_graph_writes),
    BackendLaw("B5", "results share memory only where they do in the graph", _shares_as_the_graph),
    BackendLaw("B6", "a later call does not change results", _keeps_results_apart),
    BackendLaw("B7", "two compilations compute the same", _compiles_alike),
    BackendLaw("B8", "concurrent calls compute the same", _takes_calls_at_once),
    BackendLaw("B9", "a call's memory is freed after it", _keeps_nothing),
    BackendLaw("B10", "an input may start anywhere in its buffer", _takes_windows),
    BackendLaw("B11", "it refuses what kernels refuse", _refuses_what_kernels_refuse, fails=True),
)
"""The laws of backends."""
