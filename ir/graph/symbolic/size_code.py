"""`SizeCode`: one generated function that computes all that a text for many sizes needs as numbers.

    sizes["s0"] = 6    ->    n0 = a0 * a1; n1 = a0 // 2;  return (n0, (n1, 4), meta((n0,), ...))

Each expression is computed once for a vector of sizes, however many values have it. A value without
symbols is a constant of the function. Ground floor. Spec: `specs/size_regions.md` (DYN-41).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs

from aotlite.ir.symbols.calls import Call, Computed
from aotlite.ir.symbols.polynomial import Atom, Symbol
from aotlite.ir.symbols.proving import Demands
from aotlite.ir.symbols.symint import SymInt

__all__ = ["SizeCode", "holding"]

Values = Callable[[Mapping[str, int]], tuple[Any, ...]]


@attrs.define(eq=False, repr=False)
class SizeCode:
    """Lines of Python that compute expressions of sizes.

    >>> from aotlite.ir.symbols.table import SymbolTable
    >>> s0 = SymbolTable().size(6, "x.shape[0]")
    >>> code = SizeCode()
    >>> code.function([code.text((s0 // 2, 4)), code.call(max, 3, s0)])({"s0": 9})
    ((4, 4), 9)
    """

    putting: Callable[[Mapping[str, int]], Callable[[Any], Any]] | None = None
    """From sizes to the function that puts them into an object of any class, which it returns
    itself where it holds none."""
    hints: Mapping[str, int] = attrs.field(factory=dict)
    """Some sizes: those by which objects are found in which there are symbols."""
    lines: list[str] = attrs.field(factory=list)
    scope: dict[str, Any] = attrs.field(factory=dict)
    _atoms: dict[Atom, str] = attrs.field(factory=dict)
    _numbers: dict[SymInt, str] = attrs.field(factory=dict)
    _calls: dict[str, str] = attrs.field(factory=dict)
    _constants: dict[int, str] = attrs.field(factory=dict)
    _probe: Callable[[Any], Any] | None = None

    def has_sizes(self, value: Any) -> bool:
        """Whether a value is another one for other sizes."""
        kind = type(value)
        if kind is tuple:
            return any(map(self.has_sizes, value))
        if kind is SymInt or kind is int:
            return kind is SymInt
        if hasattr(value, "concrete") and kind is not type:
            return getattr(value, "table", None) is not None
        if self._probe is None and self.putting is not None:
            self._probe = self.putting(self.hints)
        return self._probe is not None and self._probe(value) is not value

    def text(self, value: Any) -> str:
        """The expression for a value: a size, a meta, a tuple of them, or any other object."""
        kind = type(value)
        if kind is SymInt:
            return self._number(value)
        if kind is tuple:
            items = [self.text(each) for each in value]
            return f"({', '.join(items)}{',' if len(items) == 1 else ''})"
        if kind in (int, bool) or value is None:
            return repr(value)
        if not self.has_sizes(value):
            return self._constant(value)
        if hasattr(value, "of_sizes"):
            sizes = self.text((value.shape, value.stride))
            return self._made(f"{self._constant(value)}.of_sizes(*{sizes})", "v")
        if hasattr(value, "concrete"):
            return self._made(f"{self._constant(value)}.concrete(sizes)", "v")
        return self._made(f"put({self._constant(value)})", "v")

    def call(self, function: Callable[..., object], *args: object) -> str:
        """The variable for what a function returns for these arguments, with numbers in them."""
        call = f"{self._constant(function)}({', '.join(map(self.text, args))})"
        return self._made(call, "v")

    def function(self, results: Sequence[str]) -> Values:
        """The function of sizes, by name, that returns the values of these expressions."""
        first = [] if self.putting is None else ["put = putting(sizes)"]
        self.scope["putting"] = self.putting
        body = [*first, *self.lines, f"return ({' '.join([f'{each},' for each in results])})"]
        text = "\n    ".join(["def values(sizes):", *body])
        exec(compile(text, "<aotlite sizes>", "exec"), self.scope)
        found: Values = self.scope.pop("values")
        return found

    # --- parts
    def _number(self, size: SymInt) -> str:
        name = self._numbers.get(size)
        if name is None:
            terms = [self._term(*each) for each in size.terms.items()]
            name = self._numbers[size] = self._made(" + ".join(terms) or "0", "n")
        return name

    def _term(self, monomial: Sequence[Atom], factor: int) -> str:
        factors = [*map(self._atom, monomial)]
        if factor != 1 or not factors:
            factors.append(f"({factor})" if factor < 0 else str(factor))
        return "*".join(factors)

    def _atom(self, atom: Atom) -> str:
        name = self._atoms.get(atom)
        if name is None:
            if isinstance(atom, Call):
                left, right = self.text(atom.left), self.text(atom.right)
                infix = f"({left}) {atom.function} ({right})"
                is_best = atom.function in ("max", "min")
                text = f"{atom.function}({left}, {right})" if is_best else infix
            elif isinstance(atom, Computed):
                text = f"{self._constant(atom)}.value(sizes)"
            else:
                assert isinstance(atom, Symbol)
                text = f"sizes[{atom.name!r}]"
            name = self._atoms[atom] = self._made(text, "a")
        return name

    def _made(self, text: str, kind: str) -> str:
        name = self._calls.get(text)
        if name is None:
            name = self._calls[text] = f"{kind}{len(self._calls)}"
            self.lines.append(f"{name} = {text}")
        return name

    def _constant(self, value: object) -> str:
        name = self._constants.get(id(value))  # the scope keeps it alive
        if name is None:
            name = self._constants[id(value)] = f"C{len(self._constants)}"
            self.scope[name] = value
        return name


def holding(demands: Demands) -> Callable[[Mapping[str, int]], bool]:
    """`Demands.hold` as generated code, for demands to which none is added any more."""
    code = SizeCode()
    given = code.function([code.call(function, *of) for function, of in demands.answers])
    wanted = tuple(demands.answers.values())
    return lambda sizes: given(sizes) == wanted
