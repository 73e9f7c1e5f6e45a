"""Arrays that note the NumPy calls made with them: `TracedArray`, `TracedNamespace`.

A kernel of the op table is a function of an array library and of arrays. Run with these, on
operands of the shapes and dtypes of one call, it computes as usual, and each call that it makes is
noted as a line of Python. Input: a kernel and operands. Output: the notes of a `CallNotes`, which
`kernel_text.py` prints. What it does not do: it follows no value, so a kernel that asks for one
other than as a check has no notes (`DataDependentError`). Rules: PYX-4, PYX-5. Spec:
`specs/to_python.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import attrs
import numpy as np

from aotlite.ir.errors import UnsupportedError
from aotlite.python_export.kernels.argument_text import (
    arguments_of,
    inside,
    key_parts,
    literal,
    notes_of,
    operator_parts,
    plain,
)
from aotlite.python_export.kernels.call_records import (
    AND,
    ATOM,
    COMPARISON,
    OR,
    POWER,
    PRODUCT,
    SHIFT,
    SUM,
    UNARY,
    XOR,
    Bracketed,
    Line,
    TracedValue,
    Variable,
    count,
    variables,
)


class DataDependentError(UnsupportedError):
    """A kernel asked for the value of an array: its calls depend on more than shapes and dtypes."""


@attrs.define(eq=False)
class CallNotes:
    """The lines of one kernel, in order."""

    lines: list[Line] = attrs.field(factory=list)
    operands: list[TracedArray] = attrs.field(factory=list)
    flipped: int | None = None
    """The number of the question that is answered the other way round; None for none."""
    is_mixed: bool = False
    """Whether a value of an operand was written somewhere: then no array is known any more."""
    questions: int = 0
    """How many truths of arrays the kernel has asked for."""

    def operand(self, name: str, value: Any) -> TracedArray:
        """An operand with this name."""
        found = TracedArray(self, Variable(name, weight=ATOM), value)
        self.operands.append(found)
        return found

    def made(self, value: Any, parts: tuple[object, ...], weight: int = ATOM) -> Any:
        """Notes an expression; returns what stands for its value: arrays for a tuple of them."""
        known = not self.is_mixed and all(each.known for each in variables(parts))
        variable = Variable(None, parts, weight, known=known)
        variable.unsized = any(each.unsized for each in variables(parts))
        self.lines.append(Line(variable, parts))
        count(parts)
        return self._standing(value, variable)

    def _standing(self, value: Any, variable: Variable) -> Any:
        if isinstance(value, (np.ndarray, np.generic)):
            return TracedArray(self, variable, value)
        if isinstance(value, (tuple, list)):
            items = [self.made(item, (variable, f"[{place}]")) for place, item in enumerate(value)]
            return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
        return value

    def write(self, *parts: object) -> None:
        """Notes a line that writes memory."""
        self.is_mixed |= not all(each.known for each in variables(parts))
        self.lines.append(Line(None, parts, is_write=True))
        count(parts)

    def asked(self, of: Variable, *, found: bool) -> bool:
        """Notes that a kernel goes on only where an array is this truth value (PYX-5)."""
        number = self.questions
        self.questions += 1
        if number == self.flipped:
            return not found
        parts = (
            ("if ", Bracketed(of, UNARY), "") if not found else ("if not ", Bracketed(of, UNARY))
        )
        self.lines.append(Line(None, parts))
        return found

    @property
    def may_read(self) -> bool:
        """Whether the kernel may read values: behind a question answered the other way round, to
        say in an error what is wrong."""
        return self.flipped is not None and self.questions > self.flipped


# ------------------------------------------------------------------------------------ the arrays
def _binary(symbol: str, weight: int) -> tuple[Callable[..., Any], Callable[..., Any]]:
    def forward(self: TracedArray, other: object) -> Any:
        return self._operator(symbol, weight, self, other)

    def backward(self: TracedArray, other: object) -> Any:
        return self._operator(symbol, weight, other, self)

    return forward, backward


def _inplace(symbol: str) -> Callable[..., Any]:
    def write(self: TracedArray, other: object) -> TracedArray:
        if not isinstance(self.value, np.ndarray):  # a NumPy number, which is replaced
            result: TracedArray = self._operator(symbol, _WEIGHTS[symbol], self, other)
            return result
        notes = self.notes
        notes.write(self.variable, f" {symbol}= ", *notes_of(other))
        exec_inplace(symbol, self.value, plain(other))
        return self

    return write


_INPLACE: dict[str, Callable[..., Any]] = {
    "+": np.add,
    "-": np.subtract,
    "*": np.multiply,
    "/": np.true_divide,
    "|": np.bitwise_or,
    "&": np.bitwise_and,
    "^": np.bitwise_xor,
    ">>": np.right_shift,
    "<<": np.left_shift,
}


_WEIGHTS = {
    **dict.fromkeys("+-", SUM),
    **dict.fromkeys("*/", PRODUCT),
    "|": OR,
    "&": AND,
    "^": XOR,
    ">>": SHIFT,
    "<<": SHIFT,
}


def exec_inplace(symbol: str, target: np.ndarray, value: Any) -> None:
    """Computes `target symbol= value`."""
    _INPLACE[symbol](target, value, out=target, casting="same_kind")


_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a / b,
    "//": lambda a, b: a // b,
    "%": lambda a, b: a % b,
    "**": lambda a, b: a**b,
    "@": lambda a, b: a @ b,
    "&": lambda a, b: a & b,
    "|": lambda a, b: a | b,
    "^": lambda a, b: a ^ b,
    "<<": lambda a, b: a << b,
    ">>": lambda a, b: a >> b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
}


class TracedArray(TracedValue):
    """An array with the variable that holds it in the notes. Shapes and dtypes are NumPy's."""

    __slots__ = ("notes",)

    def __init__(self, notes: CallNotes, variable: Variable, value: Any) -> None:
        self.notes, self.variable, self.value = notes, variable, value

    # --- facts
    @property
    def shape(self) -> tuple[int, ...]:
        self._check_sized()
        return tuple(self.value.shape)

    @property
    def dtype(self) -> np.dtype:
        return np.dtype(self.value.dtype)

    @property
    def ndim(self) -> int:
        return int(self.value.ndim)

    @property
    def size(self) -> int:
        self._check_sized()
        return int(self.value.size)

    @property
    def strides(self) -> tuple[int, ...]:
        return tuple(self.value.strides)

    @property
    def itemsize(self) -> int:
        return int(self.value.itemsize)

    @property
    def nbytes(self) -> int:
        return int(self.value.nbytes)

    @property
    def flags(self) -> Any:
        return self.value.flags

    def __len__(self) -> int:
        self._check_sized()
        return len(self.value)

    def _check_sized(self) -> None:
        if self.variable.unsized and not self._is_readable:
            raise DataDependentError("to_python: a kernel reads a shape that depends on values")

    # --- the other attributes
    def _attribute(self, name: str) -> Any:
        return self.notes.made(
            getattr(self.value, name), (Bracketed(self.variable, ATOM), f".{name}")
        )

    @property
    def T(self) -> Any:
        return self._attribute("T")

    @property
    def mT(self) -> Any:
        return self._attribute("mT")

    @property
    def real(self) -> Any:
        return self._attribute("real")

    @real.setter
    def real(self, value: object) -> None:
        self.value.real = plain(value)
        self.notes.write(Bracketed(self.variable, ATOM), ".real = ", *notes_of(value))

    @property
    def imag(self) -> Any:
        return self._attribute("imag")

    @imag.setter
    def imag(self, value: object) -> None:
        self.value.imag = plain(value)
        self.notes.write(Bracketed(self.variable, ATOM), ".imag = ", *notes_of(value))

    def __getattr__(self, name: str) -> Any:
        if name in ("tolist", "item", "tobytes", "data", "ctypes"):
            if self._is_readable:
                return getattr(self.value, name)
            if name == "tolist" and self.ndim < 2 and self.dtype.kind in "iu":
                return self._ends
            raise DataDependentError(f"to_python: a kernel reads the values of an array ({name})")
        if name.startswith("__") or not hasattr(self.value, name):
            raise AttributeError(name)
        method = getattr(self.value, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            found = method(*map(plain, args), **{k: plain(v) for k, v in kwargs.items()})
            arguments = arguments_of(args, kwargs)
            if name in ("fill", "sort", "setflags"):
                self.notes.write(Bracketed(self.variable, ATOM), f".{name}(", *arguments, ")")
                return None
            target = Bracketed(self.variable, ATOM)
            return self.notes.made(found, (target, f".{name}(", *arguments, ")"))

        return call

    # --- subscripts
    def __getitem__(self, key: object) -> Any:
        parts = (Bracketed(self.variable, ATOM), "[", *key_parts(key), "]")
        found = self.notes.made(self.value[plain(key)], parts)
        items = key if type(key) is tuple else (key,)
        if any(isinstance(item, TracedArray) and item.dtype.kind == "b" for item in items):
            found.variable.unsized = True
        return found

    def __setitem__(self, key: object, value: object) -> None:
        self.value[plain(key)] = plain(value)
        target = Bracketed(self.variable, ATOM)
        self.notes.write(target, "[", *key_parts(key), "] = ", *notes_of(value))

    def __iter__(self) -> Iterator[Any]:
        return iter([self[place] for place in range(len(self))])

    # --- operators
    def _operator(self, symbol: str, weight: int, a: object, b: object) -> Any:
        found = _OPERATORS[symbol](plain(a), plain(b))
        if symbol == "!=" and isinstance(b, TracedArray) and b.variable is self.variable:
            return self.notes.made(found, ("np.isnan(", self.variable, ")"))
        return self.notes.made(found, operator_parts(symbol, weight, a, b), weight)

    __add__, __radd__ = _binary("+", SUM)
    __sub__, __rsub__ = _binary("-", SUM)
    __mul__, __rmul__ = _binary("*", PRODUCT)
    __truediv__, __rtruediv__ = _binary("/", PRODUCT)
    __floordiv__, __rfloordiv__ = _binary("//", PRODUCT)
    __mod__, __rmod__ = _binary("%", PRODUCT)
    __matmul__, __rmatmul__ = _binary("@", PRODUCT)
    __pow__, __rpow__ = _binary("**", POWER)
    __lshift__, __rlshift__ = _binary("<<", SHIFT)
    __rshift__, __rrshift__ = _binary(">>", SHIFT)
    __and__, __rand__ = _binary("&", AND)
    __xor__, __rxor__ = _binary("^", XOR)
    __or__, __ror__ = _binary("|", OR)
    __lt__ = _binary("<", COMPARISON)[0]
    __le__ = _binary("<=", COMPARISON)[0]
    __gt__ = _binary(">", COMPARISON)[0]
    __ge__ = _binary(">=", COMPARISON)[0]
    __eq__ = _binary("==", COMPARISON)[0]
    __ne__ = _binary("!=", COMPARISON)[0]
    __hash__ = None  # type: ignore[assignment]
    __iadd__ = _inplace("+")
    __isub__ = _inplace("-")
    __imul__ = _inplace("*")
    __itruediv__ = _inplace("/")
    __ior__ = _inplace("|")
    __iand__ = _inplace("&")
    __ixor__ = _inplace("^")
    __irshift__ = _inplace(">>")
    __ilshift__ = _inplace("<<")

    def __neg__(self) -> Any:
        return self.notes.made(-self.value, ("-", *inside(self, UNARY)), UNARY)

    def __invert__(self) -> Any:
        return self.notes.made(~self.value, ("~", *inside(self, UNARY)), UNARY)

    def __abs__(self) -> Any:
        return self.notes.made(abs(self.value), ("np.abs(", self.variable, ")"))

    def __bool__(self) -> bool:
        if self.variable.known and not self.notes.is_mixed:
            return bool(self.value)
        return self.notes.asked(self.variable, found=bool(self.value))

    def __index__(self) -> int:
        return int(self._number())

    def __float__(self) -> float:
        return float(self._number())

    def __complex__(self) -> complex:
        return complex(self._number())

    __int__ = __index__

    def _number(self) -> Any:
        if not self._is_readable:
            raise DataDependentError("to_python: a kernel takes an array for a Python number")
        return self.value

    @property
    def _is_readable(self) -> bool:
        return self.notes.may_read or (self.variable.known and not self.notes.is_mixed)

    def _ends(self) -> list[TracedArray]:
        """The least and the largest element, for a kernel that compares all with bounds: all that
        `min()` and `max()` of the elements ask for. Nothing for no element."""
        if not self.size:
            return []
        ends = [getattr(self, name)() for name in ("min", "max")]
        return [_End(self.notes, end.variable, end.value) for end in ends]

    # --- NumPy's functions called by their own names
    def __array_ufunc__(self, ufunc: Any, method: str, *args: Any, **kwargs: Any) -> Any:
        name = ufunc.__name__ if method == "__call__" else f"{ufunc.__name__}.{method}"
        return noted_call(self.notes, f"np.{name}", getattr(ufunc, method), args, kwargs)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        home = function.__module__.replace("numpy", "np", 1)
        home = home if home.count(".") < 2 or "linalg" in home else "np.lib.stride_tricks"
        return noted_call(self.notes, f"{home}.{function.__name__}", function, args, kwargs)


class _End(TracedArray):
    """The least or the largest element of an index: it is compared with bounds."""

    __slots__ = ()

    def __lt__(self, other: object) -> Any:
        return False if isinstance(other, _End) else TracedArray.__lt__(self, other)

    def __gt__(self, other: object) -> Any:
        return True if isinstance(other, _End) else TracedArray.__gt__(self, other)

    __hash__ = None


# --------------------------------------------------------------------------------- the namespace
class TracedNamespace:
    """NumPy's functions, which note their calls. Types and numbers are NumPy's."""

    def __init__(self, notes: CallNotes, home: Any = np, name: str = "np") -> None:
        self._notes, self._home, self._name = notes, home, name

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._home, name)
        if name == "linalg":
            return TracedNamespace(self._notes, found, f"{self._name}.{name}")
        if isinstance(found, type) or not callable(found):
            return found
        return _Function(self._notes, f"{self._name}.{name}", found)


