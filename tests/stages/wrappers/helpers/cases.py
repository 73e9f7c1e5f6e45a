"""Programs with wrappers, each with the arguments that it is called with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import aotlite as al
from aotlite.subclasses import TwoTensor

Case = tuple[Callable[..., Any], Callable[[], tuple[Any, ...]]]


def dense(shape: tuple[int, ...] = (6,), start: float = -0.4, step: float = 0.2) -> al.Tensor:
    count = 1
    for size in shape:
        count *= size
    return al.tensor([start + step * i for i in range(count)]).view(*shape).clone()


def two(*shape: int, start: float = 0.3, grad: bool = False) -> TwoTensor:
    shape = shape or (6,)
    return TwoTensor(dense(shape, start), dense(shape, start + 1, 0.5), requires_grad=grad)


def nested(*shape: int, grad: bool = False) -> TwoTensor:
    return TwoTensor(two(*shape), two(*shape, start=2.3), requires_grad=grad)


CASES: dict[str, Case] = {}


def case(make: Callable[[], tuple[Any, ...]]) -> Callable[[Callable[..., Any]], Any]:
    def add(function: Callable[..., Any]) -> Any:
        CASES[function.__name__] = function, make
        return function

    return add


# ----------------------------------------------------------------------------------- values, views
@case(lambda: (two(grad=True),))
def a_function(x: Any) -> Any:
    return (x * x).sin()


@case(lambda: (two(),))
def a_view(x: Any) -> Any:
    return x.view(2, 3)


@case(lambda: (two(grad=True),))
def a_view_with_history(x: Any) -> Any:
    return x.view(2, 3)


@case(lambda: (two(grad=True),))
def views_of_an_intermediate(x: Any) -> Any:
    y = x * 2
    return y[0:2], y[1:4]


@case(lambda: (two(grad=True),))
def an_intermediate_and_a_view(x: Any) -> Any:
    y = x * 2
    return y, y[1:4]


@case(lambda: (two(grad=True),))
def a_view_alone(x: Any) -> Any:
    return (x * 2).view(2, 3)


@case(lambda: (two(2, 3),))
def a_transposed_view(x: Any) -> Any:
    return x.t()


@case(lambda: (two(2, 3),))
def a_transposed_value(x: Any) -> Any:
    return x.t() * 1


@case(lambda: (two(grad=True),))
def chunks(x: Any) -> Any:
    return x.chunk(2)


@case(lambda: (two(grad=True),))
def parts_of_an_intermediate(x: Any) -> Any:
    return (x * 2).split(2)


@case(lambda: (two(grad=True),))
def rows(x: Any) -> Any:
    return x.view(2, 3).softmax(-1)


@case(lambda: (two(2, 3, grad=True), two(3, 2, grad=True)))
def a_product(x: Any, y: Any) -> Any:
    return (x @ y).t()


@case(lambda: (two(grad=True),))
def two_results_of_one_op(x: Any) -> Any:
    return x.max(0)


@case(lambda: (two(grad=True),))
def a_list_of_wrappers(x: Any) -> Any:
    return al.cat([x, x * 2])


@case(lambda: (two(),))
def random_numbers(x: Any) -> Any:
    return al.nn.functional.dropout(x, 0.5)


# ---------------------------------------------------------------------------- identity and history
@case(lambda: (two(grad=True),))
def the_argument_itself(x: Any) -> Any:
    return x, x * 2


@case(lambda: (two(grad=True),))
def one_result_twice(x: Any) -> Any:
    y = x * 2
    return y, y


@case(lambda: (two(grad=True),))
def no_tensor(x: Any) -> Any:
    return 3


@case(lambda: (two(grad=True), dense()))
def dense_and_wrapped(x: Any, d: Any) -> Any:
    return x * 2, d * 3


@case(lambda: (two(grad=True),))
def detached(x: Any) -> Any:
    return x.detach(), x * 1


@case(lambda: (two(grad=True),))
def written_behind_its_history(x: Any) -> Any:
    y = x * 1
    y.detach().mul_(2)
    return y


@case(lambda: (two(grad=True),))
def without_history(x: Any) -> Any:
    with al.no_grad():
        z = x * 3
    return z, x * 1


@case(lambda: (two(),))
def made_a_leaf(x: Any) -> Any:
    x.requires_grad_()
    return x * 2


# ----------------------------------------------------------------------------------------- writes
@case(lambda: (two(),))
def written(x: Any) -> Any:
    x.mul_(2)
    return x.sum()


@case(lambda: (two(),))
def written_through_a_view(x: Any) -> Any:
    x[1:3].mul_(2)
    return x


@case(lambda: (two(grad=True), two(start=1.0)))
def written_with_history(x: Any, y: Any) -> Any:
    y.mul_(x)
    return y * 2


@case(lambda: (two(grad=True), two(start=1.0)))
def written_with_history_through_a_view(x: Any, y: Any) -> Any:
    y[1:3].mul_(x[0:2])
    return y * 2


def overlapping() -> tuple[Any, ...]:
    base = two()
    return base[0:4], base[2:6]


@case(overlapping)
def written_where_another_overlaps(x: Any, y: Any) -> Any:
    x.mul_(2)
    return y * 1


def base_and_view() -> tuple[Any, ...]:
    base = two()
    return base, base.view(2, 3)


@case(base_and_view)
def a_base_written_through_its_view(x: Any, y: Any) -> Any:
    y.mul_(2)
    return x.sum()


def one_twice() -> tuple[Any, ...]:
    one = two()
    return one, one


@case(one_twice)
def one_wrapper_as_two_arguments(x: Any, y: Any) -> Any:
    x.mul_(2)
    return y * 1, x


# ------------------------------------------------------------------------------------------- parts
@case(lambda: (dense(), dense()))
def wrapped_inside(a: Any, b: Any) -> Any:
    return TwoTensor(a, b) * 2


@case(lambda: (dense(), dense()))
def wrapped_arguments(a: Any, b: Any) -> Any:
    return TwoTensor(a, b)


@case(lambda: (dense(), dense()))
def wrapped_results(a: Any, b: Any) -> Any:
    return TwoTensor(a * 1, b + 2)


@case(lambda: (dense(),))
def wrapped_twice(a: Any) -> Any:
    return TwoTensor(a, a)


@case(lambda: (two(),))
def a_part(x: Any) -> Any:
    return x.a


@case(lambda: (two(),))
def a_view_of_a_part(x: Any) -> Any:
    return x.a[1:]


@case(lambda: (two(),))
def computed_from_a_part(x: Any) -> Any:
    return x.a * 2


@case(lambda: (two(),))
def a_part_written(x: Any) -> Any:
    x.a.mul_(2)
    return x * 1


@case(lambda: (two(),))
def a_part_read_after_a_write(x: Any) -> Any:
    x.mul_(2)
    return x.a + 1


@case(lambda: (two(grad=True),))
def a_part_of_a_result(x: Any) -> Any:
    y = x * 2
    return y.a, y


def shared_part() -> tuple[Any, ...]:
    part = dense(start=2.0)
    return TwoTensor(dense(), part), TwoTensor(dense(), part)


@case(shared_part)
def wrappers_that_share_a_part(x: Any, y: Any) -> Any:
    return x * y, y


@case(shared_part)
def a_shared_part_written(x: Any, y: Any) -> Any:
    x.mul_(2)
    return y * 1


def part_and_wrapper() -> tuple[Any, ...]:
    part = dense(start=2.0)
    return TwoTensor(dense(), part), part


@case(part_and_wrapper)
def a_part_that_is_an_argument_written(x: Any, part: Any) -> Any:
    part.mul_(3)
    return x * 1


@case(part_and_wrapper)
def an_argument_written_as_a_part(x: Any, part: Any) -> Any:
    x.mul_(3)
    return part * 1


# ----------------------------------------------------------------------------------------- nesting
@case(lambda: (nested(grad=True),))
def of_wrappers(x: Any) -> Any:
    return (x * x).sin()


@case(lambda: (nested(),))
def wrappers_of_wrappers_written(x: Any) -> Any:
    x.mul_(2)
    return x[1:]


@case(lambda: (nested(grad=True),))
def views_of_wrappers_of_wrappers(x: Any) -> Any:
    y = x * 3
    return y[1:], y[:2]


@case(lambda: (nested(),))
def wrappers_that_are_parts(x: Any) -> Any:
    return x.a, x.b * 2
