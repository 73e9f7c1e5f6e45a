"""`composite`: declares a PyTorch function that calls ops: what PyTorch calls CompositeImplicit.

Ground floor. A composite is written in operand methods, so that it runs in eager mode, under
capture and in passes; graphs hold the ops that it calls, never the composite. Its one declaration
also gives tensors and proxies the method, and `aotlite` the function. Where an op has the same
name, users get the composite, which may call the op. Spec: `specs/op_declaration.md`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from keyword import iskeyword
from typing import Any, TypeVar

import attrs

from aotlite.ir.errors import BUILTIN, AotliteError, ArgumentError, GraphError, in_op, in_words
from aotlite.ir.geometry.sizes import as_size
from aotlite.ir.op.binding import Binder
from aotlite.ir.op.named_results import results_of
from aotlite.ir.op.schema import REQUIRED, Schema, inplace_schema, parse_schema, respelled

F = TypeVar("F", bound=Callable[..., object])


@attrs.frozen(eq=False, repr=False)
class Composite:
    """A function of operands, numbers and sizes that calls ops."""

    name: str
    function: Callable[..., Any]
    schema: Schema | None = attrs.field(kw_only=True)
    """Its signature; None where no schema can express its arguments."""
    spread: bool = attrs.field(kw_only=True)
    """Sizes may be separate arguments: `x.flip(0, 1)` is `x.flip((0, 1))`."""
    is_property: bool = attrs.field(kw_only=True)
    is_method: bool = attrs.field(kw_only=True)
    """Operands have it as a method or a property."""
    is_assignable: bool = attrs.field(kw_only=True, default=False)
    """Assigning to the property copies the value into the memory that it shows."""
    another_name_of: str | None = attrs.field(kw_only=True, default=None)
    """The op or composite of which this is a second name."""
    _named: Any = attrs.field(init=False)
    """The named tuple of its results, if the schema names several."""

    @_named.default
    def _results(self) -> Any:
        return results_of(self.schema)

    _defaults: tuple[Any, ...] | None = attrs.field(init=False)
    """The defaults of all parameters after the first tensor, if each of them has one."""

    @_defaults.default
    def _all_defaults(self) -> tuple[object, ...] | None:
        if self.schema is None or not self.schema.parameters or self._named is not None:
            return None
        first, *rest = self.schema.parameters
        defaults = tuple(parameter.default for parameter in rest)
        alone = first.type.text == "Tensor" and REQUIRED not in defaults
        return defaults if alone else None

    call: Callable[..., Any] = attrs.field(init=False)
    """Binds the arguments and calls `function`. Raises ArgumentError where they do not fit."""

    @call.default
    def _caller(self) -> Callable[..., object]:
        return _checked(self) if self.schema is None else _bound(self, Binder(self.schema))

    def __call__(self, *args: object, **kwargs: object) -> Any:
        return self.call(*args, **kwargs)

    def __repr__(self) -> str:
        return f"composite {self.name}"


def _bound(made: Composite, binder: Binder) -> Callable[..., object]:
    """`Composite.call` for a schema. It is called often, so that it looks nothing up."""
    name, function, named, defaults = made.name, made.function, made._named, made._defaults
    spread, bind = made.spread, binder.bind

    def call(*args: Any, **kwargs: object) -> object:
        try:
            if defaults is not None and len(args) == 1 and not kwargs and hasattr(args[0], "meta"):
                return function(args[0], *defaults)  # nothing to bind
            if spread and (len(args) > 1 or not kwargs):
                args = gathered(args)
            result = function(*bind(args, kwargs))
            return result if named is None else named(*result)
        except AotliteError as error:
            raise in_op(error, name) from error.__cause__
        except BUILTIN as error:
            raise in_words(name, (*args, *kwargs.values()), error) from error.__cause__

    return call


def _checked(made: Composite) -> Callable[..., Any]:
    """`Composite.call` without a schema: the function's own signature binds the arguments."""
    name, function, spread = made.name, made.function, made.spread
    parameters = inspect.signature(function).parameters

    def call(*args: Any, **kwargs: object) -> object:
        if spread and (len(args) > 1 or not kwargs):
            args = gathered(args)
        try:
            return function(*args, **kwargs)
        except AotliteError as error:
            raise in_op(error, name) from error.__cause__
        except BUILTIN as error:
            raise in_words(name, (*args, *kwargs.values()), error) from error.__cause__
        except (TypeError, AttributeError) as error:
            again = respelled(kwargs, parameters)
            if again.keys() != kwargs.keys():
                return call(*args, **again)
            _check_fits(name, function, args, kwargs)
            _check_tensors(name, function, args, kwargs)
            raise error

    return call


_TENSORS = frozenset("self input tensor target A".split())
"""Parameters of composites without a schema that are always tensors."""


def _check_tensors(
    name: str, function: Callable[..., Any], args: tuple[object, ...], kwargs: dict[str, Any]
) -> None:
    """Raises ArgumentError for an argument that must be a tensor, and is not: why a call failed."""
    given = inspect.signature(function).bind(*args, **kwargs).arguments
    for parameter, value in given.items():
        if parameter in _TENSORS and not hasattr(value, "meta"):
            raise ArgumentError(f"{name}: argument '{parameter}' is {value!r}, expected a tensor")


