"""Planted mistakes: single changes of the code that simplifies sizes and answers comparisons.

Each changes one expression of one function of `ir/symbols`. The function's code object is replaced
while the plant is in, so every module that has the function has the mistake.
"""

from __future__ import annotations
import __future__

import ast
import copy
import functools
import importlib
import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from types import CodeType
from typing import Any

import attrs

from aotlite.ir.symbols.cases.results import forget_results

MODULES = ("calls", "polynomial", "proofs", "symint", "table")
_UNTOUCHED = ("text", "repr", "str", "locate", "place", "refuse", "asked", "said", "rule_of")
"""Parts of names of functions that print, refuse or record."""
_RECORDING = ("_compared", "_called", "_otherwise", "_shifted", "_is_whole")
"""What operators have in common."""
_SWAPPED: dict[type, tuple[type, ...]] = {
    ast.Lt: (ast.LtE, ast.Gt),
    ast.LtE: (ast.Lt, ast.GtE),
    ast.Gt: (ast.GtE, ast.Lt),
    ast.GtE: (ast.Gt, ast.LtE),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
    ast.Add: (ast.Sub, ast.Mult),
    ast.Sub: (ast.Add,),
    ast.Mult: (ast.Add,),
    ast.FloorDiv: (ast.Mult,),
    ast.Mod: (ast.FloorDiv,),
    ast.And: (ast.Or,),
    ast.Or: (ast.And,),
}


@attrs.frozen(eq=False)
class Plant:
    """A changed function."""

    module: str
    function: str
    line: int
    before: str
    after: str
    changed: ast.FunctionDef = attrs.field(repr=False)

    @property
    def name(self) -> str:
        """`calls._extreme:73 left >= right -> left > right`."""
        return f"{self.module}.{self.function}:{self.line} {self.before} -> {self.after}"

    @property
    def is_of_record(self) -> bool:
        """Whether it changes what an operator of Python records of itself, or stops the record."""
        name = self.function.rpartition(".")[2]
        of_operator = name.startswith("__") or name in _RECORDING
        return "self.closed" in self.before or self.module == "symint" and of_operator

    @contextmanager
    def planted(self) -> Iterator[None]:
        """A block in which the mistake is in."""
        function = _functions(self.module)[self.function]
        forget_results()
        sound, function.__code__ = function.__code__, _code(self.changed, function.__code__)
        try:
            yield
        finally:
            function.__code__ = sound
            forget_results()


@functools.cache
def _functions(module: str) -> dict[str, Any]:
    """The functions of a module by qualified name, methods and properties too."""
    found = {}
    loaded = importlib.import_module(f"aotlite.ir.symbols.{module}")
    for name, value in vars(loaded).items():
        if inspect.isclass(value) and value.__module__ == loaded.__name__:
            for inner, each in vars(value).items():
                each = each.fget if isinstance(each, property) else each
                if inspect.isfunction(each):
                    found[f"{name}.{inner}"] = each
        elif inspect.isfunction(value) and value.__module__ == loaded.__name__:
            found[name] = value
    own = {n: f for n, f in found.items() if f.__code__.co_filename == loaded.__file__}
    return {n: f for n, f in own.items() if not f.__code__.co_freevars}  # `super()` has one


def plants() -> Iterator[Plant]:
    """Every plant, in the order of the sources."""
    for module in MODULES:
        loaded = importlib.import_module(f"aotlite.ir.symbols.{module}")
        tree = ast.parse(inspect.getsource(loaded))
        for name, node in _definitions(tree):
            if name in _functions(module) and not any(part in name for part in _UNTOUCHED):
                for line, before, after, changed in _changes(node):
                    yield Plant(module, name, line, before, after, changed)


def _definitions(tree: ast.Module) -> Iterator[tuple[str, ast.FunctionDef]]:
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            yield node.name, node
        elif isinstance(node, ast.ClassDef) and node.name != "Table":
            for inner in node.body:
                if isinstance(inner, ast.FunctionDef):
                    yield f"{node.name}.{inner.name}", inner


