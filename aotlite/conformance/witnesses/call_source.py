"""A call of an adapter's method as lines of its library's own code, for witnesses.

The method's source is the template: arguments are substituted into its statements, and constant
expressions are folded. A method with other than simple statements and one `return` at the end is
printed as a call of the adapter's method: `b = select(a, 0, 1)`.
"""

from __future__ import annotations

import ast
import builtins
import cmath
import contextlib
import copy
import functools
import inspect
import math
import textwrap
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

FOLDED = {
    each.__name__: each
    for each in (slice, tuple, list, range, len, float, complex, frozenset, set, bytearray)
}
"""Names that a constant expression may use."""
SIMPLE = (bool, int, float, complex, str, bytes, bytearray, range, type(None), type(...))
CONTAINERS = (tuple, list, set, frozenset)


def along(dim: int, *key: object) -> tuple[Any, ...]:
    """The index that applies `key` to dimensions from `dim` on: `a[along(1, 0)]` is `a[:, 0]`."""
    return (slice(None),) * dim + key


def spell(
    name: str, method: Callable[..., object], arguments: Mapping[str, str], result: str = ""
) -> tuple[list[str], str]:
    """Returns the lines of a call, and the expression of its result: '' if the lines name it.

    `name`: the name of the method. `result`: the name of the result.
    """
    statements = _statements(getattr(method, "__func__", method))
    if statements is None:
        return [], f"{name}({', '.join(arguments.values())})"
    match statements[-1]:
        case ast.Return(value=ast.Name(id=local)) if local not in arguments and result:
            arguments = {**arguments, local: result}
    filled = [_Filled(arguments).visit(copy.deepcopy(statement)) for statement in statements]
    lines = [ast.unparse(ast.fix_missing_locations(each)) for each in filled]
    if not isinstance(filled[-1], ast.Return):
        return lines, ""
    return lines[:-1], lines[-1].removeprefix("return ")


def source_of(function: Callable[..., object]) -> list[str]:
    """Returns the source lines of a function, without docstring and annotations."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    definition = tree.body[0]
    assert isinstance(definition, ast.FunctionDef)
    definition.body = [each for each in definition.body if not _is_docstring(each)]
    definition.returns = None
    for argument in definition.args.args:
        argument.annotation = None
    return ast.unparse(definition).splitlines()


@functools.cache
def _statements(function: Callable[..., object]) -> tuple[ast.stmt, ...] | None:
    """Returns the body of a function without docstring; None if it is no template."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError, SyntaxError):
        return None
    body = _body(tree)
    allowed = ast.Expr | ast.Assign | ast.AugAssign
    simple = body and all(isinstance(each, allowed) for each in body[:-1])
    last = body and isinstance(body[-1], allowed | ast.Return)
    names = {node.id for each in body for node in ast.walk(each) if isinstance(node, ast.Name)}
    return tuple(body) if simple and last and "self" not in names else None


def _body(tree: ast.Module) -> list[ast.stmt]:
    """Returns the statements of a method; for `name = lambda self, ...: ...`, one `return`."""
    match tree.body:
        case [ast.FunctionDef(body=body)]:
            return [each for each in body if not (_is_docstring(each) or _is_guard(each))]
        case [ast.Assign(value=ast.Lambda(body=expression))]:
            return [ast.Return(expression)]
    return []


def _is_guard(statement: ast.stmt) -> bool:
    """Whether a statement is an `if` that only raises, such as a check for an absent function."""
    match statement:
        case ast.If(body=[ast.Raise()], orelse=[]):
            return True
    return False


