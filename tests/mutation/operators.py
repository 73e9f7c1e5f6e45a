"""The mutation operators: those of cosmic-ray, and usual ones that it lacks.

Of cosmic-ray's: comparisons, arithmetic, numbers, `and`/`or`, `not`, booleans, `break`/`continue`,
loops without iteration, exceptions that are caught. Ours: statements deleted, conditions that are
always true or false, operands of `and`/`or` left out, `in` against `not in`, results left out,
arguments in another order.

Not used: any other comparison in the place of `is` than `is not` (objects are equal iff identical
here, and not ordered), and `is` in the place of `==`; decorators left out (a class without `attrs`
does not import; a function without `cache` is as before); replaced variables, which cosmic-ray
wants named.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import parso
from cosmic_ray.operators.operator import Example, Operator
from cosmic_ray.operators.provider import OperatorProvider

Position = tuple[tuple[int, int], tuple[int, int]]


def _position(node: Any) -> Position:
    return node.start_pos, node.end_pos


def _parsed(text: str) -> Any:
    return parso.parse(text)


class _OneWay(Operator):
    """An operator that has one way to change a node."""

    def concerns(self, node: Any) -> bool:
        """Whether the node can be changed."""
        raise TypeError("the class of an operator says what it concerns")

    def mutation_positions(self, node: Any) -> Iterator[Position]:
        if self.concerns(node):
            yield _position(node)

    @classmethod
    def examples(cls) -> Iterable[Example]:
        return ()


class DeleteStatement(_OneWay):
    """Replaces an assignment, a call, a raise or a `del` by `pass`."""

    def concerns(self, node: Any) -> bool:
        if node.type != "simple_stmt":
            return False
        first = node.children[0]
        if first.type == "expr_stmt":
            # `name: type` has no effect but in the body of a class, where it is a field.
            return not any(child.type == "annassign" for child in first.children)
        return first.type in ("atom_expr", "raise_stmt", "del_stmt")

    def mutate(self, node: Any, index: int) -> Any:
        nothing = _parsed("pass").children[0]
        nothing.prefix = node.get_first_leaf().prefix
        node.children[0] = nothing
        return node


class ReturnNone(_OneWay):
    """Leaves the result out of a `return`."""

    def concerns(self, node: Any) -> bool:
        # None in place of False makes no difference.
        return node.type == "return_stmt" and node.children[1].get_code().strip() not in _NO

    def mutate(self, node: Any, index: int) -> Any:
        node.children[1] = _parsed(" None")
        return node


_NO = ("None", "False")


class ForceCondition(Operator):
    """Makes a condition `True`, or `False`: of `if`, `elif`, `while` and comprehensions."""

    def mutation_positions(self, node: Any) -> Iterator[Position]:
        for place in self._places(node):
            yield from [_position(node.children[place])] * 2

    @staticmethod
    def _places(node: Any) -> list[int]:
        match node.type:
            case "if_stmt":
                return [i + 1 for i, child in enumerate(node.children) if child in ("if", "elif")]
            case "while_stmt" | "comp_if":
                return [1]
            case "ternary" | "test":
                return [2]
        return []

    def mutate(self, node: Any, index: int) -> Any:
        place = self._places(node)[index // 2]
        node.children[place] = _parsed(" False" if index % 2 else " True")
        return node

    @classmethod
    def examples(cls) -> Iterable[Example]:
        return (Example("if a: pass", "if True: pass"), Example("if a: pass", "if False: pass", 1))


class DropOperand(Operator):
    """Leaves one operand out of `a and b`, or of `a or b`."""

    def mutation_positions(self, node: Any) -> Iterator[Position]:
        if node.type in ("and_test", "or_test"):
            for operand in node.children[::2]:
                yield _position(operand)

    def mutate(self, node: Any, index: int) -> Any:
        prefix = node.get_first_leaf().prefix
        place = max(2 * index - 1, 0)
        del node.children[place : place + 2]
        node.get_first_leaf().prefix = prefix or " "
        return node

    @classmethod
    def examples(cls) -> Iterable[Example]:
        return (Example("a and b", " b"), Example("a and b", "a", 1))


class SwapMembership(Operator):
    """Replaces `in` by `not in`, and the reverse."""

    def mutation_positions(self, node: Any) -> Iterator[Position]:
        if node.type == "comparison":
            for child in node.children[1::2]:
                if child.get_code().split() in (["in"], ["not", "in"]):
                    yield _position(child)

    def mutate(self, node: Any, index: int) -> Any:
        places = [
            place
            for place in range(1, len(node.children), 2)
            if node.children[place].get_code().split() in (["in"], ["not", "in"])
        ]
        place = places[index]
        positive = node.children[place].get_code().split() == ["in"]
        node.children[place] = _parsed(" not in" if positive else " in")
        return node

    @classmethod
    def examples(cls) -> Iterable[Example]:
        return (Example("a in b", "a not in b"),)


class SwapArguments(_OneWay):
    """Exchanges the first two positional arguments of a call."""

    def concerns(self, node: Any) -> bool:
        if node.type != "arglist" or node.parent is None or node.parent.type != "trailer":
            return False
        first, second = node.children[0], dict(enumerate(node.children)).get(2)
        if second is None or "argument" in (first.type, second.type):
            return False
        texts = {each.get_code().strip() for each in (first, second)}
        return len(texts) == 2

    def mutate(self, node: Any, index: int) -> Any:
        first, second = node.children[0], node.children[2]
        prefixes = first.get_first_leaf().prefix, second.get_first_leaf().prefix
        second.get_first_leaf().prefix, first.get_first_leaf().prefix = prefixes
        node.children[0], node.children[2] = second, first
        return node


OWN: tuple[type[Operator], ...] = (
    DeleteStatement,
    ReturnNone,
    ForceCondition,
    DropOperand,
    SwapMembership,
    SwapArguments,
)

_LEFT_OUT = {"RemoveDecorator", "VariableReplacer", "VariableInserter"}


def _is_odd(name: str) -> bool:
    """Whether an operator replaces `is` by another comparison than `is not`, or another by `is`."""
    _, _, change = name.partition("ReplaceComparisonOperator_")
    return "Is" in change and change not in ("Is_IsNot", "IsNot_Is")


def _of_the_library() -> dict[str, Operator]:
    provider = OperatorProvider()
    return {
        name: provider[name]() for name in provider if name not in _LEFT_OUT and not _is_odd(name)
    }


def all_operators() -> dict[str, Operator]:
    """All operators by name."""
    return {**_of_the_library(), **{each.__name__: each() for each in OWN}}


def kinds_of(operators: dict[str, Operator]) -> dict[str, list[str]]:
    """The names of the operators that can concern a node, by parso's type of the node.

    The types of leaves are those of their tokens; all nodes with children are "inner".
    """
    kinds: dict[str, list[str]] = {"operator": [], "keyword": [], "number": [], "inner": []}
    for name in operators:
        if name.startswith("ReplaceBinaryOperator"):
            kinds["operator"].append(name)
        elif name == "NumberReplacer":
            kinds["number"].append(name)
        elif name.startswith(("ReplaceTrue", "ReplaceFalse", "ReplaceAnd", "ReplaceOr")):
            kinds["keyword"].append(name)
        elif name.startswith(("ReplaceBreak", "ReplaceContinue")):
            kinds["keyword"].append(name)
        else:
            kinds["inner"].append(name)
    return kinds


def family_of(name: str) -> str:
    """The family of an operator: its changes at one position are one site."""
    for family in ("BinaryOperator", "ComparisonOperator", "UnaryOperator"):
        if family in name:
            return family
    conditions = ("AddNot", "ForceCondition")
    return "Condition" if name in conditions else name
