"""`Schema`: the signature of an op, parsed from PyTorch's schema language.

Ground floor. `parse_schema` reads a line such as
`"select(Tensor(a) self, int dim, int index) -> Tensor(a)"`. `Schema.bind` turns the arguments of a
call into one canonical tuple. Alias marks are PyTorch's: values with the mark `(a)` share memory,
and `(a!)` is written. The op's meta rule checks whether the arguments fit one another.
"""

from __future__ import annotations

import ast
import enum
import functools
import re
import reprlib
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final, NoReturn

import attrs

from aotlite.ir.dtypes import advice_on_ndarrays
from aotlite.ir.errors import ArgumentError, noted, too_long
from aotlite.ir.op.parameter_types import PARAMETER_TYPES, UNFIT, ParameterType
from aotlite.ir.symbols.floats.size_float import SizeFloat
from aotlite.ir.symbols.python_number import plain
from aotlite.ir.symbols.symint import SymInt

__all__ = [
    "PARAMETER_TYPES",
    "REQUIRED",
    "WHICH",
    "AliasMark",
    "ParameterType",
    "Required",
    "Return",
    "Schema",
    "SchemaParameter",
    "parse_schema",
    "respelled",
]


class Required(enum.Enum):
    """The type of `REQUIRED`, the default of a parameter that has none."""

    REQUIRED = "required"


REQUIRED: Final = Required.REQUIRED
WHICH: Final = frozenset(
    ("dim", "dims", "dim0", "dim1", "dim2", "dimension", "axis0", "axis1", "source", "destination")
    + ("start_dim", "end_dim", "concat_dim", "split_dim")
)
"""Int parameters that name a dimension: numbers, also where a user passes a symbol. Any other int
argument may be computed from sizes."""


# ---------------------------------------------------------------------------------------- schema
@attrs.frozen
class AliasMark:
    """An alias mark: values of one group share memory; `writes` is set for `(a!)`."""

    group: str
    writes: bool

    def __str__(self) -> str:
        return f"({self.group}!)" if self.writes else f"({self.group})"


@attrs.frozen
class SchemaParameter:
    """One parameter of an op. `default` is REQUIRED where there is none."""

    name: str
    type: ParameterType
    default: object = attrs.field(kw_only=True, default=REQUIRED)
    keyword_only: bool = attrs.field(kw_only=True, default=False)
    alias: AliasMark | None = attrs.field(kw_only=True, default=None)

    def __str__(self) -> str:
        tail = "" if self.default is REQUIRED else f"={_literal(self.default)}"
        return f"{_marked(self.type.text, self.alias)} {self.name}{tail}"


@attrs.frozen
class Return:
    """One result of an op: a tensor, or a tuple of tensors. `name` is empty where there is none."""

    name: str
    alias: AliasMark | None = attrs.field(default=None)
    is_list: bool = attrs.field(kw_only=True, default=False)

    def __str__(self) -> str:
        text = _marked("Tensor[]" if self.is_list else "Tensor", self.alias)
        return f"{text} {self.name}" if self.name else text


def _marked(type_text: str, alias: AliasMark | None) -> str:
    return type_text if alias is None else type_text.replace("Tensor", f"Tensor{alias}", 1)


def _literal(default: object) -> str:
    if isinstance(default, tuple):
        return f"[{', '.join(map(str, default))}]"
    return repr(default)


SPELLINGS: Final = {
    "axis": "dim",
    "keepdims": "keepdim",
    "input": "self",
    "tensor": "self",
    "split_size_or_sections": "split_size",
    "sections": "indices_or_sections",
    "indices": "indices_or_sections",
}
"""Other names of parameters that PyTorch accepts: NumPy's, and those of its own functions."""


