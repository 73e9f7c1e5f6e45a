"""`compile` and `CompiledFunction`: the face that users meet.

A compiled function keeps entries, each valid where its guards hold: the key of the call (arguments'
metadata, alias pattern, numbers, grad mode) and what was read outside (hidden inputs, attributes).
Spec: `specs/pipeline.md`. Rules: GEN-5..GEN-8, GRD-1, GRD-2.
"""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable
from typing import Any, overload

import attrs
import optree

from aotlite.calls import (
    Call,
    call_of,
    guards_hold,
    refuse_foreign_overlap,
    results_for_caller,
    what_changed,
)
from aotlite.eager.state import STATE
from aotlite.ir.errors import ArgumentError, UnsupportedError, noted
from aotlite.ir.graph import Graph
from aotlite.options import Options, make_options
from aotlite.pipeline import Compiled, Request, compile_once
from aotlite.stages.facts import FunctionMeta, Partition


@attrs.frozen(eq=False)
class Entry:
    """A compiled variant with what its reuse checks, and the form of its results."""

    compiled: Compiled
    guard: Any
    result_spec: Any


class CompiledFunction:
    """A function that behaves like the one it was made of, only faster.

    `entries` are the variants compiled so far; `forward_graph` and `backward_graph` those of the
    newest.
    """

    def __init__(self, function: Callable[..., Any], options: Options) -> None:
        _check_function(function)
        self.function = function
        self.options = options
        self.entries: list[Entry] = []
        self._table: dict[Any, list[Entry]] = {}
        self._lock = threading.RLock()
        self._name = getattr(function, "__name__", type(function).__name__)
        if not isinstance(function, functools.partial) and hasattr(function, "__name__"):
            functools.update_wrapper(self, function)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if STATE.recorder is not None:  # inside another capture: part of that one
            return self.function(*args, **kwargs)
        call = call_of(args, kwargs)
        entry, tensors = self._entry(call)
        flat = entry.compiled.entry(tensors, call.leaves)
        return optree.tree_unflatten(entry.result_spec, results_for_caller(flat, call))

    def _entry(self, call: Call) -> tuple[Entry, Any]:
        found = self._find(call)
        if found is None:
            with self._lock:
                found = self._find(call)
                if found is None:
                    entry = self._compile(call)
                    tensors = guards_hold(entry.guard, call)
                    if tensors is None:
                        raise self._unstable(entry, call)
                    self._table.setdefault(call.key, []).append(entry)
                    self.entries.append(entry)
                    found = entry, tensors
        return found

    def _unstable(self, entry: Entry, call: Call) -> Exception:
        place = what_changed(entry.guard, call)
        return noted(
            UnsupportedError(
                f"compile: {self._name} changed {place} while it was captured, expected a function "
                "that leaves in place what it can read"
            ),
            "Every call would compile again. Keep what changes in tensors written in place.",
        )

    def _find(self, call: Call) -> tuple[Entry, Any] | None:
        for entry in self._table.get(call.key, ()):
            tensors = guards_hold(entry.guard, call)
            if tensors is not None:
                return entry, tensors
        return None

    def _compile(self, call: Call) -> Entry:
        spec: list[Any] = []

        def flatten(result: Any) -> list[Any]:
            leaves, tree = optree.tree_flatten(result, none_is_leaf=True)
            spec.append(tree)
            return leaves

        def run(leaves: list[Any]) -> Any:
            args, kwargs = optree.tree_unflatten(call.spec, leaves)
            return self.function(*args, **kwargs)

        request = Request(self.function, run, call.leaves, call.tensors, flatten, self._name)
        compiled = compile_once(request, self.options)
        refuse_foreign_overlap(call, compiled)
        guard = call.guard_of(compiled)
        # What an entry keeps of its first call is what it checks: no tensor stays alive by it.
        return Entry(attrs.evolve(compiled, hidden=()), guard, spec[0])

    def prepare(self, *args: Any, **kwargs: Any) -> None:
        """Compiles for arguments like these, if no entry is valid for them, and runs nothing."""
        self._entry(call_of(args, kwargs))

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else functools.partial(self, instance)

    @property
    def forward_graph(self) -> Graph:
        """The forward graph of the newest entry. Raises ArgumentError before the first call."""
        return self._newest().partition.forward

    @property
    def backward_graph(self) -> Graph | None:
        """The backward graph of the newest entry; None where nothing is differentiable."""
        return self._newest().partition.backward

    @property
    def partition(self) -> Partition:
        """Both graphs of the newest entry, and what is saved between them."""
        return self._newest().partition

    @property
    def meta(self) -> FunctionMeta:
        """The metadata of the newest entry."""
        return self._newest().meta

    def _newest(self) -> Compiled:
        if not self.entries:
            raise ArgumentError(f"compile: {self._name} has no entry yet, expected a call first")
        return self.entries[-1].compiled

    def __repr__(self) -> str:
        return f"<compiled {self._name}: {len(self.entries)} entries>"