def _check_fits(
    name: str, function: Callable[..., Any], args: tuple[object, ...], kwargs: dict[str, Any]
) -> None:
    signature = inspect.signature(function)
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        plain = [p.replace(annotation=p.empty) for p in signature.parameters.values()]
        raise ArgumentError(
            f"{name}: the call does not fit ({error}), expected {name}{inspect.Signature(plain)}"
        ) from None


COMPOSITES: dict[str, Composite] = {}
"""Every composite by name."""


def composite(
    schema: str | None = None,
    *,
    name: str | None = None,
    spread: bool = False,
    is_property: bool = False,
    is_method: bool = True,
    is_assignable: bool = False,
    inplace: bool | str = False,
    aliases: str = "",
) -> Callable[[F], F]:
    """Declares the decorated function as a composite, and returns the function itself.

    With a schema the arguments are checked and converted like an op's, and the name is the
    schema's. Without one the function gets the arguments unchanged, and the name is `name` or the
    function's. `aliases` are other names of the composite, separated by spaces.

    With `inplace`, which may be its help text, the in-place form is declared too. The function then
    takes `end`, which is "_" in that form and "" in the other one, and calls an op of that ending:

        @composite("square(Tensor self) -> Tensor", inplace=True)
        def square(self, end=""):
            return self._do("pow" + end, 2)
    """
    parsed = None if schema is None else parse_schema(schema)

    def declare(function: F) -> F:
        own = name or (function.__name__ if parsed is None else parsed.name)
        made = Composite(
            own,
            function,
            schema=parsed,
            spread=spread,
            is_property=is_property,
            is_method=is_method,
            is_assignable=is_assignable,
        )
        for each in (made, _inplace_form(made, inplace)) if inplace else (made,):
            _declare(each)
            also_named(each, aliases, end=each.name.removeprefix(own))
        return function

    return declare


def _declare(made: Composite) -> None:
    if made.name in COMPOSITES:
        raise GraphError(f"ops: the composite {made.name!r} is declared twice, expected once")
    COMPOSITES[made.name] = made


def _inplace_form(made: Composite, doc: bool | str) -> Composite:
    """The composite `f_` of `f`, whose function takes `end`."""
    function, name = made.function, made.name + "_"

    def call(*args: Any) -> Any:
        return function(*args, end="_")

    call.__doc__ = f"`{made.name}` in place." if doc is True else str(doc)
    assert made.schema is not None
    return attrs.evolve(made, name=name, function=call, schema=inplace_schema(made.schema, name))


def also_named(made: Any, aliases: str, *, end: str = "") -> None:
    """Declares second names of an op or a composite, each as a composite with the same schema."""
    for alias in aliases.split():
        own = made.name
        function = made.function if isinstance(made, Composite) else _caller_of(own)
        schema = attrs.evolve(made.schema, name=alias + end)
        _declare(
            Composite(
                alias + end,
                function,
                schema=schema,
                spread=False,
                is_property=False,
                is_method=True,
                another_name_of=own,
            )
        )


def _caller_of(op: str) -> Callable[..., object]:
    def call(self: Any, *args: Any) -> object:
        return self._do(op, *args)

    call.__doc__ = f"Another name of `{op}`."
    return call


_INT = frozenset((int,))


def gathered(args: tuple[object, ...]) -> tuple[Any, ...]:
    """(operand, sizes...) as (operand, (sizes...)); other arguments are returned unchanged."""
    rest = args[1:]
    if len(rest) == 1 and type(rest[0]) is tuple:
        return args
    if args and (_INT.issuperset(map(type, rest)) or all(as_size(v) is not None for v in rest)):
        return args[0], rest
    return args


def face_of(made: Composite) -> Callable[..., object]:
    """The function that users call, with the composite's name and help text."""
    described(made.call, made.name, made.function.__doc__, made.schema)
    return made.call


def described(
    function: Callable[..., object], name: str, doc: str | None, schema: Schema | None
) -> None:
    """Gives a generated function its name, its help text and its signature."""
    function.__name__ = function.__qualname__ = name
    if schema is not None and not any(iskeyword(each.name) for each in schema.parameters):
        function.__signature__ = _signature(schema)  # type: ignore[attr-defined]
    shown = "" if schema is None else str(schema)
    function.__doc__ = "\n\n".join(dict.fromkeys(text for text in (doc, shown) if text))


def _signature(schema: Schema) -> inspect.Signature:
    """The schema as a Python signature, which `help` shows."""
    kinds = inspect.Parameter
    return inspect.Signature(
        [
            inspect.Parameter(
                each.name,
                kinds.KEYWORD_ONLY if each.keyword_only else kinds.POSITIONAL_OR_KEYWORD,
                default=kinds.empty if each.default is REQUIRED else each.default,
            )
            for each in schema.parameters
        ]
    )
