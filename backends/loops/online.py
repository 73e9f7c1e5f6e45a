"""Maxima and sums of exponentials less them, of long rows, in one pass over memory.

Input: a program after fusion; output: one in which `max(x)` and `sum(exp(x - max(x)))` of the same
rows are one reduction `sum_exp`, where rows are too long to be kept: each row is read once less.
Fusion should follow, since what is left of the sum's kernel may be pointwise. This changes the
order of sums, on purpose. Spec: `specs/fusion.md`, FUS-23.
"""

from __future__ import annotations

import attrs

from aotlite.backends.loops.cost import inner_points
from aotlite.backends.loops.expr import Affine, Scalar, const, load, name
from aotlite.backends.loops.program import (
    Buffer,
    Kernel,
    Kind,
    Program,
    Reduce,
    Statement,
    Step,
    Store,
    loads_in,
    writes,
)
from aotlite.backends.loops.rewrite import free_name, replaced_body


def with_online(program: Program, longest: int) -> Program:
    """The program with such reductions in one, of rows of more points than `longest`; of several
    kernels' rows, which are longer than what fusion takes together, however long they are."""
    buffers = list(program.buffers)
    steps = [
        _in_kernel(step) if type(step) is Kernel and inner_points(step) > longest else step
        for step in program.steps
    ]
    for place in range(len(steps)):
        for earlier in range(place):
            _join(steps, earlier, place, buffers)
    if len(buffers) == len(program.buffers) and tuple(steps) == program.steps:
        return program
    return attrs.evolve(program, buffers=tuple(buffers), steps=tuple(steps))


def _in_kernel(kernel: Kernel) -> Kernel:
    """The kernel with its own pairs of reductions joined."""
    for first in kernel.body:
        if type(first) is Reduce and first.kind == "max":
            top = name(first.names[0], first.values[0].dtype)
            for second in kernel.body:
                if isinstance(second, Reduce) and _is_sum(second, first.values[0], top):
                    return _in_kernel(_joined(kernel, first, second))
    return kernel


def _is_sum(statement: Statement, x: Scalar, top: Scalar) -> bool:
    """Whether it is the sum of exp(x - top), in the dtype of x."""
    if type(statement) is not Reduce or statement.kind != "sum":
        return False
    (value,) = statement.values
    if value.op not in ("exp", "exp_nonpositive") or value.args[0].op != "sub":
        return False
    return value.args[0].args == (x, top)


def _online(first: Reduce, total: int) -> Reduce:
    """Both, the sum under this name: without the nan of a row whose maximum is not finite."""
    (x,) = first.values
    return Reduce((first.names[0], total), "sum_exp", (x, const(1, x.dtype)), first.lanes)


def _sum_of(total: Scalar, top: Scalar) -> Scalar:
    """The sum of exp(x - top), nan where top is not finite, as an exponential of nan is."""
    return total + (top - top)


def _joined(kernel: Kernel, first: Reduce, second: Reduce) -> Kernel:
    total = free_name(kernel.body)
    (x,) = first.values
    top = name(first.names[0], x.dtype)
    memo = {name(second.names[0], x.dtype): _sum_of(name(total, x.dtype), top)}
    body = [_online(first, total) if each is first else each for each in kernel.body]
    body = [each for each in body if each is not second]
    return attrs.evolve(kernel, body=replaced_body(body, memo))


# --------------------------------------------------------------------------------- of two kernels
def _join(steps: list[Step], earlier: int, place: int, buffers: list[Buffer]) -> None:
    """Moves a sum to the kernel that makes and stores the maxima, if its rows are the same."""
    one, two = steps[earlier], steps[place]
    if type(one) is not Kernel or type(two) is not Kernel:
        return
    if one.extents != two.extents or one.space != two.space or not one.space < len(one.extents):
        return
    for first in one.body:
        if type(first) is Reduce and first.kind == "max":
            (x,) = first.values
            for top in _stored(one, first):
                found = next((each for each in two.body if _is_sum(each, x, top)), None)
                if type(found) is Reduce and _is_unchanged(steps[earlier:place], x, top):
                    steps[earlier], steps[place] = _moved(one, two, first, found, top, buffers)
                    return


def _stored(kernel: Kernel, reduce: Reduce) -> list[Scalar]:
    """Where a kernel stores the results of a reduction, for each row, as loads."""
    top = name(reduce.names[0], reduce.values[0].dtype)
    return [
        load(each.buffer, each.address, top.dtype)
        for each in kernel.body
        if type(each) is Store and each.each_row and each.value is top and not each.combine
    ]


def _is_unchanged(steps: list[Step], x: Scalar, top: Scalar) -> bool:
    """Whether no step has overwritten what the first one has loaded and stored."""
    loaded = {each.args[0] for each in loads_in([Store(-1, Affine(()), x)])}
    written = [writes(step) for step in steps]
    return not any(each & loaded for each in written) and not any(
        top.args[0] in each for each in written[1:]
    )


def _moved(
    one: Kernel, two: Kernel, first: Reduce, second: Reduce, top: Scalar, buffers: list[Buffer]
) -> tuple[Kernel, Kernel]:
    """The first kernel with both reductions, the second one with the sum loaded."""
    total, dtype = free_name(one.body), top.dtype
    buffer = next(each for each in buffers if each.number == top.args[0])
    number = 1 + max([each.number for each in buffers])
    buffers.append(Buffer(number, dtype, buffer.size, Kind.TEMPORARY))
    address = top.args[1]
    result = _sum_of(name(total, dtype), name(first.names[0], dtype))
    body = [_online(first, total) if each is first else each for each in one.body]
    body.append(Store(number, address, result, each_row=True))
    memo = {name(second.names[0], dtype): load(number, address, dtype)}
    rest = replaced_body([each for each in two.body if each is not second], memo)
    return attrs.evolve(one, body=tuple(body)), attrs.evolve(two, body=rest)
