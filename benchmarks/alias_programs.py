"""Programs about views, writes and aliases, in calls that aotlite and PyTorch share.

Each takes the library (for `no_grad`) and tensors: `x` and `w` of 2 rows and 2 columns, or vectors
of 4 elements. Programs are small, as the benchmark counts the ops that a compiler makes of each
pattern.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs


@attrs.frozen
class AliasProgram:
    """A program and its arguments."""

    body: Callable[..., Any]
    """`body(library, *tensors)`."""
    arguments: Callable[[Any], list[Any]]
    """`arguments(library)`: fresh tensors."""

    @property
    def name(self) -> str:
        return self.body.__name__


PROGRAMS: dict[str, AliasProgram] = {}


# ------------------------------------------------------------------------------------- arguments
def values(lib: Any, *shape: int) -> Any:
    """A tensor of a shape with the numbers from 1; it requires grad."""
    count = 1
    for size in shape:
        count *= size
    return (lib.arange(count, dtype=lib.float32) + 1.0).reshape(shape).clone().requires_grad_()


def a_vector(lib: Any) -> list[Any]:
    """One vector that is no leaf."""
    return [values(lib, 4) * 1.0]


def a_leaf(lib: Any) -> list[Any]:
    """One leaf."""
    return [values(lib, 4)]


def a_constant(lib: Any) -> list[Any]:
    """One vector that requires no gradient."""
    return [values(lib, 4).detach()]


def two_matrices(lib: Any) -> list[Any]:
    """A matrix that is no leaf, and a leaf."""
    return [values(lib, 2, 2) * 1.0, values(lib, 2, 2)]


def constant_and_leaf(lib: Any) -> list[Any]:
    """A matrix that requires no gradient, and a leaf."""
    return [values(lib, 2, 2).detach(), values(lib, 2, 2)]


def one_twice(lib: Any) -> list[Any]:
    """One vector as both arguments."""
    return a_vector(lib) * 2


def overlapping(lib: Any) -> list[Any]:
    """Two views of one vector that share two elements."""
    base = values(lib, 4) * 1.0
    return [base.narrow(0, 0, 3), base.narrow(0, 1, 3)]


def called_with(arguments: Callable[[Any], list[Any]]) -> Callable[..., Any]:
    """Returns a decorator that adds a program to the table."""

    def enter(body: Callable[..., Any]) -> Callable[..., Any]:
        PROGRAMS[body.__name__] = AliasProgram(body, arguments)
        return body

    return enter


# --------------------------------------------------------------------------- writes through views
@called_with(two_matrices)
def column_of_a_product(lib: Any, x: Any, w: Any) -> Any:
    y = x.sin()
    y.select(0, 1).mul_(w.select(1, 0))
    return y * x


@called_with(two_matrices)
def column_of_an_input(lib: Any, x: Any, w: Any) -> Any:
    x.t().select(0, 0).mul_(w.select(1, 0))
    return x * w


@called_with(a_vector)
def halves_copied_crosswise(lib: Any, x: Any) -> Any:
    y = x * 0.0
    y.narrow(0, 0, 2).copy_(x.narrow(0, 2, 2))
    y.narrow(0, 2, 2).copy_(x.narrow(0, 0, 2) * 7.0)
    return y * x


@called_with(a_vector)
def through_strides(lib: Any, x: Any) -> Any:
    y = x * 1.0
    y.as_strided((2,), (3,), 0).mul_(x.narrow(0, 0, 2))
    return y


@called_with(two_matrices)
def diagonal_written(lib: Any, x: Any, w: Any) -> Any:
    y = x * w
    y.diagonal().mul_(w.diagonal())
    return y


@called_with(two_matrices)
def views_of_views_written(lib: Any, x: Any, w: Any) -> Any:
    y = x * 1.0
    y.view(4).narrow(0, 1, 2).view(2, 1).select(1, 0).add_(w.diagonal())
    return y.t() * w


@called_with(a_vector)
def stale_view_read(lib: Any, x: Any) -> Any:
    y = x * 2.0
    v = y.view(2, 2)
    y.mul_(3.0)
    v.select(0, 0).mul_(5.0)
    return v.sum(0), y


@called_with(two_matrices)
def expanded_then_written(lib: Any, x: Any, w: Any) -> Any:
    y = x.select(0, 0) * 1.0
    e = y.view(1, 2).expand(2, 2)
    y.mul_(3.0)
    return e * w


@called_with(two_matrices)
def constant_gets_a_history(lib: Any, x: Any, w: Any) -> Any:
    y = x.detach().clone()
    y.select(0, 0).copy_(w.select(0, 0))
    return y * 2.0


@called_with(a_vector)
def sibling_written_after_use(lib: Any, x: Any) -> Any:
    y = x * 1.0
    a = y.narrow(0, 0, 2).exp()
    y.narrow(0, 2, 2).mul_(2.0)
    return a, y


@called_with(a_vector)
def part_of_a_split_written(lib: Any, x: Any) -> Any:
    y = x * 2.0
    parts = y.split(2)
    y.mul_(3.0)
    return y + 1.0, parts[0].detach() * 1.0


@called_with(two_matrices)
def rows_filled(lib: Any, x: Any, w: Any) -> Any:
    y = x * w
    y.select(0, 0).zero_()
    y.select(0, 1).fill_(2.0)
    return y * x


@called_with(two_matrices)
def every_row_of_a_buffer(lib: Any, x: Any, w: Any) -> Any:
    y = (x * 0.0).detach()
    for i in range(2):
        y.select(0, i).copy_(x.select(0, i) * w.select(1, i))
    return y.sum(0)


@called_with(a_vector)
def running_sum(lib: Any, x: Any) -> Any:
    y = x * 1.0
    for i in range(1, 4):
        y.select(0, i).add_(y.select(0, i - 1))
    return y


# ---------------------------------------------------------------------------------- whole writes
@called_with(two_matrices)
def quotient_in_place(lib: Any, x: Any, w: Any) -> Any:
    y = x * 1.0
    y.div_(w)
    return y


@called_with(two_matrices)
def result_saved_in_place(lib: Any, x: Any, w: Any) -> Any:
    y = x * 1.0
    y.exp_()
    return y * 2.0


@called_with(a_vector)
def own_copy_changed(lib: Any, x: Any) -> Any:
    y = x.clone()
    for _ in range(3):
        y.mul_(2.0).add_(1.0)
    return y


# ------------------------------------------------------------------------------- written arguments
@called_with(a_vector)
def written_and_returned(lib: Any, x: Any) -> Any:
    x.mul_(2.0)
    return x


@called_with(a_constant)
def part_of_a_constant_written(lib: Any, x: Any) -> Any:
    x.narrow(0, 0, 2).add_(1.0)
    return x.view(2, 2), x * 2.0


@called_with(constant_and_leaf)
def constant_argument_gets_a_history(lib: Any, x: Any, w: Any) -> Any:
    x.t().select(0, 0).mul_(w.select(1, 0))
    return x * 3.0


@called_with(a_leaf)
def leaf_written_without_history(lib: Any, x: Any) -> Any:
    with lib.no_grad():
        x.view(2, 2).mul_(2.0)
    return x * x


@called_with(two_matrices)
def transposed_in_place(lib: Any, x: Any, w: Any) -> Any:
    x.t_()
    return x + w


@called_with(two_matrices)
def transposed_in_place_and_written(lib: Any, x: Any, w: Any) -> Any:
    y = x * 1.0
    y.t_()
    y.mul_(w)
    return y + 1.0


@called_with(one_twice)
def one_argument_twice(lib: Any, x: Any, w: Any) -> Any:
    x.mul_(2.0)
    return x + w


@called_with(overlapping)
def overlapping_arguments_written(lib: Any, x: Any, w: Any) -> Any:
    x.mul_(2.0)
    return x + w


@called_with(overlapping)
def overlapping_arguments_read(lib: Any, x: Any, w: Any) -> Any:
    return x * w


# ------------------------------------------------------------------------------------ detached
@called_with(a_vector)
def through_detach(lib: Any, x: Any) -> Any:
    y = x * 2.0
    y.detach().mul_(3.0)
    return y + 1.0, x.cos()


@called_with(a_vector)
def view_written_without_history(lib: Any, x: Any) -> Any:
    y = x * 2.0
    v = y.narrow(0, 1, 2)
    with lib.no_grad():
        y.narrow(0, 0, 2).mul_(10.0)
    return y * 1.0, v * 2.0


@called_with(a_vector)
def without_history_then_with(lib: Any, x: Any) -> Any:
    y = x * 2.0
    with lib.no_grad():
        y.mul_(3.0)
    y.narrow(0, 0, 2).mul_(x.narrow(0, 2, 2))
    return y


# --------------------------------------------------------------------------------------- results
@called_with(a_vector)
def view_of_an_argument(lib: Any, x: Any) -> Any:
    return x.narrow(0, 1, 2), x + 1.0


@called_with(a_vector)
def view_of_a_product(lib: Any, x: Any) -> Any:
    return (x * 2.0).view(2, 2)


@called_with(a_vector)
def two_views_of_a_product(lib: Any, x: Any) -> Any:
    y = x * 2.0
    return y.view(2, 2), y.narrow(0, 0, 2)


@called_with(a_vector)
def product_and_its_view(lib: Any, x: Any) -> Any:
    y = x * 2.0
    return y, y.view(2, 2)


@called_with(a_vector)
def product_and_itself_detached(lib: Any, x: Any) -> Any:
    y = x * 2.0
    return y, y.detach()


@called_with(a_vector)
def argument_itself(lib: Any, x: Any) -> Any:
    return x, x * 2.0


@called_with(two_matrices)
def view_written_and_returned(lib: Any, x: Any, w: Any) -> Any:
    y = x * w
    row = y.select(0, 1)
    row.add_(w.select(0, 0))
    return y, row


# ---------------------------------------------------------------------------------- in proportion
def row_writes(count: int) -> AliasProgram:
    """`count` writes to the four elements of a vector, in turn."""

    def row_writes(lib: Any, x: Any) -> Any:
        y = x * 1.0
        for i in range(count):
            y.select(0, i % 4).mul_(2.0)
        return y

    return AliasProgram(row_writes, a_vector)


def overlapping_reads(count: int) -> AliasProgram:
    """`count` rounds: a write of a part, and reads of two parts that overlap it."""

    def overlapping_reads(lib: Any, x: Any) -> Any:
        y = x * 1.0
        total = x.narrow(0, 0, 2)
        for _ in range(count):
            y.narrow(0, 0, 3).mul_(2.0)
            total = total + y.narrow(0, 1, 2) + y.narrow(0, 2, 2)
        return total

    return AliasProgram(overlapping_reads, a_vector)
