"""Online softmax and Welford's moments: two dependent reductions of a long row in one pass.

    v0 = reduce<max>(x);  v1 = reduce<sum>(exp(x - v0))       ->  v0, v1 = reduce<sum_exp>(x, 1)
    v0 = reduce<sum>(x);  v1 = reduce<sum>((x - v0/n)^2)      ->  n, mean, v1 = reduce<moments>(...)

It saves one reading of rows that are too long for a cache. Where the two reductions stand in two
kernels, the second's moves to the first; fusion should run again afterwards, since the rest of the
second kernel may be pointwise. This changes the order of sums, on purpose. Spec: `specs/fusion.md`,
FUS-23.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import attrs

from aotlite.backends.loops.analysis.cost import inner_points
from aotlite.backends.loops.program import (
    BufferKind,
    Kernel,
    LoopProgram,
    ProgramBuffer,
    Reduce,
    Step,
    Store,
    loads_in,
    writes,
)
from aotlite.backends.loops.rewrite import free_name, replaced_body
from aotlite.ir.dtypes import float32, float64
from aotlite.ir.geometry.sizes import is_symbolic
from aotlite.ir.scalar.expression import Affine, Scalar, const, load, name


@attrs.frozen
class _Joint:
    """One reduction in place of two: replacements for the first's results, the second's result."""

    reduce: Reduce
    memo: dict[Scalar, Scalar]
    result: Scalar


@attrs.frozen
class _Rule:
    """A pair of reductions that can be one."""

    kind: str
    """The combiner of the first reduction."""
    center: Callable[[Reduce, int], Scalar]
    """(first, number of points) -> the value that the second subtracts: maximum or mean."""
    is_second: Callable[[Scalar, Scalar, Scalar], bool]
    """(summand, x, center) -> whether the sum is the second reduction."""
    joint: Callable[[Reduce, int, int], _Joint]
    """(first, a free name, number of points) -> the one reduction."""


def _name_of(reduce: Reduce) -> Scalar:
    return name(reduce.names[0], reduce.values[0].dtype)


def _is_exponential(value: Scalar, x: Scalar, top: Scalar) -> bool:
    is_exp = value.op in ("exp", "exp_nonpositive") and value.args[0].op == "sub"
    return is_exp and value.args[0].args == (x, top)


def _with_exponentials(first: Reduce, free: int, points: int) -> _Joint:
    """The joint reduction of softmax. `top - top` makes the sum NaN where the maximum is infinite,
    as exp(inf - inf) would be."""
    top, total = _name_of(first), name(free, first.values[0].dtype)
    parts = (first.values[0], const(1, top.dtype))
    both = Reduce((first.names[0], free), "sum_exp", parts, first.lanes, first.near)
    return _Joint(both, {}, total + (top - top))


def _mean(first: Reduce, points: int) -> Scalar:
    return _name_of(first) / float(points)


def _is_square(value: Scalar, x: Scalar, mean: Scalar) -> bool:
    is_one = value.op == "mul" and value.args[0] is value.args[1]
    return is_one and value.args[0].op == "sub" and value.args[0].args == (x, mean)


def _with_squares(first: Reduce, free: int, points: int) -> _Joint:
    (x,) = first.values
    names, parts = (free, free + 1, free + 2), (const(1, x.dtype), x, const(0, x.dtype))
    mean = name(free + 1, x.dtype)
    memo = {_mean(first, points): mean, _name_of(first): mean * float(points)}
    both = Reduce(names, "moments", parts, first.lanes, first.near)
    return _Joint(both, memo, name(free + 2, x.dtype))


_RULES = (
    _Rule("max", lambda first, _: _name_of(first), _is_exponential, _with_exponentials),
    _Rule("sum", _mean, _is_square, _with_squares),
)


def with_online(program: LoopProgram, is_long: Callable[[Kernel], bool]) -> LoopProgram:
    """Returns the program with such pairs joined: within a kernel if `is_long(kernel)`; across two
    kernels always, since fusion has left them apart for their long rows."""
    buffers = list(program.buffers)
    steps = [
        _in_kernel(step) if type(step) is Kernel and is_long(step) else step
        for step in program.steps
    ]
    for place in range(len(steps)):
        for earlier in range(place):
            _join(steps, earlier, place, buffers)
    if len(buffers) == len(program.buffers) and tuple(steps) == program.steps:
        return program
    return attrs.evolve(program, buffers=tuple(buffers), steps=tuple(steps))


def _firsts(kernel: Kernel) -> Iterator[tuple[_Rule, Reduce, Scalar]]:
    """Yields (rule, reduction, center) for each reduction that may be the first of a pair."""
    for each in kernel.body:
        for rule in _RULES:
            if isinstance(each, Reduce) and each.kind == rule.kind:
                if each.values[0].dtype in (float32, float64):
                    yield rule, each, rule.center(each, inner_points(kernel))


def _second(kernel: Kernel, rule: _Rule, x: Scalar, center: Scalar) -> Reduce | None:
    for each in kernel.body:
        if isinstance(each, Reduce) and each.kind == "sum":
            if rule.is_second(each.values[0], x, center):
                return each
    return None


def _in_kernel(kernel: Kernel) -> Kernel:
    """Returns the kernel with its own pairs of reductions joined."""
    for rule, first, center in _firsts(kernel):
        second = _second(kernel, rule, first.values[0], center)
        if second is not None:
            joint = rule.joint(first, free_name(kernel.body), inner_points(kernel))
            memo = joint.memo | {_name_of(second): joint.result}
            body = [joint.reduce if each is first else each for each in kernel.body]
            rest = replaced_body([each for each in body if each is not second], memo)
            return _in_kernel(attrs.evolve(kernel, body=rest))
    return kernel


# --------------------------------------------------------------------------------- of two kernels
def _join(steps: list[Step], earlier: int, place: int, buffers: list[ProgramBuffer]) -> None:
    """Joins a pair across two kernels, in place: the first computes both reductions and stores the
    second's result, which the other kernel loads. Both must have the same rows."""
    one, two = steps[earlier], steps[place]
    if type(one) is not Kernel or type(two) is not Kernel:
        return
    if one.extents != two.extents or one.space != two.space or not one.space < len(one.extents):
        return
    if is_symbolic(one.extents[one.space :]):  # the number of points may be any
        return
    for rule, first, center in _firsts(one):
        for stored in _stored(one, center):
            second = _second(two, rule, first.values[0], stored)
            between = steps[earlier:place]
            if second is not None and _is_unchanged(between, first.values[0], stored):
                joint = rule.joint(first, free_name(one.body), inner_points(one))
                moved = _moved((one, first), (two, second), joint, stored, buffers)
                steps[earlier], steps[place] = moved
                return


