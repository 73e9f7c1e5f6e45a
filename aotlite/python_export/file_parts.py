"""`FileParts`: what the functions of one file share: helpers, functions of kernels, constants.

Rules: PYX-3, PYX-9. Spec: `specs/to_python.md`.
"""

from __future__ import annotations

import ast
import base64
import builtins
import inspect
import re
import zlib
from functools import cache
from typing import Any

import numpy as np

from aotlite.ir.arrays import array_over, host_array
from aotlite.ir.dtypes import DType
from aotlite.ir.errors import DTypeError, noted
from aotlite.ir.graph import Node
from aotlite.ir.graph.node_text import identifier
from aotlite.ir.op import OPS
from aotlite.python_export import file_functions
from aotlite.python_export.kernels.argument_text import literal
from aotlite.python_export.kernels.kernel_text import KernelText

_ROW = 88
"""The characters of a line of packed bytes."""
_SMALL = 16
"""The most elements of an array that is printed as numbers."""


_OF_FILES = frozenset("np cp ml_dtypes base64 collections dataclasses zlib STATE".split())
_OF_GRAPHS = re.compile(r"(forward|backward)(_\d+)?")


def entry_name(text: str) -> str:
    """The name of a file's function: the user's, with a line behind it where the file has another
    thing of that name.

    >>> entry_name("model.step"), entry_name("forward")
    ('model_step', 'forward_')
    """
    name = identifier(text)
    is_kernel = re.sub(r"_\d+$", "", name[1:]) in OPS and name.startswith("_")
    taken = name in _OF_FILES or _OF_GRAPHS.fullmatch(name) or hasattr(file_functions, name)
    return f"{name}_" if taken or is_kernel or hasattr(builtins, name) else name


class FileParts:
    """Collects the parts of a file that functions name, each once."""

    def __init__(self, *, ml_dtypes: bool) -> None:
        self.allows_ml_dtypes, self.needs_ml_dtypes = ml_dtypes, False
        self.helpers: set[str] = set()
        self.functions: dict[str, str] = {}
        """The functions of kernels: the text after the name -> the name."""
        self.constants: list[str] = []
        self.modules: set[str] = set()
        """Modules of the standard library that expressions name."""
        self._classes: dict[tuple[str, str], str] = {}
        """The variables of classes of containers: the name in eager and the definition, with
        `{name}` for the variable -> the variable."""
        self._counts: dict[str, int] = {}

    def use(self, helper: str) -> str:
        """The name of a helper, which the file holds from now on, with those that it calls."""
        if helper not in self.helpers:
            self.helpers.add(helper)
            for other in _names_in(helper):
                self.use(other)
        return helper

    def helper_texts(self) -> list[str]:
        """The sources of the helpers, in the order of `file_functions.py`."""
        order = [name for name in vars(file_functions) if name in self.helpers]
        return [_source(name) for name in order]

    def function(self, op: str, kernel: KernelText) -> str:
        """The name of the function with a kernel's lines; an equal one is there once."""
        results = ", ".join(kernel.results)
        returned = f"({results})" if len(kernel.results) > 1 else results
        lines = [*kernel.lines, f"return {returned}"]
        body = "\n".join([f"    {line}" for line in lines])
        text = f"({', '.join(kernel.parameters)}):\n{body}"
        if text not in self.functions:
            count = self._counts[op] = self._counts.get(op, 0) + 1
            self.functions[text] = f"_{op}" if count == 1 else f"_{op}_{count}"
        self.use_named("\n".join(lines).replace("return ", "_ = "))
        return self.functions[text]

    def use_named(self, text: str) -> None:
        """Adds the helpers that lines name."""
        for name in _called(text):
            self.use(name)

    def function_texts(self) -> list[str]:
        """The functions of kernels, in the order in which they were first needed."""
        return [f"def {name}{text}" for text, name in self.functions.items()]

    # --- containers
    def module(self, name: str) -> str:
        """The name of a module of the standard library, which the file imports from now on."""
        self.modules.add(name)
        return name

    def container_class(self, variable: str, name: str, definition: str) -> str:
        """The variable of a class of containers, this one or a numbered one; an equal class is
        there once. `name` is the name by which it shows itself."""
        key = name, definition
        if key not in self._classes:
            count = sum(name == other for other, _ in self._classes)
            self._classes[key] = f"{variable}_{count + 1}" if count else variable
        return self._classes[key]

    def class_texts(self) -> list[str]:
        """The definitions of the classes of containers."""
        texts = []
        for (name, definition), variable in self._classes.items():
            text = f'"{name}"' if name.isidentifier() else repr(name)
            named = "" if variable == name else f"\n{variable}.__name__ = {text}"
            texts.append(definition.replace("{name}", variable) + named)
        return texts

    # --- arrays
    def constant(self, node: Node) -> str:
        """The name of an array that is part of the program."""
        meta: Any = node.meta
        value = node.target.value
        array = value if hasattr(value, "shape") else array_over(meta.device.arrays, value, meta)
        name = f"_CONSTANT_{len(self.constants)}"
        self.constants.append(f"{name} = {self.array(host_array(array))}")
        return name

    def array(self, array: np.ndarray, indent: str = "") -> str:
        """An expression that makes an equal array: its numbers if they are few, or its bytes.
        Its lines behind the first have this indent."""
        if array.dtype.kind == "V":
            self.extension_dtype("a constant", array.dtype)
        dtype = literal(array.dtype)
        if array.size <= _SMALL and array.dtype.kind in "biuf":
            return f"np.array({_numbers(array)}, {dtype})"
        packed = base64.b85encode(zlib.compress(np.ascontiguousarray(array).tobytes(), 9)).decode()
        self.use("_packed")
        if len(packed) <= _ROW // 2:
            return f'_packed("{packed}", {literal(array.shape)}, {dtype})'
        rows = [f'"{packed[at : at + _ROW]}"' for at in range(0, len(packed), _ROW)]
        items = [*rows[:-1], f"{rows[-1]},", f"{literal(array.shape)},", f"{dtype},"]
        return "\n".join(["_packed(", *[f"{indent}    {item}" for item in items], f"{indent})"])

    def extension_dtype(self, op: str, dtype: DType | np.dtype) -> None:
        """Notes a dtype of ml_dtypes. Raises DTypeError where that package is not allowed."""
        if not self.allows_ml_dtypes:
            raise noted(
                DTypeError(f"to_python: {op} has dtype {dtype}, expected dtypes of NumPy"),
                "Allow the package ml_dtypes by ml_dtypes=True. (PYX-9)",
            )
        self.needs_ml_dtypes = True


def _numbers(array: np.ndarray) -> str:
    """The numbers as nested lists, each in its shortest form for the dtype."""
    if array.ndim:
        return f"[{', '.join(map(_numbers, array))}]"
    number = array[()]
    if array.dtype.kind == "f":
        text = str(number)
        return f"np.{text}" if text in ("nan", "inf") else text.replace("-inf", "-np.inf")
    return str(number)


@cache
def _source(name: str) -> str:
    return inspect.getsource(getattr(file_functions, name)).rstrip()


@cache
def _names_in(helper: str) -> tuple[str, ...]:
    return tuple([n for n in _called(_source(helper)) if n != helper])


def _called(text: str) -> list[str]:
    """The helpers that a text names."""
    tree = ast.parse(text)
    names = {each.id for each in ast.walk(tree) if isinstance(each, ast.Name)}
    return sorted(
        [name for name in names if name.startswith("_") and hasattr(file_functions, name)]
    )
