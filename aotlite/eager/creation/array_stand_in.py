"""`ArrayStandIn`: stands for a NumPy array in a compiled function, while that is captured.

It wraps a tensor over the array's memory. Methods and operators that mean the same for NumPy and
tensors (`array_names`) run as the tensor's ops, and return stand-ins. All others raise, with both
meanings; an attribute that an ndarray lacks raises AttributeError. The front end puts stand-ins in
the place of arrays and takes them out of results. A stand-in gives neither its memory nor its
values to other libraries. Rules: NDA-2..NDA-6. Spec: `specs/ndarrays.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import numpy as np

from aotlite.eager.base.modes import STATE
from aotlite.eager.base.tensor import Tensor
from aotlite.eager.base.unsupported import note_refusal
from aotlite.eager.creation.array_names import (
    call_form,
    index_form,
    number_class,
    receiver_class,
    why_no_index,
    why_no_operator,
    why_not,
)
from aotlite.ir.errors import AbsentError, UnsupportedError, noted

WAY_OUT = (
    "Instead: al.from_numpy(a) is a tensor on the same memory, with a tensor's meaning; or compute "
    "it with NumPy outside the compiled function. (NDA-3)"
)


class ArrayStandIn:
    """An ndarray, or a NumPy scalar, of a captured function."""

    __slots__ = ("_is_scalar", "_tensor")

    _tensor: Tensor
    _is_scalar: bool

    def __init__(self, tensor: Tensor, *, is_scalar: bool = False) -> None:
        object.__setattr__(self, "_tensor", tensor)
        object.__setattr__(self, "_is_scalar", is_scalar)

    @property  # type: ignore[misc]
    def __class__(self) -> type[Any]:
        """NumPy's: `isinstance` answers in a compiled function as it does in eager."""
        return _scalar_type(self) if self._is_scalar else np.ndarray

    # --- what agrees
    def __getattr__(self, name: str) -> Any:
        tensor = self._tensor
        known = _scalar_type(self) if self._is_scalar else np.ndarray
        if not hasattr(known, name):
            raise _absent(name)
        if name.startswith("__"):
            self._refuse(
                name, "NumPy's protocols ask for memory, which a captured array has none of"
            )
        if callable(getattr(known, name)):
            return _Method(self, name)
        self._check(name)
        return self._wrapped(getattr(tensor, name))

    def _call(self, name: str, args: tuple[object, ...], kwargs: dict[str, object]) -> object:
        self._check(call_form(name, args, kwargs))
        return self._wrapped(getattr(self._tensor, name)(*args, **kwargs))

    def _wrapped(self, result: Any) -> object:
        """The stand-in for a tensor's result: an array for a view, a scalar for another 0-d one."""
        if isinstance(result, Tensor):
            if result is self._tensor:
                return self
            is_view = result.storage is self._tensor.storage
            return type(self)(result, is_scalar=not result.meta.shape and not is_view)
        if type(result) in (tuple, list):
            return type(result)([self._wrapped(each) for each in result])
        return result

    # --- what does not
    def _check(self, form: str) -> None:
        why = why_not(form, receiver_class(self._tensor, is_scalar=self._is_scalar))
        if why is not None:
            self._refuse(form, why)

    def _check_index(self, form: str) -> None:
        why = why_no_index(form, receiver_class(self._tensor, is_scalar=self._is_scalar))
        if why is not None:
            self._refuse(form, why)

    def _check_operator(self, form: str, other: str) -> None:
        mine = receiver_class(self._tensor, is_scalar=self._is_scalar)
        why = why_no_operator(form, mine, other)
        if why is not None:
            self._refuse(f"{form} with {other or 'another object'}", why)

    def _refuse(self, what: str, why: str) -> NoReturn:
        kind = "scalar" if self._is_scalar else "array"
        error = UnsupportedError(
            f"ndarray: {what} of a {self._tensor.dtype} {kind} is met in a compiled function, "
            "expected what means the same in NumPy and for tensors"
        )
        raise note_refusal(noted(error, f"{why}.", WAY_OUT), STATE.recorder)

    def _refuse_value(self, what: str) -> NoReturn:
        self._refuse(what, "NumPy gives a value, and a captured array has none")

    # --- operators
    def _operator(self, form: str, name: str, other: object) -> object:
        if isinstance(other, Tensor):  # whose operator raises what it raises for an ndarray
            return NotImplemented
        return self._wrapped(getattr(self._tensor, name)(self._operand(form, other)))

    def _operand(self, form: str, other: Any) -> Any:
        """The other operand, for the tensor's op."""
        if is_stand_in(other):
            kind = receiver_class(other._tensor, is_scalar=other._is_scalar)
            self._check_operator(form, kind)
            return other._tensor
        self._refuse_outside(form, other)
        self._check_operator(form, number_class(other, self._tensor.dtype))
        return other.item() if isinstance(other, np.generic) else other

    def _refuse_outside(self, form: str, other: object) -> None:
        if isinstance(other, np.ndarray):
            refuse_subclass(other, f"an operand of {form}")
            self._refuse(
                f"{form} with an ndarray that is no argument",
                "Eager reads it at each call, and a capture once: pass it as an argument",
            )

    def _in_place(self, form: str, name: str, other: object) -> object:
        if isinstance(other, Tensor):
            self._refuse(form, "NumPy casts the tensor to an array, and writes that")
        if self._is_scalar:  # which nobody writes: NumPy binds the name to a new one
            return getattr(self, name.replace("__i", "__"))(other)
        value = self._operand(form, other)
        getattr(self._tensor, name)(value)
        return self

    def __pos__(self) -> object:
        return self._unary("+a", "__pos__")

    def __neg__(self) -> object:
        return self._unary("-a", "__neg__")

    def __abs__(self) -> object:
        return self._unary("abs(a)", "__abs__")

    def __invert__(self) -> object:
        return self._unary("~a", "__invert__")

    def _unary(self, form: str, name: str) -> object:
        self._check(form)
        return self._wrapped(getattr(self._tensor, name)())

    def __divmod__(self, other: object) -> object:
        self._refuse("divmod", "NumPy gives a tuple, and a tensor has no divmod")

    __rdivmod__ = __divmod__
    __hash__ = None  # type: ignore[assignment]

    # --- items
    def __getitem__(self, index: object) -> object:
        """The item; for a single element, without `...`, a scalar and no view, as in NumPy."""
        index = self._bare(index)
        form = index_form(index)
        self._check_index(f"a[{form}]")
        part = self._tensor[index]
        if not part.meta.shape and "E" not in form:
            return type(self)(part.clone(), is_scalar=True)
        return self._wrapped(part)

    def __setitem__(self, index: object, value: object) -> None:
        index = self._bare(index)
        self._check_index(f"a[{index_form(index)}] = v")
        if isinstance(value, Tensor):
            self._refuse("a[i] = v with a tensor", "NumPy casts the tensor to an array")
        self._tensor[index] = self._operand("a[i] = v", value)

    def _bare(self, index: Any) -> object:
        """The index, with tensors instead of stand-ins."""
        if type(index) is tuple:
            return tuple([self._bare(item) for item in index])
        if is_stand_in(index):
            return index._tensor
        if isinstance(index, Tensor):
            self._refuse("a[tensor]", "NumPy turns the tensor into an array")
        if isinstance(index, np.ndarray):
            refuse_subclass(index, "an index")
        return index

    def __len__(self) -> int:
        if not self._tensor.meta.shape:
            raise TypeError("len() of unsized object")
        return len(self._tensor)

    def __iter__(self) -> Iterator[object]:
        if not self._tensor.meta.shape:
            raise TypeError("iteration over a 0-d array")
        return iter([self[place] for place in range(len(self))])

    def __contains__(self, element: object) -> bool:
        self._refuse_value("in")

    # --- values, copies and other libraries
    def __repr__(self) -> str:
        kind = _scalar_type(self).__name__ if self._is_scalar else "ndarray"
        return f"{kind}({self._tensor.meta}, captured)"

    def __bool__(self) -> bool:
        self._refuse_value("bool")

    def __int__(self) -> int:
        self._refuse_value("int")

    def __float__(self) -> float:
        self._refuse_value("float")

    def __complex__(self) -> complex:
        self._refuse_value("complex")

    def __index__(self) -> int:
        self._refuse_value("index")

    def __array__(self, dtype: object = None, copy: object = None) -> object:
        self._refuse_value("a NumPy function")

    def __array_function__(
        self, func: object, types: object, args: object, kwargs: object
    ) -> object:
        self._refuse_function(func)

    def __array_ufunc__(
        self, ufunc: object, method: str, *inputs: object, **kwargs: object
    ) -> object:
        """NumPy calls this for an operator of one of its scalars or arrays with a stand-in."""
        made = _UFUNCS.get(ufunc) if method == "__call__" and not kwargs else None
        if made is None or any(isinstance(each, Tensor) for each in inputs):
            self._refuse_function(ufunc, method)
        forward, backward = made
        first, *others = inputs
        if is_stand_in(first):
            return getattr(first, forward)(*others)
        return getattr(others[0], backward)(first)

    def _refuse_function(self, function: object, method: str = "__call__") -> NoReturn:
        name = getattr(function, "__name__", repr(function))
        name += "" if method == "__call__" else f".{method}"
        ours = (
            "a tensor's ops have names of their own" if method == "__call__" else "no tensor has it"
        )
        self._refuse(f"np.{name}", f"NumPy computes it on the array's memory; {ours}")

    def __setattr__(self, name: str, value: object) -> None:
        self._refuse(f"a.{name} = v", "NumPy changes the array in place, and a tensor refuses it")

    def __copy__(self) -> object:
        self._refuse("copy", "NumPy gives an array of its own, and a tensor shares memory")

    def __deepcopy__(self, memo: object) -> object:
        self._refuse("deepcopy", "NumPy gives an array of its own, and a tensor a leaf")

    def __reduce_ex__(self, protocol: object) -> Any:
        self._refuse_value("pickle")