def _changes(function: ast.FunctionDef) -> Iterator[tuple[int, str, str, ast.FunctionDef]]:
    """(line, before, after, the changed function) for each place that can be changed."""
    nodes = [node for node in ast.walk(function) if isinstance(node, (ast.expr, ast.If, ast.While))]
    for index, node in enumerate(nodes):
        for number in range(len([*_others(copy.deepcopy(node))])):
            twin = copy.deepcopy(function)
            chosen = [n for n in ast.walk(twin) if isinstance(n, (ast.expr, ast.If, ast.While))]
            place = chosen[index]
            before = ast.unparse(place.test if isinstance(place, (ast.If, ast.While)) else place)
            other = [*_others(place)][number]
            _replace(twin, place, other)
            after = ast.unparse(other.test if isinstance(other, (ast.If, ast.While)) else other)
            if before != after:
                yield node.lineno, before, after, twin


def _others(node: Any) -> Iterator[Any]:
    """What may stand in the place of a node."""
    if isinstance(node, ast.Compare):
        for other in _SWAPPED.get(type(node.ops[0]), ()):
            yield ast.Compare(node.left, [other(), *node.ops[1:]], node.comparators)
    elif isinstance(node, ast.BinOp):
        for other in _SWAPPED.get(type(node.op), ()):
            yield ast.BinOp(node.left, other(), node.right)
    elif isinstance(node, ast.BoolOp):
        yield ast.BoolOp(_SWAPPED[type(node.op)][0](), node.values)
        for k in range(len(node.values)):
            rest = node.values[:k] + node.values[k + 1 :]
            yield rest[0] if len(rest) == 1 else ast.BoolOp(node.op, rest)
    elif isinstance(node, ast.Constant):
        yield from _other_constants(node.value)
    elif isinstance(node, ast.UnaryOp):
        yield node.operand
    elif isinstance(node, ast.IfExp):
        yield node.body
        yield node.orelse
        yield ast.IfExp(node.test, node.orelse, node.body)
    elif isinstance(node, ast.Call):
        if len(node.args) >= 2:
            yield ast.Call(node.func, [node.args[1], node.args[0], *node.args[2:]], node.keywords)
        if isinstance(node.func, ast.Name) and node.func.id in ("min", "max", "any", "all"):
            name = {"min": "max", "max": "min", "any": "all", "all": "any"}[node.func.id]
            yield ast.Call(ast.Name(name, ast.Load()), node.args, node.keywords)
    elif isinstance(node, ast.If):
        for truth in (True, False):
            yield ast.If(ast.Constant(truth), node.body, node.orelse)


def _other_constants(value: object) -> Iterator[ast.Constant]:
    if isinstance(value, bool):
        yield ast.Constant(not value)
    elif isinstance(value, int):
        yield ast.Constant(value + 1)
        yield ast.Constant(value - 1)
    elif value in _RELATED:
        yield ast.Constant(_RELATED[value])


_RELATED: dict[object, str] = {
    ">=": ">",
    ">": ">=",
    "<=": "<",
    "<": "<=",
    "==": "!=",
    "!=": "==",
    "//": "%",
    "%": "//",
    "max": "min",
    "min": "max",
}


def _replace(tree: ast.AST, place: ast.AST, other: ast.AST) -> None:
    for parent in ast.walk(tree):
        for field, value in ast.iter_fields(parent):
            if value is place:
                setattr(parent, field, other)
                return
            if isinstance(value, list) and any(item is place for item in value):
                value[[item is place for item in value].index(True)] = other
                return


def _code(changed: ast.FunctionDef, sound: CodeType) -> CodeType:
    """The code object of the changed function; no such function has a closure."""
    changed.decorator_list = []
    tree = ast.fix_missing_locations(ast.Module([changed], []))
    flags = __future__.annotations.compiler_flag
    code = compile(tree, sound.co_filename, "exec", flags, dont_inherit=True)
    return next(c for c in code.co_consts if isinstance(c, CodeType))
