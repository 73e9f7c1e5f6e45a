"""Programs of two vectors of one size whose results have sizes that depend on values.

`PROGRAMS` are written by hand, by name; `random_program(seed)` is drawn.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import aotlite as al

Tensor = al.Tensor
PROGRAMS: dict[str, Callable[..., Any]] = {
    "mask": lambda x, w: x[x > 0] * 2,
    "one mask of two tensors": lambda x, w: x[x > 0] + w[x > 0],
    "several masks": lambda x, w: (x[x > 0].sum() - w[w > 0].sum(), x[x > 0], w[w < 0]),
    "masked_select": lambda x, w: (x * w).masked_select(x > w).exp(),
    "broadcast mask": lambda x, w: x.unsqueeze(0).masked_select((w > 0).unsqueeze(1)),
    "a mask with more rows": lambda x, w: x.view(1, -1).masked_select(al.stack([w, x]) > 0),
    "nonzero": lambda x, w: (al.nonzero(x > w), al.nonzero(x, as_tuple=True)[0] + 1),
    "argwhere": lambda x, w: al.argwhere((x > w).unsqueeze(0)),
    "where": lambda x, w: w[al.where(x > 0)] * 3,
    "unique_consecutive": lambda x, w: al.unique_consecutive(x.detach().to(al.int64)),
    "bincount": lambda x, w: al.bincount(x.detach().abs().to(al.int64), w.detach(), minlength=2),
    "repeated": lambda x, w: w.repeat_interleave(x.detach().abs().to(al.int64)) * 2,
    "length alone": lambda x, w: (x * 2, x[x > 0].shape[0], al.nonzero(w).shape),
    "cat": lambda x, w: al.cat([x[x > 0], w, x[x < 0]]),
    "softmax": lambda x, w: al.softmax(x[x > -1], 0),
    "mean": lambda x, w: x[x > 0].mean(),
    "sort and cumsum": lambda x, w: (al.sort(x[x > 0])[0], x[x > 0].cumsum(0)),
    "views": lambda x, w: (x[x > 0].unsqueeze(0), x[x > 0][1:], x[x > 0].expand(2, -1)),
    "an int64 mask": lambda x, w: x[(x > 0).to(al.uint8)],
    "a mask beside a slice": lambda x, w: x.unsqueeze(1)[x > 0, :] * w,
}


def program(function: Callable[..., Any]) -> Callable[..., Any]:
    """Adds a program by its name."""
    PROGRAMS[function.__name__] = function
    return function


@program
def coordinates(x: Tensor, w: Tensor) -> Any:
    found = al.nonzero(x > 0)[:, 0]
    return w.index_add(0, found, x[found]), w.index_select(0, found)


@program
def distinct(x: Tensor, w: Tensor) -> Any:
    whole = (x.detach() * 2).to(al.int64)
    found, places, counts = al.unique(whole, return_inverse=True, return_counts=True)
    return found, places, counts, found * 2.0


@program
def distinct_rows(x: Tensor, w: Tensor) -> Any:
    rows = al.stack([x, x, w], 1).detach().to(al.int64)
    return al.unique(rows, dim=0), al.unique(rows, dim=1)


@program
def chain(x: Tensor, w: Tensor) -> Any:
    first = x[x > 0]
    second = first[first > 0.5]
    third = second[second < 2]
    return first.sum() + second.sum() * w.sum(), third


@program
def written_under_a_mask(x: Tensor, w: Tensor) -> Any:
    y = x.clone()
    y[x > 0] = 0.5
    mask = w > 0
    y[mask] = w[mask] * 3
    return y * w


@program
def item(x: Tensor, w: Tensor) -> Any:
    n = (x > 0).sum().item()
    return x[:n] * w[:n], al.zeros(n), n, n * 2 + 1


@program
def reshaped(x: Tensor, w: Tensor) -> Any:
    found = x[x > 0]
    n = found.shape[0]
    return found.reshape(n, 1) * w.reshape(1, -1), found.numel()


@program
def written(x: Tensor, w: Tensor) -> Any:
    found = x[x > 0]
    found.mul_(2)
    view = found[:1]
    found += 1
    x.add_(w)
    return found, view, x[x > 0]


@program
def products(x: Tensor, w: Tensor) -> Any:
    found = x[x > 0]
    return (found.unsqueeze(0) * found.unsqueeze(1)).sum(0), found @ found


@program
def drawn_numbers(x: Tensor, w: Tensor) -> Any:
    found = x[al.rand(x.shape[0]) > 0.5]
    return found, al.rand(found.shape[0]), w * al.rand(1)


@program
def several_results(x: Tensor, w: Tensor) -> Any:
    values, places = al.sort(x)
    first, second = al.stack([x, w]).unbind(0)
    return values[values > 0], places, w[places], second[second > 0], first


@program
def a_branch_with_a_hint(x: Tensor, w: Tensor) -> Any:
    found = x[x > 0]
    al.size_hint(found.shape[0], 3)
    return found.sum() if found.shape[0] > 2 else found.sum() * w.sum()


# ------------------------------------------------------------------------------- random programs
def random_program(seed: int) -> Callable[..., Any]:
    """A program of some ten steps on vectors, drawn by the seed."""
    steps = _drawn(np.random.default_rng(seed))

    def drawn(x: Tensor, w: Tensor) -> Any:
        values = [x, w]
        for step, first, second in steps:
            values.append(step(values[first], values[second]))
        return tuple(values[2:])

    return drawn


STEPS: list[Callable[[Tensor, Tensor], Any]] = [
    lambda a, b: a[a > 0],
    lambda a, b: a.masked_select(a < 0.5),
    lambda a, b: a[al.nonzero(a > 0.2)[:, 0]],
    lambda a, b: al.cat([a, b]),
    lambda a, b: a * b.sum(),
    lambda a, b: a + 1,
    lambda a, b: a.tanh() - b.mean(),
    lambda a, b: a[: (b > 0).sum().item()],
    lambda a, b: al.zeros(b[b > 0].shape[0]) + a.sum(),
    lambda a, b: a.flip(0).clone().mul_(2),
    lambda a, b: a[1:] * a[:-1],
    lambda a, b: a.repeat_interleave((a > 0).to(al.int64)),
    lambda a, b: al.unique(a.detach().to(al.int64)).to(al.float32),
    lambda a, b: a.new_ones(a.shape[0] + b.shape[0]),
    lambda a, b: a.cumsum(0),
]


def _drawn(generator: np.random.Generator) -> list[tuple[Callable[..., Any], int, int]]:
    return [
        (
            STEPS[int(generator.integers(len(STEPS)))],
            int(generator.integers(number + 2)),
            int(generator.integers(number + 2)),
        )
        for number in range(int(generator.integers(3, 10)))
    ]