def _stored(kernel: Kernel, center: Scalar) -> list[Scalar]:
    """Returns, as loads, the places where a kernel stores the center of its rows."""
    return [
        load(each.buffer, each.address, center.dtype)
        for each in kernel.body
        if type(each) is Store and each.each_row and each.value is center and not each.combine
    ]


def _is_unchanged(steps: list[Step], x: Scalar, top: Scalar) -> bool:
    """Whether no step overwrites the buffers that the first kernel loads, nor, after it, the stored
    center."""
    loaded = {each.args[0] for each in loads_in([Store(-1, Affine(()), x)])}
    written = [writes(step) for step in steps]
    return not any(each & loaded for each in written) and not any(
        top.args[0] in each for each in written[1:]
    )


def _moved(
    one: tuple[Kernel, Reduce],
    two: tuple[Kernel, Reduce],
    joint: _Joint,
    stored: Scalar,
    buffers: list[ProgramBuffer],
) -> tuple[Kernel, Kernel]:
    """Returns the first kernel with both reductions, and the second with the sum loaded."""
    kernel, first = one
    other, second = two
    buffer = next(each for each in buffers if each.number == stored.args[0])
    number = 1 + max([each.number for each in buffers])
    buffers.append(ProgramBuffer(number, stored.dtype, buffer.size, BufferKind.TEMPORARY))
    address = stored.args[1]
    body = replaced_body(
        [joint.reduce if each is first else each for each in kernel.body], joint.memo
    )
    last = Store(number, address, joint.result, each_row=True)
    memo = {_name_of(second): load(number, address, stored.dtype)}
    rest = replaced_body([each for each in other.body if each is not second], memo)
    return attrs.evolve(kernel, body=(*body, last)), attrs.evolve(other, body=rest)
