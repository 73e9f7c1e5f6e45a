"""Programs about aliasing and mutation as plain data, and their interpreter for any library.

A program is a dictionary of lists, numbers and strings that survives JSON as it is:

    {"body": [step, ...], "results": [value, ...], "calls": [call, ...]}
    call = {"setup": [step, ...], "args": [value, ...], "grad": bool, "write": [place, step op]}
    step = [op, [argument, ...]]  or  [op, [argument, ...], "no_grad"]

The same body is called once for each of `calls`, with other arguments, on one compiled object.
Each step gives one value. In a setup, `"$3"` is the value of its step 3. In a body, `"$0"` to
`"$n-1"` are the n arguments and the values of its steps follow; an op that writes gives the object
that it wrote, one with several results a tuple, of which `"$3.1"` is part 1. `results` holds such
strings, numbers and None; the body returns the list of them. `grad: false` is a call under
`no_grad`. After the call and a backward from all results that require grad, `write` writes the
result at a place under `no_grad`.

`op` is a method of tensors that all libraries have (`add_`, `select`, `sum`, ...), or one of

    make(seed, shape, dtype, requires_grad)   a leaf of small whole numbers, none of them 0
    full(shape, number, dtype)                a tensor of one number
    ints(list)                                an int64 tensor
    getitem(x, index), setitem(x, index, value)   index: a list of ints, "1:3", "...", "none", "$k"
    index_put_(x, index, value)               index: a list of "$k" of int64 or bool tensors
    real(x), imag(x)                          the attributes
    view_as_real(x), view_as_complex(x)       functions
    view_dtype(x, dtype), to(x, dtype)        dtypes are names: "float64"
    resize_(x, shape)                         new memory is zeros
    alias(x), hidden_alias(x)                 what a library's table calls so

Everything that depends on the library is in its `Library`. Arithmetic is on small whole numbers, so
that it is exact. Rules: GEN-11, GEN-12, GEN-13.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from math import prod
from typing import Any, Protocol

Step = list[Any]
Program = dict[str, Any]
Watch = Callable[[Step, list[Any], Any], None]


class Library(Protocol):
    """What a program needs beyond methods of tensors."""

    tensor_type: Any

    def make(self, values: list[Any], shape: Sequence[int], dtype: str, *, grad: bool) -> Any:
        """A contiguous leaf on memory of its own."""

    def full(self, shape: Sequence[int], number: Any, dtype: str) -> Any:
        """A tensor of one number."""

    def dtype(self, name: str) -> Any:
        """The library's dtype of a name like "float64"."""

    def function(self, name: str) -> Any:
        """A function of the library's top level."""

    def alias(self, tensor: Any) -> Any:
        """A view of the same geometry, with history."""

    def hidden_alias(self, tensor: Any) -> Any:
        """An alias without history and with a version count of its own: PyTorch's `.data`."""

    def resize(self, tensor: Any, shape: Sequence[int]) -> Any:
        """`resize_`, of which new memory is zeros."""

    def no_grad(self) -> Any:
        """The context manager."""

    def backward(self, tensors: list[Any], gradients: list[Any]) -> None:
        """Adds to the `.grad` of leaves."""

    def storage_of(self, tensor: Any) -> int:
        """A number that tensors have in common which share memory, whoever counts its writes."""

    def version_of(self, tensor: Any) -> int:
        """The count of writes."""

    def base_of(self, tensor: Any) -> Any:
        """The base of a view, or None."""

    def bytes_of(self, tensor: Any) -> bytes:
        """The elements in the order of indices."""


