"""The programs of the pipeline benchmark, and each library's names of their ops.

A program is written once, in terms of a `Library`; aotlite, PyTorch and JAX run the same text.
Sizes are tiny, so that the front end is timed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any, Protocol

import attrs


class Library(Protocol):
    """The ops that programs call, on tensors of the library."""

    def sin(self, x: Any) -> Any: ...
    def cos(self, x: Any) -> Any: ...
    def add(self, x: Any, y: Any) -> Any: ...
    def mul(self, x: Any, y: Any) -> Any: ...
    def matmul(self, x: Any, y: Any) -> Any: ...
    def relu(self, x: Any) -> Any: ...
    def gelu(self, x: Any) -> Any: ...
    def layer_norm(self, x: Any, weight: Any, bias: Any) -> Any: ...
    def softmax(self, x: Any) -> Any: ...
    def transpose(self, x: Any, i: int, j: int) -> Any: ...
    def view(self, x: Any, shape: tuple[int, ...]) -> Any: ...
    def sum(self, x: Any) -> Any: ...


Body = Callable[..., Any]


@attrs.frozen
class Program:
    """A function of a library and of float32 tensors; its result is one number."""

    name: str
    body: Body
    shapes: tuple[tuple[int, ...], ...]
    with_grad: tuple[bool, ...]
    """For each argument whether it requires grad."""

    @property
    def ops(self) -> int:
        """The number of ops of the program: calls of the library in one forward."""
        counter = _Counter()
        self.body(counter, *[None] * len(self.shapes))
        return counter.calls


def program(spec: str) -> Program:
    """The program of `kind:size`: chain:1000 (ops), mlp:16 (layers), transformer:2 (blocks).

    >>> program("mlp:16").ops
    49
    """
    kind, _, size = spec.partition(":")
    if kind not in _KINDS or not size.isdecimal() or int(size) < 1:
        raise ValueError(f"row: {spec!r} is no program, expected {_EXPECTED}")
    return _KINDS[kind](spec, int(size))


# ------------------------------------------------------------------------------------- the programs
def _chain(name: str, length: int) -> Program:
    """Pointwise ops in a row; four of them make ten joint nodes."""

    def body(lib: Library, x: Any) -> Any:
        for index in range(length):
            match index % 4:
                case 0:
                    x = lib.sin(x)
                case 1:
                    x = lib.mul(x, 0.99)
                case 2:
                    x = lib.cos(x)
                case _:
                    x = lib.add(x, 0.5)
        return lib.sum(x)

    return Program(name, body, ((4,),), (True,))


def _mlp(name: str, layers: int) -> Program:
    """Linear layers with relu."""

    def body(lib: Library, x: Any, *parameters: Any) -> Any:
        for weight, bias in _groups(parameters, 2):
            x = lib.relu(lib.add(lib.matmul(x, weight), bias))
        return lib.sum(x)

    shapes = ((2, 4), *((4, 4), (4,)) * layers)
    return Program(name, body, shapes, (False, *[True] * (2 * layers)))


BATCH, TIME, HEADS, WIDTH = 2, 4, 2, 8
_BLOCK: tuple[tuple[int, ...], ...] = (
    *((WIDTH,), (WIDTH,)),  # the first layer norm
    *((WIDTH, WIDTH),) * 4,  # queries, keys, values, output
    *((WIDTH,), (WIDTH,)),  # the second layer norm
    *((WIDTH, 2 * WIDTH), (2 * WIDTH,), (2 * WIDTH, WIDTH), (WIDTH,)),  # the MLP
)


def _transformer(name: str, blocks: int) -> Program:
    """Pre-norm blocks: self-attention, then an MLP with gelu."""

    def body(lib: Library, x: Any, *parameters: Any) -> Any:
        for group in _groups(parameters, len(_BLOCK)):
            x = lib.add(x, _attention(lib, x, *group[:6]))
            x = lib.add(x, _feed_forward(lib, x, *group[6:]))
        return lib.sum(x)

    shapes = ((BATCH, TIME, WIDTH), *_BLOCK * blocks)
    return Program(name, body, shapes, (False, *[True] * (len(_BLOCK) * blocks)))


def _attention(lib: Library, x: Any, weight: Any, bias: Any, *projections: Any) -> Any:
    normed = lib.layer_norm(x, weight, bias)
    heads = (BATCH, TIME, HEADS, WIDTH // HEADS)
    queries, keys, values = [
        lib.transpose(lib.view(lib.matmul(normed, projection), heads), 1, 2)
        for projection in projections[:3]
    ]
    scores = lib.mul(lib.matmul(queries, lib.transpose(keys, 2, 3)), 0.5)
    mixed = lib.matmul(lib.softmax(scores), values)
    joined = lib.view(lib.transpose(mixed, 1, 2), (BATCH, TIME, WIDTH))
    return lib.matmul(joined, projections[3])


def _feed_forward(lib: Library, x: Any, weight: Any, bias: Any, *layers: Any) -> Any:
    normed = lib.layer_norm(x, weight, bias)
    hidden = lib.gelu(lib.add(lib.matmul(normed, layers[0]), layers[1]))
    return lib.add(lib.matmul(hidden, layers[2]), layers[3])


def _groups(values: tuple[Any, ...], size: int) -> Iterator[tuple[Any, ...]]:
    for start in range(0, len(values), size):
        yield values[start : start + size]


_KINDS: dict[str, Callable[[str, int], Program]] = {
    "chain": _chain,
    "mlp": _mlp,
    "transformer": _transformer,
}
_EXPECTED = " or ".join(f"{kind}:SIZE" for kind in _KINDS)


# ------------------------------------------------------------------------------------ the libraries
class _Counter:
    """A library that computes nothing and counts its calls."""

    def __init__(self) -> None:
        self.calls = 0

    def __getattr__(self, name: str) -> Callable[..., None]:
        def op(*_: Any) -> None:
            self.calls += 1

        return op


class TorchLike:
    """aotlite or PyTorch: the same methods, and functions in `nn.functional`."""

    def __init__(self, functional: Any) -> None:
        self.functional = functional

    def sin(self, x: Any) -> Any:
        return x.sin()

    def cos(self, x: Any) -> Any:
        return x.cos()

    def add(self, x: Any, y: Any) -> Any:
        return x + y

    def mul(self, x: Any, y: Any) -> Any:
        return x * y

    def matmul(self, x: Any, y: Any) -> Any:
        return x @ y

    def relu(self, x: Any) -> Any:
        return x.relu()

    def gelu(self, x: Any) -> Any:
        return self.functional.gelu(x, approximate="tanh")

    def layer_norm(self, x: Any, weight: Any, bias: Any) -> Any:
        return self.functional.layer_norm(x, (WIDTH,), weight, bias)

    def softmax(self, x: Any) -> Any:
        return x.softmax(-1)

    def transpose(self, x: Any, i: int, j: int) -> Any:
        return x.transpose(i, j)

    def view(self, x: Any, shape: tuple[int, ...]) -> Any:
        return x.reshape(shape)

    def sum(self, x: Any) -> Any:
        return x.sum()


class Jax:
    """JAX: `jax.numpy`, and `jax.nn` where it has the function."""

    def __init__(self) -> None:
        self.jax, self.jnp = import_module("jax"), import_module("jax.numpy")

    def sin(self, x: Any) -> Any:
        return self.jnp.sin(x)

    def cos(self, x: Any) -> Any:
        return self.jnp.cos(x)

    def add(self, x: Any, y: Any) -> Any:
        return x + y

    def mul(self, x: Any, y: Any) -> Any:
        return x * y

    def matmul(self, x: Any, y: Any) -> Any:
        return x @ y

    def relu(self, x: Any) -> Any:
        return self.jax.nn.relu(x)

    def gelu(self, x: Any) -> Any:
        return self.jax.nn.gelu(x, approximate=True)

    def layer_norm(self, x: Any, weight: Any, bias: Any) -> Any:
        return self.jax.nn.standardize(x) * weight + bias

    def softmax(self, x: Any) -> Any:
        return self.jax.nn.softmax(x)

    def transpose(self, x: Any, i: int, j: int) -> Any:
        return self.jnp.swapaxes(x, i, j)

    def view(self, x: Any, shape: tuple[int, ...]) -> Any:
        return x.reshape(shape)

    def sum(self, x: Any) -> Any:
        return x.sum()
