"""Kernel templates: a kernel with its buffers numbered in the order of appearance, and no name.

    kernel relu_7[i0<64]:  b19[i0] = max(b12[i0], 0.0)     template [i0<64]: b1[i0] = max(b0[i0], 0)
    kernel relu_31[i0<64]: b45[i0] = max(b40[i0], 0.0)     buffers (12, 19) and (40, 45)

Two kernels of one template compute the same on other buffers. Spec: `specs/equal_regions.md`,
REG-1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs

from aotlite.backends.loops.analysis.expression_facts import facts
from aotlite.backends.loops.program import Kernel, Statement, Store, values_of
from aotlite.backends.loops.rewrite import on_statement
from aotlite.ir.scalar.expression import Affine, Scalar, load, unknown, with_operands


@attrs.frozen
class KernelInstance:
    """A kernel as a template and the buffers that stand for its numbers."""

    template: Kernel
    """The kernel without a name, with its buffers numbered from 0 on."""
    buffers: tuple[int, ...]
    """The kernel's buffer of each number of the template."""


def instance_of(kernel: Kernel) -> KernelInstance:
    """Returns the template of a kernel, and its buffers."""
    buffers = buffers_of(kernel)
    numbers = {buffer: k for k, buffer in enumerate(buffers)}
    return KernelInstance(attrs.evolve(renamed(kernel, numbers), name=""), buffers)


def buffers_of(kernel: Kernel) -> tuple[int, ...]:
    """Returns each buffer of a kernel once, in order of appearance: loads before the store that
    they are for."""
    found: dict[int, None] = {}
    for statement in kernel.body:
        for value in values_of(statement):
            for each in facts(value).loads:
                found[each.args[0]] = None
        if type(statement) is Store:
            found[statement.buffer] = None
    return tuple(found)


def renamed(kernel: Kernel, numbers: Mapping[int, int]) -> Kernel:
    """Returns the kernel on other buffers. `numbers` gives different buffers different numbers."""
    if all(old == new for old, new in numbers.items()):
        return kernel
    body = renamed_body(kernel.body, numbers)
    return Kernel(kernel.name, kernel.extents, kernel.space, body, vector=kernel.vector)


def renamed_body(body: Sequence[Statement], numbers: Mapping[int, int]) -> tuple[Statement, ...]:
    """Returns the statements on other buffers, different ones for different ones."""
    memo: dict[Scalar, Scalar] = {}
    if len(body) == 1 and type(body[0]) is Store and not body[0].address.dynamic:
        store = body[0]
        for value in unknown(store.value, memo):
            memo[value] = _renamed(value, numbers, memo)
        return (_stored(store, numbers[store.buffer], store.address, memo[store.value]),)

    def scalar(root: Scalar) -> Scalar:
        for value in unknown(root, memo):
            memo[value] = _renamed(value, numbers, memo)
        return memo[root]

    def same(address: Affine) -> Affine:
        return address

    found = [on_statement(each, scalar, same) for each in body]
    return tuple([_stored_in(each, numbers) if type(each) is Store else each for each in found])


def _renamed(value: Scalar, numbers: Mapping[int, int], memo: Mapping[Scalar, Scalar]) -> Scalar:
    if value.op != "load":
        return with_operands(value, tuple([memo[each] for each in value.operands]))
    buffer, address = value.args
    if address.dynamic:
        dynamic = tuple([(memo[each], step) for each, step in address.dynamic])
        address = Affine(address.coefficients, address.start, dynamic)
    return load(numbers[buffer], address, value.dtype)


def _stored_in(store: Store, numbers: Mapping[int, int]) -> Store:
    return _stored(store, numbers[store.buffer], store.address, store.value)


def _stored(store: Store, buffer: int, address: Affine, value: Scalar) -> Store:
    return Store(
        buffer,
        address,
        value,
        combine=store.combine,
        each_row=store.each_row,
        from_identity=store.from_identity,
        unordered=store.unordered,
    )