class Aotlite:
    """aotlite's eager library."""

    def __init__(self) -> None:
        import aotlite as al

        self.al = al
        self.tensor_type: type = al.Tensor

    def make(self, values: list[Any], shape: Sequence[int], dtype: str, *, grad: bool) -> Any:
        made = self.al.tensor(values, dtype=self.dtype(dtype))
        # A view of the list's tensor would have a base; a clone has memory of its own.
        made = made if tuple(made.shape) == tuple(shape) else made.view(tuple(shape)).clone()
        return made.requires_grad_() if grad else made

    def full(self, shape: Sequence[int], number: Any, dtype: str) -> Any:
        return self.al.full(tuple(shape), number, dtype=self.dtype(dtype))

    def dtype(self, name: str) -> Any:
        return getattr(self.al, "bool_" if name == "bool" else name)

    def function(self, name: str) -> Any:
        return getattr(self.al, name)

    def alias(self, tensor: Any) -> Any:
        return tensor.alias()

    def hidden_alias(self, tensor: Any) -> Any:
        return tensor.hidden_alias()

    def resize(self, tensor: Any, shape: Sequence[int]) -> Any:
        return tensor.resize_(tuple(shape))

    def no_grad(self) -> Any:
        return self.al.no_grad()

    def backward(self, tensors: list[Any], gradients: list[Any]) -> None:
        self.al.autograd.backward(tensors, gradients)

    def storage_of(self, tensor: Any) -> int:
        # A hidden alias has a storage of its own, with its own count, over the same buffer.
        return id(tensor.storage.buffer)

    def version_of(self, tensor: Any) -> int:
        return tensor.version

    def base_of(self, tensor: Any) -> Any:
        return tensor.base

    def bytes_of(self, tensor: Any) -> bytes:
        return tensor.array.tobytes()


# ------------------------------------------------------------------------------------ the running
def run_steps(
    library: Library, steps: Sequence[Step], values: list[Any], watch: Watch | None = None
) -> None:
    """Runs steps and appends the value of each; `watch(step, args, result)` looks on."""
    for step in steps:
        args = [resolved(value, values) for value in step[1]]
        with library.no_grad() if len(step) > 2 else nullcontext():
            result = _apply(library, step[0], args)
        values.append(result)
        if watch is not None:
            watch(step, args, result)


def resolved(value: Any, values: Sequence[Any]) -> Any:
    """An argument with values in place of their names; dtypes and indices stay names."""
    if isinstance(value, str) and value[:1] == "$":
        place, _, part = value[1:].partition(".")
        found = values[int(place)]
        return found[int(part)] if part else found
    if isinstance(value, list):
        return [resolved(item, values) for item in value]
    return value


def returned(program: Program, values: Sequence[Any]) -> list[Any]:
    """What the body returns."""
    return [resolved(value, values) for value in program["results"]]


class _Body:
    """A plain object, into which a capture that searches for what a function reads does not look:
    programs read nothing but their arguments."""

    def __init__(self, library: Library, program: Program, watch: Watch | None) -> None:
        self.library = library
        self.program = program
        self.watch = watch

    def run(self, args: tuple[Any, ...]) -> list[Any]:
        values = list(args)
        run_steps(self.library, self.program["body"], values, self.watch)
        return returned(self.program, values)


def body_of(
    library: Library, program: Program, watch: Watch | None = None
) -> Callable[..., list[Any]]:
    """The program's function."""
    whole = _Body(library, program, watch)

    def body(*args: Any) -> list[Any]:
        return whole.run(args)

    return body


def setup_of(library: Library, call: dict[str, Any]) -> tuple[list[Any], list[Any]]:
    """All values of a call's setup, and the arguments among them."""
    values: list[Any] = []
    run_steps(library, call["setup"], values)
    return values, [resolved(value, values) for value in call["args"]]


def numbers(count: int, seed: int, dtype: str = "float64") -> list[Any]:
    """Small whole numbers, none of them 0, others for another seed."""
    found = [(i * 5 + seed * 3) % 7 - 3 or 4 for i in range(count)]
    if dtype == "bool":
        return [number > 0 for number in found]
    if dtype.startswith("complex"):
        return [complex(a, b) for a, b in zip(found, reversed(found), strict=True)]
    return found if dtype.startswith("int") else [float(number) for number in found]


