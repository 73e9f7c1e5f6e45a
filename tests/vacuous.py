"""Finds tests that cannot fail, in the text of a module: plain functions of its tree.

A complaint says the line and what is wrong. A test is a function `test_*`. An assertion may stand
in a helper, of the module or of another one of `tests`, which is looked into by its name.
"""

import ast
import functools
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
CHECKS = re.compile(
    r"^(assert|check|expect|verify|lint|(raises|warns|fail|run_machine|law|shows|try_cuda)$)"
)
"""Names of functions from elsewhere that raise where something is not as it should be."""


@functools.cache
def _module(name):
    path = ROOT / Path(*name.split(".")).with_suffix(".py")
    return ast.parse(path.read_text("utf-8")) if path.is_file() else ast.Module([], [])


_CHECKING: dict[str, set[str]] = {}
"""The checking names of each module that was looked into; none while it is looked into."""


def _checking_names_of(name):
    if name not in _CHECKING:
        _CHECKING[name] = set()
        _CHECKING[name] = checking_names(_module(name))
    return _CHECKING[name]


def checking_names(tree):
    """The names under which a module has functions and classes that can fail, imported ones too."""
    return _checking_names(tree, _telling(tree))


def _checking_names(tree, telling):
    found = set()
    for node in tree.body:
        match node:
            case ast.ImportFrom(module=str(name), names=names) if name.startswith("tests"):
                there = _checking_names_of(name)
                found |= {each.asname or each.name for each in names if each.name in there}
    while True:
        more = {
            each.name
            for each, nodes in telling.items()
            if each.name not in found
            and any(isinstance(node, ast.Raise) or _can_fail(node, found) for node in nodes)
        }
        if not more:
            return found
        found |= more


_TELLING = (ast.Raise, ast.Assert, ast.With, ast.Call, ast.arg, ast.keyword)


def _telling(tree):
    """For each function and class the nodes in it that say whether it can fail.

    All are found in one walk: the suite has two million nodes.
    """
    found = {}
    nodes = []

    def visit(node):
        start = len(nodes)
        if isinstance(node, _TELLING):
            nodes.append(node)
        for value in vars(node).values():
            if isinstance(value, list):
                for each in value:
                    if isinstance(each, ast.AST):
                        visit(each)
            elif isinstance(value, ast.AST) and not isinstance(value, ast.expr_context):
                visit(value)
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found[node] = nodes[start:]

    visit(tree)
    return found


def complaints(tree):
    """(line, what) for each test of a module that cannot fail, or an assertion that cannot."""
    telling = _telling(tree)
    names = _checking_names(tree, telling)
    for function, nodes in telling.items():
        if isinstance(function, ast.FunctionDef) and function.name.startswith("test_"):
            yield from _of_test(function, nodes, names)


def _of_test(function, nodes, names):
    for node in nodes:
        match node:
            case ast.Assert(test=test):
                reason = _vacuous(test)
                if reason:
                    yield node.lineno, reason
            case ast.With(items=items, body=body) if _raising(items):
                first = [each for each in body[:-1] if not _only_prepares(each)]
                if first and not isinstance(body[-1], ast.Raise):
                    yield node.lineno, "raises over several statements: any may raise, and ends"
    if not any(_can_fail(node, names) for node in nodes):
        yield function.lineno, "no assertion: only an error can fail it"


def _vacuous(test):
    """Why an asserted expression is always true; None where it may be false."""
    match test:
        case ast.Constant(value=value) if value:
            return "a constant is asserted"
        case ast.Tuple(elts=[_, *_]):
            return "a tuple that is not empty is asserted"
        case ast.List(elts=[_, *_]) | ast.Dict(keys=[_, *_]) | ast.Set(elts=[_, *_]):
            return "a display that is not empty is asserted"
        case ast.JoinedStr(values=values) if any(_vacuous(each) for each in values):
            return "a text that is not empty is asserted"
        case ast.Lambda() | ast.GeneratorExp():
            return "an object that is always true is asserted"
        case ast.BoolOp(op=ast.Or(), values=values) if any(map(_vacuous, values)):
            return "one side of an `or` is always true"
        case ast.BoolOp(op=ast.And(), values=values):
            return next(filter(None, map(_vacuous, values)), None)
        case ast.Compare(left=left, ops=[op], comparators=[right]):
            return _vacuous_comparison(left, op, right)
        case ast.Call(func=ast.Name(id="all"), args=[ast.GeneratorExp(elt=element)]):
            reason = _vacuous(element)
            return reason and f"of each: {reason}"
        case ast.Call(func=ast.Name(id="isinstance"), args=[_, ast.Name(id="object")]):
            return "everything is an object"
    return None


def _vacuous_comparison(left, op, right):
    runs = (ast.Call, ast.Attribute) if isinstance(op, ast.Is) else ast.Call  # of a property
    is_pure = not any(isinstance(each, runs) for each in ast.walk(left))
    if ast.dump(left) == ast.dump(right) and is_pure and isinstance(op, ast.Eq | ast.Is | ast.LtE):
        return "a thing is compared with itself"
    if isinstance(left, ast.Constant) and isinstance(right, ast.Constant):
        return "two constants are compared"
    match op, right:
        case ast.In(), ast.Tuple(elts=[ast.Constant(), ast.Constant()] as both):
            if {repr(each.value) for each in both} == {"True", "False"}:
                return "whether something is True or False is always so"
        case ast.GtE(), ast.Constant(value=0) if _is_size(left):
            return "a size is never below 0"
    match left, op:
        case ast.Constant(value=0), ast.LtE() if _is_size(right):
            return "a size is never below 0"
    return None


def _is_size(node):
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "len"


def _raising(items):
    """Whether a `with` block is one that something in it has to raise."""
    names = [ast.unparse(each.context_expr.func) for each in items
             if isinstance(each.context_expr, ast.Call)]  # fmt: skip
    return any(name in ("pytest.raises", "raises") for name in names)


def _only_prepares(statement):
    """Whether a statement makes something ready: a function, a name, what a fixture patches."""
    match statement:
        case ast.FunctionDef() | ast.ClassDef() | ast.Pass() | ast.Import() | ast.ImportFrom():
            return True
        case ast.Assign(value=ast.Constant() | ast.Name() | ast.Lambda()):
            return True
        case ast.Expr(value=ast.Call(func=ast.Attribute(attr="setattr" | "setenv" | "chdir"))):
            return True
    return False


def _can_fail(node, names):
    match node:
        case ast.Assert():
            return True
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)):
            return name in names or bool(CHECKS.search(name))
        case ast.arg(arg=name):  # a fixture
            return name in names
        case ast.keyword(arg="verify", value=ast.Constant(value=value)):
            return bool(value)
    return False
