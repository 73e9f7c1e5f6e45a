"""Prints the path of one tensor: the lines of the library that the README's example executes.

    python -m tests.house.one_tensor                    by file, in the order of their first lines
    python -m tests.house.one_tensor --backend auto     with the backend that `compile` takes
    python -m tests.house.one_tensor --write            the functions that `x[0].mul_(2.0)` passes

The algorithm is counted with the backend `reference`, which runs graphs op by op. `auto` runs more
lines: those that make kernels in C, fewer of them where the disk cache has the kernels.

The example is compiled and called twice, and a backward runs from the second value. A line is a
statement, as in coverage tools: one of several lines counts once. Imports, with the bodies of
modules and classes, do not count.
"""

from __future__ import annotations

import argparse
import ast
import doctest
import functools
import importlib
import inspect
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from tests.house.sources import ROOT

README = "README.md"
EXAMPLE = "<README.md>"
"""The file name of the example's code, as files of the checkout count as the library's."""

WRITE = "x[0].mul_(2.0)"
BACKWARD = "value.backward()"
LINES = 4_435
"""The most lines that the example may run. Ninety-three ask whether sizes and numbers are symbols,
what views of parts eager allows, and whether something is said of sizes that stay numbers.
Fifty-two ask whether somebody listens to the log, two keep the ways to hidden inputs and
three those to arguments that are reached outside, too, two ask whether arguments are frozen,
four whether entries are kept on disk, and fourteen say of a graph what a file may say before it is
read. A hundred and ten look for numbers that the function changes itself, in all that its code
names (CAP-14), and for containers among the arguments (GEN-14). Fifty-five look for settings of the
process that it changes (CAP-15). Fourteen look for objects whose reads are noted (CAP-14). Ten
look for attributes that other calls change (CAP-17). Eleven ask whether the first run was refused
for a state that may settle (CAP-16)."""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.house.one_tensor",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--backend",
        default="reference",
        help="`reference` if not given; `auto` is that of `compile`",
    )
    parser.add_argument("--write", action="store_true", help=f"the functions that {WRITE} passes")
    given = parser.parse_args(arguments)
    print("\n".join(write_path(given.backend) if given.write else line_path(given.backend)))
    return 0


def line_path(backend: str) -> Iterator[str]:
    """The number of executed lines of each file, and their sum."""
    lines = Lines()
    run(example(backend), lines)
    counts = {name: len(lines.statements(name)) for name in lines.found}
    for name, count in counts.items():
        yield f"{count:5} {file_of(name)}"
    yield f"{sum(counts.values()):5} lines of {len(counts)} files, with the backend {backend}"


def write_path(backend: str) -> Iterator[str]:
    """The functions that run in the line of the write, or get a node of that line.

    Kernels and generated code have no nodes and are not listed.
    """
    code = example(backend)
    functions = Functions(line_of(WRITE))
    run(code, functions)
    for name, found in functions.found.items():
        yield f"{file_of(name)}: {', '.join(found)}"


# The example


@functools.cache
def readme() -> list[doctest.Example]:
    """The README's first example, up to its backward."""
    text = (ROOT / README).read_text("utf-8")
    examples = doctest.DocTestParser().get_examples(text, README)
    last = next(i for i, each in enumerate(examples) if each.source.strip() == BACKWARD)
    return examples[: last + 1]


def example(backend: str) -> CodeType:
    """The README's example with a second call in front of its backward, at the README's lines."""
    text = ""
    for each in readme():
        text += "\n" * (each.lineno - text.count("\n")) + each.source
    text = text.replace("al.compile(loss)", f"al.compile(loss, backend={backend!r})")
    call = next(line for line in text.splitlines() if "compiled(x, w)" in line)
    return compile(text.replace(BACKWARD, f"{call}; {BACKWARD}"), EXAMPLE, "exec")


def line_of(text: str) -> int:
    """The line of the README's example that holds a text."""
    for each in readme():
        for offset, line in enumerate(each.source.splitlines()):
            if text in line:
                return each.lineno + offset + 1
    raise AssertionError(f"{README}: {text} is not in the example")


def run(code: CodeType, tracer: Tracer) -> None:
    importlib.import_module("aotlite")
    with tracing(tracer):
        exec(code, {"__name__": "readme"})