def _apply(library: Library, op: str, args: list[Any]) -> Any:
    special = _SPECIAL.get(op)
    if special is not None:
        return special(library, *args)
    return getattr(args[0], op)(*args[1:])


def _make(library: Library, seed: int, shape: list[int], dtype: str, grad: bool) -> Any:
    return library.make(numbers(prod(shape), seed, dtype), shape, dtype, grad=grad)


def _setitem(_: Library, tensor: Any, index: list[Any], value: Any) -> Any:
    tensor[_index(index)] = value
    return tensor


def _index(items: list[Any]) -> tuple[Any, ...]:
    return tuple(_index_item(item) if isinstance(item, str) else item for item in items)


def _index_item(text: str) -> Any:
    if text in ("...", "none"):
        return ... if text == "..." else None
    return slice(*[int(part) if part else None for part in text.split(":")])


_SPECIAL: dict[str, Callable[..., Any]] = {
    "make": _make,
    "full": lambda library, shape, number, dtype: library.full(shape, number, dtype),
    "ints": lambda library, values: library.make(values, [len(values)], "int64", grad=False),
    "getitem": lambda _, x, index: x[_index(index)],
    "setitem": _setitem,
    "index_put_": lambda _, x, index, value: x.index_put_(tuple(index), value),
    "real": lambda _, x: x.real,
    "imag": lambda _, x: x.imag,
    "view_dtype": lambda library, x, dtype: x.view(library.dtype(dtype)),
    "to": lambda library, x, dtype: x.to(library.dtype(dtype)),
    "view_as_real": lambda library, x: library.function("view_as_real")(x),
    "view_as_complex": lambda library, x: library.function("view_as_complex")(x),
    "resize_": lambda library, x, shape: library.resize(x, shape),
    "alias": lambda library, x: library.alias(x),
    "hidden_alias": lambda library, x: library.hidden_alias(x),
}


# ---------------------------------------------------------------------------------- the printing
def script(program: Program) -> str:
    """The program as Python-like text."""
    count = len(program["calls"][0]["args"])
    names = ", ".join(f"v{i}" for i in range(count))
    lines = [f"def f({names}):", *_lines(program["body"], count, "v", "    ")]
    lines.append(f"    return [{', '.join(_text(value, 'v') for value in program['results'])}]")
    for call in program["calls"]:
        lines += _lines(call["setup"], 0, "s", "")
        args = ", ".join(_text(value, "s") for value in call["args"])
        lines.append(("" if call["grad"] else "with no_grad(): ") + f"r = f({args})")
        lines.append("backward([t for t in r if requires_grad(t)])")
        if call.get("write"):
            place, op = call["write"]
            lines.append(f"with no_grad(): r[{place}].{op}(2)")
    return "\n".join(lines)


def _lines(steps: Sequence[Step], first: int, letter: str, indent: str) -> list[str]:
    found = []
    for number, (op, args, *no_grad) in enumerate(steps, first):
        texts = [_text(arg, letter) for arg in args]
        match op:
            case "make" | "full" | "ints":
                text = f"{op}({', '.join(texts)})"
            case "real" | "imag":
                text = f"{texts[0]}.{op}"
            case "getitem":
                text = f"{texts[0]}{texts[1]}"
            case _:
                text = f"{texts[0]}.{op}({', '.join(texts[1:])})"
        prefix = "with no_grad(): " if no_grad else ""
        if op == "setitem":
            text = f"{texts[0]}{texts[1]} = {texts[2]}; {letter}{number} = {texts[0]}"
        else:
            text = f"{letter}{number} = {text}"
        found.append(indent + prefix + text)
    return found


def _text(value: Any, letter: str) -> str:
    if isinstance(value, list):
        return f"[{', '.join(_text(item, letter) for item in value)}]"
    if isinstance(value, str) and value[:1] == "$":
        place, _, part = value[1:].partition(".")
        return f"{letter}{place}" + (f"[{part}]" if part else "")
    return str(value)
