"""`python_text`: a program as one Python file that needs NumPy alone.

    kernels          kernels as lines of NumPy
    view_text        views as expressions
    file_functions   functions that files hold
    file_parts       what the functions of a file share
    graph_text       a graph as a function
    program_facts    the facts of a program
    entry_text       arguments, state, writes and results
    pullback_text    cotangents and gradients
    order_text       gradients of gradients
    cupy_text        a file of NumPy as one of CuPy

Spec: `specs/to_python.md`. Rules: PYX-1 to PYX-15.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs

from aotlite.backends.reference import REFERENCE
from aotlite.eager.rng.generator import current
from aotlite.ir.errors import ArgumentError, UnsupportedError, noted
from aotlite.ir.filesystem import atomic_files
from aotlite.ir.provenance.fixed_calls import warning_of_fixed
from aotlite.ir.provenance.location import docstring_line
from aotlite.pipeline.arguments import FlatArguments, call_of
from aotlite.pipeline.options import Options
from aotlite.pipeline.request import CompiledEntry
from aotlite.python_export.cupy_text import cupy_text
from aotlite.python_export.entry_text import EntryText, local
from aotlite.python_export.file_parts import FileParts
from aotlite.python_export.line_layout import laid_out, names_in
from aotlite.python_export.order_text import OrdersText
from aotlite.python_export.program_facts import GivenCall, PythonProgram, program_of
from aotlite.python_export.pullback_text import PullbackText
from aotlite.python_export.values.state_arrays import StateText, state_text

ARRAY_MODULES = ("numpy", "cupy")
_OPTIONS = ("backward", "state", "ml_dtypes", "array_module")


def python_text(
    program: PythonProgram,
    *,
    backward: bool = True,
    state: bool = True,
    ml_dtypes: bool = False,
    array_module: str = "numpy",
    fixed: Sequence[str] = (),
) -> str:
    """The text of the file. Raises UnsupportedError for what NumPy cannot do (PYX-9).

    `backward`: with the function that gives gradients, where there are any. `state`: with the
    values of what the function reaches outside. `ml_dtypes`: may import that package.
    `array_module`: "numpy", or "cupy" for arrays of a GPU (PYX-14). `fixed`: lines that say what
    the capture has fixed besides numbers among the arguments.
    """
    check_array_module(array_module, ml_dtypes=ml_dtypes)
    parts = FileParts(ml_dtypes=ml_dtypes)
    entry = EntryText(program, parts)
    functions = [entry.forward_text()]
    entry.write()
    raises = program.backward is None and program.meta.failure  # each backward does, as in eager
    pullback = PullbackText(entry) if backward and not raises else None
    of_backward = [] if pullback is None else pullback.backward_texts()
    if pullback is not None and pullback.write():
        functions += of_backward
        higher = OrdersText(pullback) if program.orders else None
        functions += _with_backward(entry, pullback, higher)
    else:
        functions += _entry(entry)
    held = _held(program, entry, with_values=state)
    return file_text(_described(program, fixed), parts, functions, held, array_module)


def check_array_module(name: str, *, ml_dtypes: bool) -> None:
    """Raises ArgumentError for a library for which no file is written."""
    if name not in ARRAY_MODULES:
        known = " or ".join(map(repr, ARRAY_MODULES))
        raise ArgumentError(f"to_python: array_module is {name!r}, expected {known}")
    if ml_dtypes and name != "numpy":
        raise ArgumentError("to_python: ml_dtypes is True for CuPy, expected False")


def check_options(options: Mapping[str, object]) -> None:
    """Raises ArgumentError for an option that no file has."""
    for name in options:
        if name not in _OPTIONS:
            raise ArgumentError(f"to_python: {name!r} is no option, expected {', '.join(_OPTIONS)}")


class PythonFiles:
    """The method of a compiled function that writes it as a file."""

    function: Callable[..., Any]
    options: Options
    entries: list[CompiledEntry]
    _name: str

    def to_python(
        self,
        path: str | None = None,
        args: Sequence[object] = (),
        kwargs: Mapping[str, object] | None = None,
        **options: Any,
    ) -> str:
        """The function, compiled for these arguments, as one Python file that needs NumPy alone.

        Returns its text, and writes it to `path`. With `dynamic=True` sizes are symbols, which each
        call reads from its arrays (PYX-12). The other options are those of `python_text`:
        `backward`, `state`, `ml_dtypes`, `array_module`. Raises UnsupportedError for what NumPy
        cannot do (PYX-9).

        >>> import aotlite as al
        >>> text = al.compile(lambda x: x.add_(1)).to_python(args=(al.ones(2),))
        >>> "primals_0[...] = updated_primals_0" in text
        True
        """
        make: Any = type(self)
        sizes = options.pop("dynamic", False)
        check_options(options)
        if not isinstance(args, (tuple, list)):
            raise ArgumentError(
                f"to_python: args is a {type(args).__name__}, expected a tuple or list of the "
                "arguments: (x,)"
            )
        alone = make(self.function, written_options(self.options, dynamic=sizes))
        with warning_of_fixed(f"to_python: {self._name}") as fixed:
            alone.prepare(*args, **(kwargs or {}))
        call = call_of(tuple(args), dict(kwargs or {}))
        return _written(self.function, self._name, alone.entries[-1], call, path, fixed, options)


def written_options(options: Options, *, dynamic: bool) -> Options:
    """The options of a compilation whose entry is written: sizes are numbers, or all symbols, and
    the graphs write nothing themselves."""
    return attrs.evolve(
        options,
        dynamic=dynamic,
        dynamic_shapes=options.dynamic_shapes if dynamic else None,
        keep_inference_input_mutations=False,
        backend=REFERENCE,
        fw_compiler=None,
        bw_compiler=None,
        inference_compiler=None,
        partition=options.partition or "default",
    )


def _written(
    function: Callable[..., Any],
    name: str,
    entry: CompiledEntry,
    call: FlatArguments,
    path: str | None,
    fixed: Sequence[str],
    options: Mapping[str, Any],
) -> str:
    """The file of an entry, for a call like those that the entry takes; it is written to `path`."""
    standing = current()
    generator = standing.seed, standing.offset
    given = GivenCall(call.leaves, call.spec)
    program = program_of(function, name, entry, given, generator)
    text = python_text(program, fixed=fixed, **options)
    save(text, path)
    return text


def save(text: str, path: str | None) -> None:
    """Writes a text to a file, which a reader sees whole or not at all; nowhere for None."""
    if path is not None:
        folder, file = os.path.split(os.path.abspath(path))
        atomic_files.write(folder, file, text)


def _indented(lines: Sequence[str], depth: int = 1) -> str:
    return "\n".join([f"{'    ' * depth}{line}" for line in lines])


def _entry(entry: EntryText) -> list[str]:
    lines = ['"""Returns the results; writes the arrays that the function writes."""']
    lines += [*entry.lines, f"return {entry.returned_text()}"]
    return _functions(entry, entry.program.name, lines)


def _with_backward(
    entry: EntryText, pullback: PullbackText, higher: OrdersText | None
) -> list[str]:
    """The entries that also return a pullback, and the one that does not; behind the graphs of
    higher orders, where there are any."""
    name = entry.program.name
    whole = _entry_with(entry, pullback, "with_backward", pullback.lines)
    rest = []
    if higher is not None:
        last = _entry_with(entry, pullback, f"of_order_{higher.order}", higher.pullback_lines())
        rest = [*higher.functions, *last]
    given = [local(each) for each in entry.program.parameters]
    if entry.has_state:
        given.append("state=state")
    short = [
        '"""Returns the results; writes the arrays that the function writes."""',
        f"return {name}_with_backward({', '.join(given)})[0]",
    ]
    return [*rest, *whole, *_functions(entry, name, short)]


def _entry_with(
    entry: EntryText, pullback: PullbackText, suffix: str, body: Sequence[str]
) -> list[str]:
    """The entry that returns the results and a pullback with these lines."""
    again = suffix != "with_backward"
    gives = "(gradients, pullback)" if again else "the gradients"
    defaults = [f"{each}=None" for each in pullback.parameters]
    inner = [f"def pullback({', '.join(defaults)}):"]
    inner.append(f'    """Returns {gives}; None for a cotangent stands for zeros."""')
    inner += [f"    {line}" for line in body]
    lines = [
        '"""Returns the results, and `pullback`: cotangents of results -> gradients by name."""'
    ]
    lines += [*entry.lines, "", *inner, "", f"return {entry.returned_text()}, pullback"]
    return _functions(entry, f"{entry.program.name}_{suffix}", lines)


def _functions(entry: EntryText, name: str, lines: Sequence[str]) -> list[str]:
    return functions_of(name, entry.program.parameters, lines, has_state=entry.has_state)


# Note [names of parameters]
#     def step(output_0, np): ...
#
# The file's function has the user's parameters, which callers may name. Its lines have variables,
# helpers and modules of their own, and one of those names may be a parameter's. Then the lines
# stand in a function of their own, whose parameters are given_output_0, given_np, and the
# user's function calls it.
def functions_of(
    name: str, names: Sequence[str], lines: Sequence[str], *, has_state: bool
) -> list[str]:
    """The function with these parameters and lines; behind one that has other parameters, where the
    lines need a parameter's name for something else. Note [names of parameters]."""
    if has_state and "state" in names:
        raise noted(
            UnsupportedError(
                "to_python: an argument is named 'state', expected another name: the file's "
                "function has a parameter `state` for what it reaches outside"
            ),
            "Rename the argument. (PYX-2)",
        )
    state = ["*", "state=None"] if has_state else []
    text = _indented(lines)
    taken = names_in(text)
    free = {each: local(each) for each in names if each not in taken}
    for mine, its in free.items():
        text = re.sub(rf"\b{its}\b", mine, text)
    if len(free) == len(names):
        return [f"def {name}({', '.join([*names, *state])}):\n{text}"]
    inner = f"_{name}"
    while inner in {*names, *taken}:
        inner += "_"
    own = [each if each in free else local(each) for each in names]
    keyword = ["state=state"] if has_state else []
    outer = [lines[0], f"return {inner}({', '.join([*names, *keyword])})"]
    return [
        f"def {inner}({', '.join([*own, *state])}):\n{text}",
        f"def {name}({', '.join([*names, *state])}):\n{_indented(outer)}",
    ]