class _Method:
    """A method of a stand-in: calls the tensor's op where NumPy's method means the same."""

    __slots__ = ("_name", "_of")

    def __init__(self, of: ArrayStandIn, name: str) -> None:
        self._of, self._name = of, name

    def __call__(self, *args: object, **kwargs: object) -> object:
        return self._of._call(self._name, args, kwargs)


# ---------------------------------------------------------------------------------------- operators
BINARY = {
    "+": ("add", np.add),
    "-": ("sub", np.subtract),
    "*": ("mul", np.multiply),
    "/": ("truediv", np.true_divide),
    "//": ("floordiv", np.floor_divide),
    "%": ("mod", np.remainder),
    "**": ("pow", np.power),
    "@": ("matmul", np.matmul),
    "&": ("and", np.bitwise_and),
    "|": ("or", np.bitwise_or),
    "^": ("xor", np.bitwise_xor),
    "<<": ("lshift", np.left_shift),
    ">>": ("rshift", np.right_shift),
}
COMPARED = {
    "==": ("__eq__", "__eq__", np.equal),
    "!=": ("__ne__", "__ne__", np.not_equal),
    "<": ("__lt__", "__gt__", np.less),
    "<=": ("__le__", "__ge__", np.less_equal),
    ">": ("__gt__", "__lt__", np.greater),
    ">=": ("__ge__", "__le__", np.greater_equal),
}
_UFUNCS: dict[object, tuple[str, str]] = {
    np.positive: ("__pos__", ""),
    np.negative: ("__neg__", ""),
    np.absolute: ("__abs__", ""),
    np.invert: ("__invert__", ""),
    **{ufunc: (f"__{name}__", f"__r{name}__") for name, ufunc in BINARY.values()},
    **{ufunc: (forward, backward) for forward, backward, ufunc in COMPARED.values()},
}