def _is_docstring(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


class _Filled(ast.NodeTransformer):
    """Replaces parameters by the texts of arguments, and folds constant expressions."""

    def __init__(self, arguments: Mapping[str, str]) -> None:
        self.arguments = arguments

    def visit(self, node: ast.AST) -> Any:
        node = super().visit(node)
        if isinstance(node, ast.expr) and _is_constant(node):
            with contextlib.suppress(Exception):  # `None[0]` is not folded
                return _expression(_value(node))
        return node

    def visit_Name(self, node: ast.Name) -> ast.expr:
        text = self.arguments.get(node.id)
        return node if text is None else ast.parse(text, mode="eval").body

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        self.generic_visit(node)
        if _is_constant(node.test):
            with contextlib.suppress(Exception):  # `None < 0` is not folded
                return node.body if _value(node.test) else node.orelse
        return node

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        """Slices in an index read `1:3`."""
        self.generic_visit(node)
        if _is_constant(node.slice) and not isinstance(node.slice, ast.Slice):
            with contextlib.suppress(Exception):  # `(1, 2)[5]`
                key = _value(node.slice)
                node.slice = _index(key)
        return node

    def visit_Return(self, node: ast.Return) -> ast.AST:
        """`return operator.setitem(a, 0, 1)` reads `a[0] = 1`."""
        match node.value:
            case ast.Call(func=ast.Attribute(ast.Name(id="operator"), "setitem"), args=[a, key, b]):
                target = ast.Subscript(a, key, ast.Store())
                return self.visit(ast.Assign([target], b))
        return self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """`getattr(torch, 'int64')` reads `torch.int64`, and `f(*[a, b])` reads `f(a, b)`."""
        self.generic_visit(node)
        node.args = [each for argument in node.args for each in _spread(argument)]
        match node:
            case ast.Call(
                func=ast.Name(id="getattr"), args=[owner, ast.Constant(value=str(name))]
            ) if name.isidentifier():
                return ast.Attribute(owner, name, ast.Load())
        return node


def _spread(argument: ast.expr) -> list[ast.expr]:
    match argument:
        case ast.Starred(value=ast.List(elts=elements)):
            return elements
    return [argument]


def _is_constant(node: ast.AST) -> bool:
    """Whether an expression contains literals and the names of `FOLDED` alone."""
    for each in ast.walk(node):
        match each:
            case ast.Name(id=name) if name not in FOLDED and name != "along":
                return False
            case (
                ast.Attribute() | ast.Starred() | ast.keyword() | ast.Lambda() | ast.comprehension()
            ):
                return False
    return isinstance(node, ast.expr) and not isinstance(node, ast.Name | ast.Slice)


def _value(node: ast.expr) -> object:
    expression = ast.Expression(_Sliced().visit(copy.deepcopy(node)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SyntaxWarning)  # `None is not 3`, after substitution
        code = compile(ast.fix_missing_locations(expression), __file__, "eval")
    return eval(code, {**FOLDED, "along": along, "__builtins__": {}})


class _Sliced(ast.NodeTransformer):
    """Replaces `1:3` by `slice(1, 3, None)`, which is an expression outside of an index too."""

    def visit_Slice(self, node: ast.Slice) -> ast.expr:
        self.generic_visit(node)
        ends = [each or ast.Constant(None) for each in (node.lower, node.upper, node.step)]
        return ast.Call(ast.Name("slice", ast.Load()), ends, [])


def _index(key: object) -> ast.expr:
    index = ast.parse(f"a[{index_text(key)}]", mode="eval").body
    assert isinstance(index, ast.Subscript)
    return index.slice


def _expression(value: object) -> ast.expr:
    return ast.parse(written(value), mode="eval").body


def index_text(key: object) -> str:
    """Returns an index as people write it between brackets, without a tuple's parentheses.

    >>> index_text((slice(1, None), ..., 0))
    '1:, ..., 0'
    """
    if type(key) is tuple and key:
        return ", ".join(map(_part_text, key))
    return _part_text(key)


def _part_text(part: object) -> str:
    if not isinstance(part, slice):
        return written(part)
    ends = ["" if end is None else written(end) for end in (part.start, part.stop, part.step)]
    return ":".join(ends if part.step is not None else ends[:2])


def is_constant(value: object) -> bool:
    """Whether `written` can print a value: numbers, texts, slices, and containers of these."""
    match value:
        case slice():
            return all(map(is_constant, (value.start, value.stop, value.step)))
        case dict() if type(value) is dict:
            return all(is_constant(each) for pair in value.items() for each in pair)
        case np.generic():
            return not isinstance(value, np.void)
    if type(value) in CONTAINERS:
        return all(map(is_constant, value))  # type: ignore[call-overload]
    return type(value) in SIMPLE


def written(value: object) -> str:
    """Returns an expression of a constant, with `np` for NumPy; nan and infinities too.

    >>> written((slice(1, None), 0, float("inf")))
    "(slice(1, None), 0, float('inf'))"
    """
    match value:
        case np.generic():
            return _scalar_text(value)
        case slice(start=start, stop=stop, step=step):
            ends = [start, stop] if start is not None else [stop]
            ends = ends if step is None else [start, stop, step]
            return f"slice({', '.join(map(written, ends))})"
        case tuple() | list() | set() | frozenset() | dict():
            return _container_text(value)
        case float() if not math.isfinite(value):
            return f"float('{value}')"
        case complex() if not _is_sum(value):
            return f"complex({written(value.real)}, {written(value.imag)})"
        case builtins.Ellipsis:
            return "..."
    return repr(value)


def _is_sum(value: complex) -> bool:
    """Whether `x+yj` is the number: both parts are finite, and no zero loses its sign."""
    if not cmath.isfinite(value):
        return False
    if value.real and value.imag:
        return True
    is_plus = math.copysign(1, value.imag) > 0
    return is_plus and (value.real != 0 or math.copysign(1, value.real) > 0)


def _container_text(value: Any) -> str:
    if isinstance(value, dict):
        inner = ", ".join(f"{written(key)}: {written(each)}" for key, each in value.items())
        return f"{{{inner}}}"
    if isinstance(value, frozenset):
        return f"frozenset({written(set(value)) if value else ''})"
    if isinstance(value, set):
        return f"{{{', '.join(sorted(map(written, value)))}}}" if value else "set()"
    inner = ", ".join(map(written, value))
    if isinstance(value, list):
        return f"[{inner}]"
    return f"({inner},)" if len(value) == 1 else f"({inner})"


def _scalar_text(value: np.generic) -> str:
    """Returns a NumPy scalar with its class; older versions of NumPy print the number alone."""
    plain = value.item()
    if type(plain) in (bool, int, float, complex):
        return f"np.{value.dtype.type.__name__}({written(plain)})"
    return repr(value)