def respelled(kwargs: Mapping[str, object], names: Collection[str]) -> Mapping[str, object]:
    """The arguments under the `names` of the parameters, with other spellings replaced.

    >>> respelled({"axis": 0, "keepdim": True}, ("self", "dim", "keepdim"))
    {'dim': 0, 'keepdim': True}
    """
    if all(name in names for name in kwargs):
        return kwargs
    own = {name: SPELLINGS.get(name, name) for name in kwargs if name not in names}
    meant = {old: new for old, new in own.items() if new in names and new not in kwargs}
    return {meant.get(name, name): value for name, value in kwargs.items()}


@attrs.frozen
class Schema:
    """The signature of an op; `str()` gives the text that `parse_schema` reads.

    >>> schema = parse_schema("sum(Tensor self, int[]? dim=None, bool keepdim=False) -> Tensor")
    >>> schema.parameters[1].name, schema.parameters[1].default
    ('dim', None)
    """

    name: str
    parameters: tuple[SchemaParameter, ...]
    returns: tuple[Return, ...] = attrs.field(kw_only=True)
    _positional: int = attrs.field(init=False, eq=False, repr=False)
    """The number of parameters that are not keyword-only."""

    _names: frozenset[str] = attrs.field(init=False, eq=False, repr=False)

    @_names.default
    def _names_of_parameters(self) -> frozenset[str]:
        return frozenset(each.name for each in self.parameters)

    @_positional.default
    def _count_positional(self) -> int:
        return sum(not each.keyword_only for each in self.parameters)

    def bind(self, args: tuple[object, ...], kwargs: Mapping[str, object]) -> tuple[object, ...]:
        """All arguments in canonical form and in the order of the parameters.

        Lists become tuples, an int given for an `int[]` becomes a tuple, and NumPy numbers become
        Python numbers. Defaults are filled in. Raises ArgumentError for anything that does not fit.

        >>> schema = parse_schema("roll(int[] shifts, int dim=0, *, float by=1.0) -> Tensor")
        >>> schema.bind((3,), {"by": 2})
        ((3,), 0, 2.0)
        """
        if kwargs or len(args) != len(self.parameters) or len(args) != self._positional:
            args = self._arranged(args, kwargs)
        bound = []
        for value, parameter in zip(args, self.parameters, strict=True):
            type_ = parameter.type
            if type(value) not in type_.as_is:
                converted = type_.convert(value)
                if converted is UNFIT:
                    raise self._unfit(parameter, value)
                value = converted if parameter.name not in WHICH else _which(converted)
            bound.append(value)
        return tuple(bound)

    def given(self, bound: tuple[object, ...]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """(positional, keyword) arguments of a call that `bind` turns into `bound`.

        Keyword-only arguments that equal their default are left out.

        >>> schema = parse_schema("roll(int[] shifts, int dim=0, *, float by=1.0) -> Tensor")
        >>> schema.given(((3,), 0, 2.0)), schema.given(((3,), 0, 1.0))
        ((((3,), 0), {'by': 2.0}), (((3,), 0), {}))
        """
        count = self._positional
        if len(bound) == count:
            return bound, {}
        pairs = zip(self.parameters[count:], bound[count:], strict=True)
        return bound[:count], {p.name: v for p, v in pairs if v != p.default}

    def _arranged(
        self, args: tuple[object, ...], kwargs: Mapping[str, object]
    ) -> tuple[object, ...]:
        """The unconverted arguments by position, defaults filled in."""
        kwargs = respelled(kwargs, self._names)
        if len(args) > self._positional:
            what = f"number of positional arguments is {len(args)}"
            raise self._refusal(what, f"at most {self._positional}")
        arranged = list(args)
        unused = len(kwargs)
        for parameter in self.parameters[len(args) :]:
            name = parameter.name
            if name in kwargs:
                arranged.append(kwargs[name])
                unused -= 1
            elif parameter.default is REQUIRED:
                raise self._refusal(f"argument '{name}' is missing", parameter.type)
            else:
                arranged.append(parameter.default)
        if unused:
            raise self._surplus(len(args), kwargs)
        return tuple(arranged)

    def _unfit(self, parameter: SchemaParameter, value: object) -> ArgumentError:
        if type(value) is SymInt or type(value) is SizeFloat:
            value = value.plain()
        if type(value) is int and "Scalar" in parameter.type.text:
            return self._refusal(*too_long(value))
        what = f"argument '{parameter.name}' is {_described(value)}"
        advice = advice_on_ndarrays(value) if parameter.type.holds_tensor else None
        return noted(self._refusal(what, parameter.type), advice)

    def _surplus(self, positional: int, kwargs: Mapping[str, object]) -> ArgumentError:
        names = [each.name for each in self.parameters]
        for name in kwargs:
            if name not in names:
                return self._refusal(
                    f"argument '{name}' is unexpected", f"one of {', '.join(names)}"
                )
        name = next(name for name in kwargs if name in names[:positional])
        return self._refusal(f"argument '{name}' is given by position and by name", "one of them")

    def _refusal(self, what: str, expected: object) -> ArgumentError:
        return noted(ArgumentError(f"{self.name}: {what}, expected {expected}"), f"schema: {self}")

    def __str__(self) -> str:
        items: list[str] = []
        for parameter in self.parameters:
            if parameter.keyword_only and "*" not in items:
                items.append("*")
            items.append(str(parameter))
        results = ", ".join(map(str, self.returns))
        if len(self.returns) != 1 or self.returns[0].name:
            results = f"({results})"
        return f"{self.name}({', '.join(items)}) -> {results}"

    def __reduce__(self) -> tuple[Callable[[str], Schema], tuple[str]]:
        return parse_schema, (str(self),)


def _which(value: object) -> object:
    """The dimensions with their values for symbols, which are assumed then."""
    kinds = map(type, value) if type(value) is tuple else (type(value),)
    return plain(value) if SymInt in kinds else value


_PLAIN: Final = frozenset((type(None), bool, int, float, complex, str))


def _described(value: object) -> str:
    """The value where it is plain, else its type: printing a tensor may run ops."""
    if type(value) is int and value.bit_length() > 256:  # Python refuses to print long ones
        return f"an int of {value.bit_length()} bits"
    items = value if isinstance(value, (tuple, list)) else (value,)
    if all(type(each) in _PLAIN or hasattr(each, "with_value") for each in items):
        return reprlib.repr(value)
    kind = value.__class__  # of what stands for an ndarray, NumPy's
    return f"a {kind.__module__}.{kind.__qualname__}".replace("builtins.", "")


# --------------------------------------------------------------------------------------- parsing
_NAME: Final = re.compile(r"([A-Za-z_][A-Za-z0-9_]*) *")
_TYPE: Final = re.compile(r"([A-Za-z_]+)(\([a-z]+!?\))?((?:\|[A-Za-z]+)?\??(?:\[\])?\??) *")
_LITERAL: Final = re.compile(r"('(?:[^'\\]|\\.)*'|\[[^\]]*\]|[^\s,()]+) *")
_literal_value = functools.cache(ast.literal_eval)


def inplace_schema(schema: Schema, name: str) -> Schema:
    """The schema of an in-place form: the first operand is written, and returned."""
    first, *rest = schema.parameters
    return parse_schema(f"{name}(Tensor(a!) {first.name}{listed(rest)}) -> Tensor(a!)")


def listed(parameters: Sequence[SchemaParameter]) -> str:
    """The text of parameters, each after a comma, to continue a schema."""
    keyword_only = [p for p in parameters if p.keyword_only]
    words = [str(p) for p in parameters if not p.keyword_only]
    if keyword_only:
        words += ["*", *map(str, keyword_only)]
    return "".join(", " + word for word in words)


def parse_schema(text: str) -> Schema:
    """The schema of this text. Raises ArgumentError, which points at the first wrong column.

    >>> print(parse_schema("t_(Tensor(a!) self)->Tensor(a!)"))
    t_(Tensor(a!) self) -> Tensor(a!)
    """
    return _Parser(text).schema()


class _Parser:
    """Reads a schema from left to right; `at` is the column of the next character."""

    __slots__ = ("at", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0

    def schema(self) -> Schema:
        name = self.match(_NAME, "the name of an op")[1]
        self.expect("(")
        parameters = self.parameters()
        self.expect("->")
        returns = self.returns({each.alias for each in parameters if each.alias is not None})
        if self.at < len(self.text):
            self.fail("the end")
        return Schema(name, parameters, returns=returns)

    def parameters(self) -> tuple[SchemaParameter, ...]:
        found: list[SchemaParameter] = []
        keyword_only = False
        while not self.skip(")"):
            if found or keyword_only:
                self.expect(",")
            if not keyword_only and self.skip("*"):
                keyword_only = True
                self.expect(",")
            found.append(self.parameter(found, keyword_only=keyword_only))
        return tuple(found)

    def parameter(self, before: list[SchemaParameter], *, keyword_only: bool) -> SchemaParameter:
        type_, alias = self.type()
        start = self.at
        name = self.match(_NAME, "the name of a parameter")[1]
        if any(each.name == name for each in before):
            self.fail("a name not used before", at=start)
        default = self.default(type_) if self.skip("=") else REQUIRED
        follows_default = bool(before) and before[-1].default is not REQUIRED
        if default is REQUIRED and follows_default and not keyword_only:
            self.fail("'=', as the parameter before has a default")
        return SchemaParameter(name, type_, default=default, keyword_only=keyword_only, alias=alias)

    def type(self) -> tuple[ParameterType, AliasMark | None]:
        start = self.at
        match = self.match(_TYPE, "a type")
        head, mark, tail = match.groups()
        found = PARAMETER_TYPES.get(head + tail)
        if found is None or (mark and head != "Tensor"):
            self.fail("a type", at=start)
        return found, AliasMark(mark.strip("(!)"), "!" in mark) if mark else None

    def default(self, type_: ParameterType) -> object:
        start = self.at
        literal = self.match(_LITERAL, "a default")[1]
        try:
            value = type_.canonical(_literal_value(literal))
        except (ValueError, SyntaxError):
            value = UNFIT
        if value is UNFIT:
            self.fail(f"a default of type {type_}", at=start)
        return value

    def returns(self, aliases: set[AliasMark]) -> tuple[Return, ...]:
        if not self.skip("("):
            return (self.returned(aliases),)
        found: list[Return] = []
        while not self.skip(")"):
            if found:
                self.expect(",")
            found.append(self.returned(aliases))
        return tuple(found)

    def returned(self, aliases: set[AliasMark]) -> Return:
        start = self.at
        type_, alias = self.type()
        if type_.text not in ("Tensor", "Tensor[]"):
            self.fail("Tensor or Tensor[]", at=start)
        if alias is not None and alias not in aliases:
            self.fail("an alias mark that a parameter has", at=start)
        name = self.match(_NAME, "a name")[1] if _NAME.match(self.text, self.at) else ""
        return Return(name, alias, is_list=type_.text == "Tensor[]")

    def match(self, pattern: re.Pattern[str], what: str) -> re.Match[str]:
        match = pattern.match(self.text, self.at)
        if match is None:
            self.fail(what)
        self.at = match.end()
        return match

    def expect(self, token: str) -> None:
        if not self.skip(token):
            self.fail(f"'{token}'")

    def skip(self, token: str) -> bool:
        """Whether the token comes next; consumes it and the spaces after it if so."""
        if not self.text.startswith(token, self.at):
            return False
        self.at += len(token)
        while self.text[self.at : self.at + 1] == " ":
            self.at += 1
        return True

    def fail(self, expected: str, *, at: int | None = None) -> NoReturn:
        column = self.at if at is None else at
        got = f"{self.text[column]!r}" if column < len(self.text) else "the end"
        error = ArgumentError(f"schema: column {column + 1} is {got}, expected {expected}")
        raise noted(error, self.text, " " * column + "^")