def _forward(form: str, name: str) -> Callable[[ArrayStandIn, Any], object]:
    return lambda self, other: self._operator(form, name, other)


def _assigned(form: str, name: str) -> Callable[[ArrayStandIn, object], object]:
    return lambda self, other: self._in_place(form, name, other)


def _install() -> None:
    for symbol, (name, _) in BINARY.items():
        setattr(ArrayStandIn, f"__{name}__", _forward(f"a {symbol} b", f"__{name}__"))
        setattr(ArrayStandIn, f"__r{name}__", _forward(f"b {symbol} a", f"__r{name}__"))
        setattr(ArrayStandIn, f"__i{name}__", _assigned(f"a {symbol}= b", f"__i{name}__"))
    for symbol, (forward, _, _) in COMPARED.items():
        setattr(ArrayStandIn, forward, _forward(f"a {symbol} b", forward))
    ArrayStandIn.__hash__ = None  # type: ignore[assignment]


_install()


# ------------------------------------------------------------------------------------------ helpers
def is_stand_in(value: object) -> bool:
    """Whether this is a stand-in, which `isinstance` answers for NumPy's classes."""
    return issubclass(type(value), ArrayStandIn)


def tensor_of(stand_in: ArrayStandIn) -> Tensor:
    """The tensor that a stand-in computes with."""
    found: Tensor = stand_in._tensor
    return found


def stands_for_scalar(stand_in: Any) -> bool:
    """Whether it stands for a NumPy scalar, not an array."""
    return bool(stand_in._is_scalar)


def tensor_on(array: Any) -> Tensor:
    """A leaf on the memory of a stand-in, with a version counter of its own (NDA-6)."""
    return array._tensor.hidden_alias()


def refuse_subclass(array: np.ndarray, place: str) -> None:
    """Raises UnsupportedError for an instance of an ndarray subclass with its own semantics."""
    kind = type(array)
    if kind is np.ndarray:
        return
    error = UnsupportedError(
        f"ndarray: {place} is a {kind.__module__}.{kind.__qualname__}, expected a plain ndarray"
    )
    note = (
        "A subclass may mean something else by any operator. Pass np.asarray(a), of a masked array "
        "a.filled(value). (NDA-1)"
    )
    raise note_refusal(noted(error, note), STATE.recorder)


def _scalar_type(stand_in: ArrayStandIn) -> type[object]:
    return stand_in._tensor.dtype.numpy.type


def _absent(name: str) -> Exception:
    has = "a tensor has one" if hasattr(Tensor, name) else "a tensor has none, either"
    return noted(
        AbsentError(f"ndarray: attribute {name!r} is asked for, expected one that an ndarray has"),
        f"NumPy raises AttributeError; {has}.",
        WAY_OUT,
    )
