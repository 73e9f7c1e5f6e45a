"""Two reductions of long rows, of which one needs the other's result, in one pass over memory.

Input: a program after fusion; output: one in which `max(x)` and `sum(exp(x - max(x)))` of the same
rows are one reduction `sum_exp`, and a mean and the sum of squares less it are `moments`, where
rows are too long to be kept: each row is read once less. Fusion should follow, since what is left
of the second kernel may be pointwise. This changes the order of sums, on purpose.
Spec: `specs/fusion.md`, FUS-23.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import attrs

from aotlite.backends.loops.analysis.cost import inner_points
from aotlite.backends.loops.expr import Affine, Scalar, const, load, name
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


@attrs.frozen
class _Joint:
    """One reduction for two: what becomes of the first's results, and the second's result."""

    reduce: Reduce
    memo: dict[Scalar, Scalar]
    result: Scalar


@attrs.frozen
class _Rule:
    """A pair of reductions: the first's kind, what the second needs of it, and both as one."""

    kind: str
    center: Callable[[Reduce, int], Scalar]
    """Of the first and the number of points: what the second one's points are less."""
    is_second: Callable[[Scalar, Scalar, Scalar], bool]
    """Whether a value that is added up is the second's, of x less the center."""
    joint: Callable[[Reduce, int, int], _Joint]
    """Of the first, a free name and the number of points."""


def _name_of(reduce: Reduce) -> Scalar:
    return name(reduce.names[0], reduce.values[0].dtype)


def _is_exponential(value: Scalar, x: Scalar, top: Scalar) -> bool:
    is_exp = value.op in ("exp", "exp_nonpositive") and value.args[0].op == "sub"
    return is_exp and value.args[0].args == (x, top)


def _with_exponentials(first: Reduce, free: int, points: int) -> _Joint:
    """The sum is nan where the maximum is not finite, as an exponential of nan is."""
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
    """The program with such reductions in one, of kernels whose rows are too long to be kept; of
    several kernels' rows, which are longer than what fusion takes together, whatever they are."""
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
    """The reductions of floats that may be a first one, and what a second one would need."""
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
    """The kernel with its own pairs of reductions joined."""
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
    """Moves a sum to the kernel that makes and stores what it needs, if its rows are the same."""
    one, two = steps[earlier], steps[place]
    if type(one) is not Kernel or type(two) is not Kernel:
        return
    if one.extents != two.extents or one.space != two.space or not one.space < len(one.extents):
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
    """Where a kernel stores a value of its rows, as loads."""
    return [
        load(each.buffer, each.address, center.dtype)
        for each in kernel.body
        if type(each) is Store and each.each_row and each.value is center and not each.combine
    ]


def _is_unchanged(steps: list[Step], x: Scalar, top: Scalar) -> bool:
    """Whether no step has overwritten what the first one has loaded and stored."""
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
    """The first kernel with both reductions, the second one with the sum loaded."""
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
