"""Counts the libraries that the C compiler makes for further sizes, of forward and backward.

`python -m benchmarks.size_libraries` trains programs on inputs of several sizes, with symbols for
these, and prints for each: compilations, the libraries of the first size, and those of all further
ones. The demo is trained with its last batch, which is shorter than the others, and nothing is said
of sizes: the second one makes it a symbol.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import attrs
import numpy as np

import aotlite as al
from aotlite import nn
from aotlite.cli.demo import compiled_functions
from aotlite.cli.digits import Session
from aotlite.data import load_digits
from benchmarks.common import machine_console, table
from benchmarks.sizes import Transformer, counted_libraries

SIZES = (33, 17, 64, 40, 21)
"""Multiples of the vector width and not; the first one is the call that is traced."""
COLUMNS = ("program", "sizes", "compilations", "libraries", "of further sizes")
WORDS = 50


def _images(n: int) -> al.Tensor:
    draws = np.random.default_rng(n)
    return al.tensor(draws.standard_normal((n, 3, n + 5, n + 10)).astype(np.float32))


def _rows(width: int, n: int) -> al.Tensor:
    return al.tensor(np.random.default_rng(n).standard_normal((n, width)).astype(np.float32))


def _sentences(n: int) -> al.Tensor:
    return al.tensor(np.random.default_rng(n).integers(0, WORDS, (n, n + 3)))


def _batches(width: int, n: int) -> al.Tensor:
    draws = np.random.default_rng(n)
    return al.tensor(draws.standard_normal((3, n, width)).astype(np.float32))


@attrs.frozen
class Program:
    """A loss of a model, with inputs by their size."""

    parameters: list[Any]
    loss: Callable[..., al.Tensor]
    """Of the input `x` and the parameters."""
    given: Callable[[int], al.Tensor]
    dims: tuple[int, ...]
    """The dimensions of the input that change."""


def transformer() -> Program:
    """One block of attention and an MLP; the length changes."""
    model = Transformer(1, 32, heads=4)
    return Program(model.parameters, model.loss, partial(_batches, 32), (1,))


def _of(model: nn.Module, given: Callable[[int], al.Tensor], dims: tuple[int, ...]) -> Program:
    parameters = list(model.parameters())

    def loss(x: al.Tensor, parameters: Sequence[al.Tensor]) -> al.Tensor:
        return model(x).log_softmax(-1)[:, 0].mean()

    return Program(parameters, loss, given, dims)


def mlp() -> Program:
    """An MLP with batch normalization, which writes its running statistics."""
    layers = nn.Linear(16, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 10)
    return _of(nn.Sequential(*layers), partial(_rows, 16), (0,))


def convnet() -> Program:
    """Convolutions, batch normalization and pooling; batch and image sizes change."""
    layers = [
        *(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(8, 12, 3, stride=2), nn.ReLU(), nn.AvgPool2d(2)),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(12, 10)),
    ]
    return _of(nn.Sequential(*layers), _images, (0, 2, 3))


def embedding() -> Program:
    """Rows are gathered, summed by word with a scatter, and gathered again."""
    words, turn = nn.Embedding(WORDS, 16), nn.Linear(16, 8)

    def loss(x: al.Tensor, parameters: Sequence[al.Tensor]) -> al.Tensor:
        flat = x.flatten()
        seen = turn(words(flat))
        summed = al.zeros(WORDS, 8).index_add(0, flat, seen)
        again = summed.gather(0, flat.unsqueeze(1).expand(flat.shape[0], 8))
        return nn.functional.cross_entropy(seen, flat % 8) + (again * again).mean()

    parameters = [*words.parameters(), *turn.parameters()]
    return Program(parameters, loss, _sentences, (0, 1))


PROGRAMS: dict[str, Callable[[], Program]] = {
    "transformer block": transformer,
    "MLP, batch norm": mlp,
    "convnet, pooling": convnet,
    "embedding, scatter, gather": embedding,
}


@attrs.frozen
class Counts:
    """What the sizes of a program took."""

    compilations: int
    first: int
    """Libraries of the first size."""
    further: int
    """Libraries of all further ones."""


def counted(made: Program, sizes: Sequence[int]) -> Counts:
    """Trains at each size, by all gradients."""
    shapes = {"x": dict.fromkeys(made.dims, True)}
    step: Any = al.compile(made.loss, dynamic_shapes=shapes, backend="cpu")
    libraries = []
    with counted_libraries() as loaded:
        for n in sizes:
            before = loaded[0]
            value = step(made.given(n), made.parameters)
            al.autograd.grad(value, made.parameters)
            libraries.append(loaded[0] - before)
    return Counts(len(step.entries), libraries[0], sum(libraries[1:]))


def demo(batch: int = 64, steps: int = 3) -> Counts:
    """Trains the demo for some steps, and then on a batch as short as the epoch's last one."""
    functions: Any = compiled_functions(backend="cpu")
    digits = load_digits()
    session = Session(functions, digits, 0, batch)
    rest = len(digits.train_labels) % batch
    assert rest > 1
    libraries = []
    with counted_libraries() as loaded:
        given = list(session.epoch())[:steps]
        given += [(images[:rest], labels[:rest]) for images, labels in given[:1]]
        for images, labels in given:
            before = loaded[0]
            session.step(images, labels)
            libraries.append(loaded[0] - before)
    return Counts(len(functions.loss.entries), libraries[0], sum(libraries[1:]))


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("programs", nargs="*", default=[*PROGRAMS, "demo"])
    given = parser.parse_args(arguments)
    made = table("libraries for further sizes", *COLUMNS)
    for name in given.programs:
        found = demo() if name == "demo" else counted(PROGRAMS[name](), SIZES)
        sizes = "64, 64, 64, 34" if name == "demo" else ", ".join(map(str, SIZES))
        made.add_row(name, sizes, *map(str, attrs.astuple(found)))
    console = machine_console()
    console.print(made)


if __name__ == "__main__":
    main()
