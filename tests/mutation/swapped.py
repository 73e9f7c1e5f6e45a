"""Swaps the code of a mutant's function in a process that has imported everything.

Much faster than an import for each mutant. Only for functions that did not run during imports,
since their results have been kept; other mutants are imported in a process without aotlite
(`replaced.py`).
"""

from __future__ import annotations

import ast
import gc
import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager
from types import CodeType, FunctionType
from typing import Any

from tests.mutation.sites import Mutant, source_of
from tests.mutation.targets import FILES, ROOT

Ran = set[tuple[str, int]]
"""File and first line of functions."""


_LIVE: dict[str, list[FunctionType]] = {}
"""The functions of each file of the deciding code."""


def find_functions() -> None:
    """Finds the functions of the deciding code in this process."""
    wanted = {str(ROOT / file): file for file in FILES}
    _LIVE.clear()
    for each in gc.get_objects():
        if type(each) is FunctionType and each.__code__.co_filename in wanted:
            _LIVE.setdefault(wanted[each.__code__.co_filename], []).append(each)


@contextmanager
def noting_calls() -> Iterator[Ran]:
    """Collects the functions of the deciding code that run inside a block."""
    wanted = {str(ROOT / file): file for file in FILES}
    found: Ran = set()

    def note(frame: Any, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_filename in wanted:
            found.add((wanted[frame.f_code.co_filename], frame.f_code.co_firstlineno))

    sys.setprofile(note)
    try:
        yield found
    finally:
        sys.setprofile(None)


def may_be_swapped(mutant: Mutant, ran: Ran) -> bool:
    """Whether the change is in the body of a function that did not run at import."""
    spot = _outermost(source_of(mutant.file), mutant.line)
    if spot is None:
        return False
    first, last = spot
    return not any(file == mutant.file and first <= line <= last for file, line in ran)


def swap(mutant: Mutant, source: str) -> None:
    """Gives live functions their code in the mutant. *Err* `ValueError` if there is none."""
    spot = _outermost(source_of(mutant.file), mutant.line)
    path = str(ROOT / mutant.file)
    whole = compile(source, path, "exec", dont_inherit=True)
    new = {(c.co_qualname, c.co_firstlineno): c for c in _codes(whole)}
    met = False
    for function in _LIVE.get(mutant.file, ()):
        code = function.__code__
        if spot is not None and spot[0] <= code.co_firstlineno <= spot[1]:
            function.__code__ = new[code.co_qualname, code.co_firstlineno]
            met = True
    if not met:
        raise ValueError(f"{mutant.key}: no live function is at line {mutant.line}")


def _outermost(source: str, line: int) -> tuple[int, int] | None:
    """The first and last line of the function or method around a line of its body."""
    stack: list[ast.AST] = [ast.parse(source)]
    while stack:
        for node in ast.iter_child_nodes(stack.pop()):
            if isinstance(node, ast.ClassDef):
                stack.append(node)
            elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
                if node.body[0].lineno <= line <= (node.end_lineno or line):
                    return first, node.end_lineno or line
    return None


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for each in code.co_consts:
        if isinstance(each, types.CodeType):
            yield from _codes(each)