# Tracers


Local = Callable[[FrameType, str, Any], Any]


class Tracer:
    """Follows the calls of functions of the library, but for those that an import makes."""

    def __init__(self) -> None:
        self._importing = 0

    def __call__(self, frame: FrameType, event: str, value: Any) -> Local | None:
        if frame.f_code.co_name == "<module>" and frame.f_code.co_filename != EXAMPLE:
            self._importing += 1
            return self._of_import
        if self._importing or not is_ours(frame):
            return None
        return self.entered(frame)

    def _of_import(self, frame: FrameType, event: str, value: Any) -> Local:
        if event == "return":
            self._importing -= 1
        return self._of_import

    def entered(self, frame: FrameType) -> Local | None:
        raise NotImplementedError


class Lines(Tracer):
    """The executed lines by module, in the order of their first execution."""

    def __init__(self) -> None:
        super().__init__()
        self.found: dict[str, dict[int, None]] = {}

    def entered(self, frame: FrameType) -> Local:
        found = self.found.setdefault(frame.f_globals["__name__"], {})

        def line(frame: FrameType, event: str, value: Any) -> Local:
            if event == "line":
                found[frame.f_lineno] = None
            return line

        return line

    def statements(self, module: str) -> set[int]:
        starts = statement_starts(Path(str(sys.modules[module].__file__)).read_text("utf-8"))
        return {starts[line] for line in self.found[module]}


class Functions(Tracer):
    """The functions that a line of the example passes, by module, in order."""

    def __init__(self, line: int) -> None:
        super().__init__()
        self.line = line
        self.found: dict[str, dict[str, None]] = {}

    def entered(self, frame: FrameType) -> None:
        if self._runs_in_line(frame) or any(map(self._is_of_line, arguments(frame))):
            name = frame.f_code.co_qualname
            if not name.endswith(">"):
                self.found.setdefault(frame.f_globals["__name__"], {})[name] = None

    def _runs_in_line(self, frame: FrameType | None) -> bool:
        while frame is not None:
            if frame.f_code.co_filename == EXAMPLE:
                return frame.f_lineno == self.line
            frame = frame.f_back
        return False

    def _is_of_line(self, value: Any) -> bool:
        """Whether a value is a node of a graph that comes from the line."""
        location = getattr(value, "location", None) if type(value).__name__ == "Node" else None
        if type(location) is not tuple or location[0].co_filename != EXAMPLE:
            return False
        return position(*location) == self.line


def position(code: CodeType, offset: int) -> int | None:
    """The line of the instruction at an offset of bytes."""
    return next(islice(code.co_positions(), offset // 2, None))[0]


def is_ours(frame: FrameType) -> bool:
    """Whether a frame runs a function of a file of the library; generated code has no file."""
    name = str(frame.f_globals.get("__name__"))
    is_class_body = not frame.f_code.co_flags & inspect.CO_OPTIMIZED
    is_file = frame.f_code.co_filename.endswith(".py")
    return f"{name}.".startswith("aotlite.") and is_file and not is_class_body


def arguments(frame: FrameType) -> list[Any]:
    code = frame.f_code
    count = code.co_argcount + code.co_kwonlyargcount
    return [frame.f_locals[name] for name in code.co_varnames[:count] if name in frame.f_locals]


@contextmanager
def tracing(tracer: Tracer) -> Iterator[None]:
    """A block in which `tracer` follows all threads."""
    threading.settrace(tracer)
    sys.settrace(tracer)
    try:
        yield
    finally:
        sys.settrace(None)
        threading.settrace(None)


def statement_starts(text: str) -> dict[int, int]:
    """The first line of the innermost statement that each line belongs to."""
    starts: dict[int, int] = {}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.stmt):
            for line in range(node.lineno, (node.end_lineno or node.lineno) + 1):
                starts[line] = max(node.lineno, starts.get(line, 0))
    return starts


def file_of(module: str) -> str:
    """A module's file as the checkout has it."""
    parts = module.split(".")
    path = Path(*(parts[1:] if parts[1:2] in (["ir"], ["backends"]) else parts))
    return str(path / "__init__.py" if (ROOT / path).is_dir() else path.with_suffix(".py"))


if __name__ == "__main__":
    sys.exit(main())
