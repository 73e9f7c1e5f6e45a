"""`compile` and `CompiledFunction`: the public API.

A compiled function keeps entries, one for each set of guards. An entry is called with flat
arguments, and returns `MISS` if its guards fail: on metas, aliases, Python numbers, grad mode, and
values that the function read outside. If all entries miss, the pipeline compiles another one.
Spec: `specs/pipeline.md`. Rules: GEN-5..GEN-8, GRD-1, GRD-2, GRD-4.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any, overload

from aotlite.artifacts.bundle import SavedEntries
from aotlite.artifacts.lookup import compiler_for
from aotlite.eager.base.modes import STATE, eager_mode, watching
from aotlite.freezing import frozen_function
from aotlite.ir.errors import ArgumentError, UnsupportedError, noted
from aotlite.ir.forks import UNFORKED, lock
from aotlite.ir.graph import Graph, name_from
from aotlite.pipeline import CompiledEntry, Request
from aotlite.pipeline.arguments import (
    FlatArguments,
    call_of,
    flat_results,
    on_leaves,
    results_for_caller,
)
from aotlite.pipeline.options import Options, make_options
from aotlite.pipeline.recompile_limit import (
    Miss,
    RecompileLimit,
    failing_guards,
    misses_of,
    unstable,
)
from aotlite.pipeline.size_regions.choice import symbolic_sizes
from aotlite.pipeline.size_regions.report import EntryReports
from aotlite.pipeline.size_regions.tensor_marks import MARKS, agreeing, may_be_marked, replaced
from aotlite.python_export import PythonFiles
from aotlite.stages.records.guards.access_words import name_of
from aotlite.stages.s1_capture import capture as capture_stage
from aotlite.stages.s10_runtime.guards.writer import MISS


class CompiledFunction(EntryReports, PythonFiles, SavedEntries):
    """A callable with the results, gradients, side effects and errors of the function it wraps.
    `entries` are the compiled variants; `forward_graph`, `backward_graph` and `source` are those of
    the newest."""

    def __init__(self, function: Callable[..., Any], options: Options) -> None:
        _check_function(function)
        self.function = function
        self.options = options
        self.entries: list[CompiledEntry] = []
        self._runs: tuple[Callable[[object], object], ...] = ()
        """The functions of the entries whose leaves are the positional arguments themselves."""
        self._forms: dict[Any, list[CompiledEntry]] = {}
        self._rules: dict[object, Any] = {}  # what rules of ops need of sizes: `RuleResults`
        self._lock, self.recompiles = lock(), []
        self.limit = RecompileLimit(options.recompile_limit, options.recompile_limit_is_error)
        self._name = name_from(name_of(function))
        if not isinstance(function, functools.partial) and hasattr(function, "__name__"):
            functools.update_wrapper(self, function)

    def __call__(self, *args: object, **kwargs: object) -> Any:
        if not kwargs and not (MARKS and may_be_marked(args)):
            for run in self._runs:
                result = run(args)
                if result is not MISS:
                    return result
        return self._call_flattened(args, kwargs)

    def _call_flattened(self, args: tuple[object, ...], kwargs: dict[str, object]) -> object:
        """Flattens the arguments and tries the entries of this form; compiles if all miss."""
        if STATE.recorder is not None or eager_mode():
            # Inside another capture it is part of that one. These modes are eager (JNT-8, DSP-6).
            return self.function(*args, **kwargs)
        call = call_of(args, kwargs)
        result = self._try(call)
        if result is MISS:
            if (entry := self._add(call)) is None:
                return self.function(*call.args, **call.kwargs)
            if (result := self._run(entry, call)) is MISS:
                self._remove(entry, call)
                raise unstable(self.function, self._name, entry, call)
        return result

    def _try(self, call: FlatArguments) -> object:
        for entry in self._of_form(call) if MARKS else self._forms.get(call.key, ()):
            result = self._run(entry, call)
            if result is not MISS:
                return result
        return MISS

    def _run(self, entry: CompiledEntry, call: FlatArguments) -> object:
        """The results of an entry for a call; MISS if its guards fail."""
        result, kinds = entry.guarded.call(call.leaves), entry.containers.numpy_results
        return result if result is MISS else results_for_caller(result, call, kinds)

    # --- entries
    def _valid(self, call: FlatArguments) -> CompiledEntry | None:
        """The entry whose guards pass for a call; nothing runs."""
        found = self._of_form(call) if MARKS else self._forms.get(call.key, ())
        return next((c for c in found if c.guarded.why_not(call.leaves) is None), None)

    def _of_form(self, call: FlatArguments) -> Sequence[CompiledEntry]:
        return agreeing(self._forms.get(call.key, ()), call, self.options.num_params_buffers)

    def _outdated(self, call: FlatArguments) -> list[CompiledEntry]:
        return replaced(self._forms.get(call.key, ()), call, self.options.num_params_buffers)

    def _misses(self, call: FlatArguments) -> list[Miss]:
        return misses_of(self.function, self.entries, self._forms, call, self.options)

    def _add(self, call: FlatArguments) -> CompiledEntry | None:
        """A new entry, or one that another thread made; None at the recompile limit (GRD-4)."""
        if self.limit.is_silent(len(self.entries)):
            return None
        with self._lock:
            made_meanwhile = self._valid(call)
            if made_meanwhile is not None:
                return made_meanwhile
            if len(self.entries) - (len(self._outdated(call)) if MARKS else 0) < self.limit.most:
                return self._new(call)
            misses = self._misses(call)
        what = f"compile: {self._name} has {len(misses)} entries and none is valid for this call"
        self.limit.reached(what, misses, failing_guards(self.function, misses, call.leaves))
        return None

    def _new(self, call: FlatArguments) -> CompiledEntry:
        reasons = self._misses(call) if self.entries else []
        entry = self._compile(call)
        for each in self._outdated(call) if MARKS else ():
            self._remove(each, call)
        self.note_compilation(entry.number, reasons)
        with UNFORKED:
            self.entries.append(entry)
            self._forms.setdefault(call.key, []).append(entry)
            if call.is_flat and self.options.fast_paths:
                self._runs = (*self._runs, entry.guarded.call)
        return entry

    def _remove(self, entry: CompiledEntry, call: FlatArguments) -> None:
        of_form = self._forms[call.key]
        with self._lock, UNFORKED:
            self.entries.remove(entry)
            of_form.remove(entry)
            self._runs = tuple(run for run in self._runs if run is not entry.guarded.call)

    def _compile(self, call: FlatArguments) -> CompiledEntry:
        function, made = self.function, self._forms.get(call.key, ())
        sizes = symbolic_sizes(function, call, made, self.options, self._rules, why := list[str]())
        given = call.leaves, call.tensors(), flat_results, self._name, sizes, why
        make = compiler_for(self.options, call.form, self.bundle)
        return make(Request(function, on_leaves(function, call, writes=True), *given), self.options)

    def prepare(self, *args: object, **kwargs: object) -> None:
        """Compiles for arguments like these without running, within `recompile_limit`."""
        call = call_of(args, kwargs)
        with watching(anomaly=False, modes=()):  # in which no entry is valid
            if self._valid(call) is None:
                entry = self._add(call)
                if entry is not None and entry.guarded.why_not(call.leaves) is not None:
                    self._remove(entry, call)
                    raise unstable(self.function, self._name, entry, call)

    def __get__(self, instance: object, owner: object = None) -> Any:
        return self if instance is None else functools.partial(self, instance)

    def __repr__(self) -> str:
        return f"<compiled {self._name}: {len(self.entries)} entries>"


def _check_function(function: object) -> None:
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
    fn: None = None, **options: object
) -> Callable[[Callable[..., Any]], CompiledFunction]: ...
@overload
def compile(fn: Callable[..., Any], **options: Any) -> CompiledFunction: ...
def compile(fn: Callable[..., object] | None = None, **options: Any) -> Any:
    """A compiled `fn`, with the same values, gradients, mutations, aliases and errors.

    Options: `backend` ('auto', the default: C where a compiler works, else NumPy; 'cpu', 'loops',
    'reference', a Backend, or a function graph -> (arrays -> arrays)), `wait` (False: calls run on
    NumPy until the C compiler is done), `partition` ('default', 'min_cut', or a function graph ->
    Partition), `verify` (False, True: every stage's graph is also run and compared), `passes`
    (functions Graph -> Graph), `stages` (replaces a stage by name), `dump` (a folder for one file a
    stage), `dynamic` (None: changing sizes are symbols; True: all; False: none), `dynamic_shapes`
    (a `Dim` by dimension, by parameter), `freezing` (True: as `freeze`), `recompile_limit` (32: all
    further calls run eagerly); `aotlite.pipeline.options` has the others. Usable as a decorator.

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
    if "freezing" in options:
        return frozen_function(CompiledFunction, fn, **options)
    return CompiledFunction(fn, make_options(**options))


def capture(fn: Callable[..., object]) -> Callable[..., Graph]:
    """A function that captures `fn` on its arguments, and returns the imperative graph.

    >>> import aotlite as al
    >>> graph = al.capture(lambda x: x.t().mul_(2))(al.ones(2, 3))
    >>> [node.target.name for node in graph.calls]
    ['t', 'mul_']
    """
    _check_function(fn)

    def on(*args: object, **kwargs: object) -> Graph:
        call = call_of(args, kwargs)
        name = name_from(getattr(fn, "__name__", "graph").strip("<>"))
        run = on_leaves(fn, call, writes=True)
        captured = capture_stage(fn, run, call.leaves, call.tensors(), flat_results, name)
        captured.recorder.close()
        return captured.graph

    return on