class _Function:
    """A function of the namespace; a ufunc has methods (`at`, `reduce`) too."""

    def __init__(self, notes: CallNotes, name: str, function: Any) -> None:
        self._notes, self._name, self._function = notes, name, function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return noted_call(self._notes, self._name, self._function, args, kwargs)

    def __getattr__(self, name: str) -> _Function:
        return _Function(self._notes, f"{self._name}.{name}", getattr(self._function, name))


_SYMBOLS = {
    "np.add": ("+", SUM),
    "np.subtract": ("-", SUM),
    "np.multiply": ("*", PRODUCT),
    "np.true_divide": ("/", PRODUCT),
    "np.divide": ("/", PRODUCT),
    "np.equal": ("==", COMPARISON),
    "np.not_equal": ("!=", COMPARISON),
    "np.less": ("<", COMPARISON),
    "np.less_equal": ("<=", COMPARISON),
    "np.greater": (">", COMPARISON),
    "np.greater_equal": (">=", COMPARISON),
    "np.bitwise_and": ("&", AND),
    "np.bitwise_or": ("|", OR),
    "np.bitwise_xor": ("^", XOR),
    "np.matmul": ("@", PRODUCT),
}
"""Functions that are printed as operators: on arrays they are the same."""


def noted_call(
    notes: CallNotes, name: str, function: Callable[..., Any], args: Any, kwargs: Any
) -> Any:
    """Calls a function of NumPy on the arrays, and notes the call."""
    result = function(*map(plain, args), **{k: plain(v) for k, v in kwargs.items()})
    if name.endswith((".at", "copyto", "put_along_axis", "place", "putmask", ".put")):
        notes.write(f"{name}(", *arguments_of(args, kwargs), ")")
        return None
    if name == "np.astype" and len(args) == 2 and not kwargs:
        dtype = literal(args[1])
        return notes.made(result, (*inside(args[0], ATOM), f".astype({dtype})"))
    symbol = _SYMBOLS.get(name)
    if symbol is not None and len(args) == 2 and not kwargs and _has_array(args):
        text, weight = symbol
        return notes.made(result, operator_parts(text, weight, *args), weight)
    if name == "np.negative" and len(args) == 1 and not kwargs:
        return notes.made(result, ("-", *inside(args[0], UNARY)), UNARY)
    found = notes.made(result, (f"{name}(", *arguments_of(args, kwargs), ")"))
    if name in _UNSIZED and isinstance(found, TracedArray):
        found.variable.unsized = True
    return found


_UNSIZED = ("np.argwhere", "np.flatnonzero", "np.compress", "np.extract", "np.unique")


def _has_array(args: Sequence[object]) -> bool:
    return any(isinstance(each, TracedArray) for each in args)
