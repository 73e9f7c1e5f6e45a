"""`cupy_text`: the text of a file for NumPy as one for CuPy.

A file calls functions that both libraries have under one name. What CuPy lacks, and arguments that
its functions do not take, are refused by name. Input, output: the text of a whole file. Rule:
PYX-14. Spec: `specs/to_python.md`.
"""

from __future__ import annotations

import ast
import inspect
import io
import tokenize
from collections.abc import Iterator
from functools import cache

import numpy as np

from aotlite.ir.arrays.cupy_table import cupy_table
from aotlite.ir.errors import UnsupportedError, noted

_OF_BOTH = frozenset(
    "ndarray dtype newaxis inf nan pi e iinfo finfo lib.stride_tricks.as_strided".split()
)
"""Names that are no functions of the table, and that CuPy has."""
_UFUNC_ARGUMENTS = frozenset(("out", "dtype", "casting"))
_ACCUMULATE = ("add", "multiply")
_QUIET = '@np.errstate(all="ignore")\n'
_INTERFACE = "__array_interface__"
_STABLE = ", stable=True)"
"""An argument of NumPy's sorts, which CuPy's do without: they are stable always."""


def cupy_text(text: str) -> str:
    """The file for CuPy. Raises UnsupportedError that names what CuPy lacks."""
    quiet = text.replace(_QUIET, "").replace(_INTERFACE, "__cuda_array_interface__")
    quiet = quiet.replace(_STABLE, ")")
    missing = sorted(set(_missing(ast.parse(quiet))))
    if missing:
        raise noted(
            UnsupportedError(
                f"to_python: CuPy has no {', no '.join(missing)}, expected functions of both "
                "libraries"
            ),
            "Write the file for NumPy: leave out array_module. (PYX-14)",
        )
    return _renamed(quiet).replace("import numpy as cp", "import cupy as cp", 1)


def _renamed(text: str) -> str:
    """The text with `cp` for the name `np`; both are two characters long."""
    lines = text.splitlines(keepends=True)
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.NAME and token.string == "np":
            row, at = token.start
            line = lines[row - 1]
            lines[row - 1] = f"{line[:at]}cp{line[at + 2 :]}"
    return "".join(lines).replace("of NumPy arrays.", "of CuPy arrays.", 1)


def _missing(tree: ast.AST) -> Iterator[str]:
    """What a file names or calls that CuPy lacks."""
    called = {id(node.func): node for node in ast.walk(tree) if isinstance(node, ast.Call)}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Attribute):
            continue
        name = _name_in_numpy(node)
        if name is not None:
            yield from _missing_function(name, called.get(id(node)))


def _name_in_numpy(node: ast.Attribute) -> str | None:
    """`linalg.solve` of `np.linalg.solve`, for a whole name; None for another attribute."""
    parts, value = [node.attr], node.value
    while isinstance(value, ast.Attribute):
        parts.append(value.attr)
        value = value.value
    if not (isinstance(value, ast.Name) and value.id == "np"):
        return None
    name = ".".join(reversed(parts))
    return None if name in ("linalg", "lib", "lib.stride_tricks") else name


def _missing_function(name: str, call: ast.Call | None) -> Iterator[str]:
    table = cupy_table()
    if name in _OF_BOTH or _is_dtype(name):
        return
    if name not in table:
        function, _, method = name.rpartition(".")
        loops = table.get(function, {})
        if function in _ACCUMULATE and method == "accumulate" or method == "at" and "at" in loops:
            return
        if "types" not in loops:  # the whole name is looked at, and not its beginning
            yield f"`{name}`"
        elif method:
            yield f"`{name}`"
        return
    if call is not None:
        yield from _misfits(name, call)


def _is_dtype(name: str) -> bool:
    found = getattr(np, name, None)
    return isinstance(found, type) and issubclass(found, np.generic)


def _misfits(name: str, call: ast.Call) -> Iterator[str]:
    """The arguments of a call that CuPy's function does not take."""
    keywords = [each.arg for each in call.keywords if each.arg is not None]
    if "types" in cupy_table()[name]:
        for keyword in keywords:
            if keyword not in _UFUNC_ARGUMENTS:
                yield f"argument {keyword!r} of `{name}`"
        return
    signature = _signature(name)
    takes_all = any(p.kind is p.VAR_KEYWORD for p in signature.parameters.values())
    for keyword in keywords:
        if keyword not in signature.parameters and not takes_all:
            yield f"argument {keyword!r} of `{name}`"
    if not any(isinstance(each, ast.Starred) for each in call.args):
        try:
            signature.bind_partial(*call.args)
        except TypeError:
            yield f"`{name}` of {len(call.args)} arguments"


@cache
def _signature(name: str) -> inspect.Signature:
    """The signature of CuPy's function."""
    parameters = []
    kinds = inspect.Parameter
    parsed = ast.parse(f"def taken({cupy_table()[name]['parameters']}): ...").body[0]
    assert isinstance(parsed, ast.FunctionDef)
    found = parsed.args
    for each in (*found.posonlyargs, *found.args):
        parameters.append(kinds(each.arg, kinds.POSITIONAL_OR_KEYWORD))
    if found.vararg is not None:
        parameters.append(kinds(found.vararg.arg, kinds.VAR_POSITIONAL))
    parameters += [kinds(each.arg, kinds.KEYWORD_ONLY) for each in found.kwonlyargs]
    if found.kwarg is not None:
        parameters.append(kinds(found.kwarg.arg, kinds.VAR_KEYWORD))
    return inspect.Signature(parameters)