def _check_function(function: Any) -> None:
    if not callable(function):
        raise ArgumentError(f"compile: argument 'fn' is {function!r}, expected a function")
    kinds = {
        "an async function": inspect.iscoroutinefunction,
        "a generator function": inspect.isgeneratorfunction,
        "an async generator function": inspect.isasyncgenfunction,
    }
    own: list[Any] = [function, getattr(function, "forward", None)]
    bodies = [*own, vars(type(function)).get("__call__")]
    for kind, test in kinds.items():
        if any(test(body) for body in bodies):
            raise noted(
                UnsupportedError(
                    f"compile: {getattr(function, '__name__', function)} is {kind}, expected a "
                    "function that runs from call to return"
                ),
                "Compile the function that computes, and call it from the coroutine or generator.",
            )


@overload
def compile(
    fn: None = None, **options: Any
) -> Callable[[Callable[..., Any]], CompiledFunction]: ...
@overload
def compile(fn: Callable[..., Any], **options: Any) -> CompiledFunction: ...
def compile(fn: Callable[..., Any] | None = None, **options: Any) -> Any:
    """A compiled form of `fn`: same values, gradients, writes, aliases and errors.

    Options: `backend` ('reference', a Backend, or a function graph -> (arrays -> arrays)),
    `partition` (a function graph -> Partition), `verify` (False, True: every stage's graph is also
    run and
    compared), `passes` (functions Graph -> Graph), `stages` (replaces a stage by name), `dump` (a
    folder for one file a stage). Usable as a decorator.

    >>> import aotlite as al
    >>> @al.compile
    ... def double(x):
    ...     return x.mul_(2).sum()
    >>> x = al.ones(3)
    >>> double(x).item(), x.tolist()
    (6.0, [2.0, 2.0, 2.0])
    """
    if fn is None:
        return functools.partial(compile, **options)
    return CompiledFunction(fn, make_options(**options))


def capture(fn: Callable[..., Any]) -> Callable[..., Graph]:
    """A function that captures `fn` on its arguments: the imperative graph of what it runs.

    >>> import aotlite as al
    >>> graph = al.capture(lambda x: x.t().mul_(2))(al.ones(2, 3))
    >>> [node.target.name for node in graph.calls]
    ['t', 'mul_']
    """
    _check_function(fn)

    def on(*args: Any, **kwargs: Any) -> Graph:
        from aotlite.stages.s1_capture import capture as capture_stage

        call = call_of(args, kwargs)

        def run(leaves: list[Any]) -> Any:
            given, named = optree.tree_unflatten(call.spec, leaves)
            return fn(*given, **named)

        def flatten(result: Any) -> list[Any]:
            return optree.tree_leaves(result, none_is_leaf=True)

        name = getattr(fn, "__name__", "graph").strip("<>")
        captured = capture_stage(fn, run, call.leaves, call.tensors, flatten, name)
        captured.recorder.close()
        return captured.graph

    return on