def file_text(
    about: str,
    parts: FileParts,
    functions: Sequence[str],
    held: StateText,
    array_module: str,
) -> str:
    """A whole file: docstring, imports, helpers, functions of kernels, functions, and the state."""
    helpers = [*parts.helper_texts(), *parts.function_texts(), *parts.class_texts()]
    bodies = [*helpers, *map(_quiet, functions)]
    if any("STATE" in body for body in functions):
        bodies.append(held.text)
    packing = {name for name in ("base64", "zlib") if any(f"{name}." in text for text in bodies)}
    imports = [f"import {name}" for name in sorted(packing | parts.modules)]
    extra = ["import ml_dtypes"] if parts.needs_ml_dtypes else []
    constants = ["", *parts.constants] if parts.constants else []
    lines = [about, "", _WRITTEN, '"""', "", *imports, *([""] if imports else [])]
    head = [*lines, *extra, "import numpy as np", *constants]
    text = laid_out("\n\n\n".join(["\n".join(head), *bodies])) + "\n"
    return cupy_text(text) if array_module == "cupy" else text


_WRITTEN = "Written by aotlite's to_python. It checks shapes, dtypes and strides of its arguments."


def _quiet(function: str) -> str:
    """The function with NumPy's warnings off where it computes, as in aotlite."""
    is_graph = re.match(r"def (forward|backward)(_\d+)?\(", function) is not None
    return f'@np.errstate(all="ignore")\n{function}' if is_graph else function


def _described(program: PythonProgram, fixed: Sequence[str]) -> str:
    """The beginning of the docstring: which function it is, and what is fixed in it."""
    lines = [f'"""{docstring_line(program.about)}, as functions of NumPy arrays.']
    numbers = [f"{each.text} = {each.number!r}" for each in program.arguments if each.is_number]
    if numbers:
        lines += ["", docstring_line(f"These numbers are fixed: {', '.join(numbers)}.")]
    if fixed:
        lines += ["", "Each of these is fixed, with what it was when the file was written:"]
        lines += [f"    {docstring_line(each)}" for each in fixed]
    return "\n".join(lines)


def _held(program: PythonProgram, entry: EntryText, *, with_values: bool) -> StateText:
    """The state: what the function reaches outside of its arguments, by name."""
    held = {
        each.key: each.value
        for each in program.state
        if with_values and each.value is not None and each.role in entry.inputs
    }
    around = [each.around for each in program.state if each.around is not None and held]
    text = state_text(held, entry.parts, around)
    if entry.draws:
        seed, offset = program.generator
        text.items.append(f'"generator.seed": np.array({seed}, np.uint64),')
        text.items.append(f'"generator.offset": np.array({offset}, np.uint64),')
    return text
