"""Canonical axes: as few as the addresses allow, in the order of memory.

Drops axes of one point and branches that no point takes; orders the independent axes by the strides
of the stores, largest outermost; and merges neighboring axes that are one run of memory in all
addresses, so that more kernels have the same axes and printers see long loops:

    [i0<16, i1<4, i2<8]  b1[32*i0 + 8*i1 + i2] = b0[32*i0 + 8*i1 + i2]
    [i0<512]             b1[i0] = b0[i0]

Inner axes keep their order, which is that of reductions. Spec: `specs/fusion.md`.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from aotlite.backends.loops.analysis.affine import fixed, unit
from aotlite.backends.loops.analysis.conditions import decided
from aotlite.backends.loops.analysis.expression_facts import facts
from aotlite.backends.loops.passes.one_hot_sums import with_selected
from aotlite.backends.loops.program import Kernel, LoopProgram, loads_of, stores_of, values_of
from aotlite.backends.loops.rewrite import moved_body, without_unit_axes
from aotlite.backends.loops.templates.shared_templates import changed
from aotlite.ir.geometry.sizes import hint_of
from aotlite.ir.scalar.expression import Affine


def canonical(program: LoopProgram) -> LoopProgram:
    """Returns the program with canonical kernels."""
    steps = [
        changed(canonical_kernel, step) if type(step) is Kernel and 0 not in step.extents else step
        for step in program.steps
    ]
    return attrs.evolve(program, steps=tuple(steps))


def canonical_kernel(kernel: Kernel) -> Kernel:
    """Returns the kernel over canonical axes."""
    kernel = without_unit_axes(kernel)
    body = decided(kernel.body, kernel.extents)
    if body != kernel.body:
        kernel = Kernel(kernel.name, kernel.extents, kernel.space, body)
    kernel = with_selected(kernel)
    if len(kernel.extents) < 2:
        return kernel
    addresses = _addresses(kernel)
    order = _order(kernel, addresses)
    groups = _groups(kernel, order, addresses)
    if len(groups) == len(order) and order == sorted(order):
        return kernel
    return _regrouped(kernel, groups)


def _addresses(kernel: Kernel) -> list[Affine]:
    """Returns the addresses of stores, those of most axes first, then the addresses of loads."""
    stores = sorted(
        [store.address for store in stores_of(kernel)],
        key=lambda address: -len([c for c in address.coefficients if c]),
    )
    return [*stores, *[value.args[1] for value in loads_of(kernel)]]


def _order(kernel: Kernel, addresses: Sequence[Affine]) -> list[int]:
    """Returns the order of axes: independent ones by descending strides, then the inner ones."""

    def strides(k: int) -> list[int]:
        return [-abs(hint_of(address.coefficients[k])) for address in addresses]

    space = sorted(range(kernel.space), key=strides)
    return [*space, *range(kernel.space, len(kernel.extents))]


def _groups(kernel: Kernel, order: list[int], addresses: Sequence[Affine]) -> list[list[int]]:
    """Returns the axes in order, grouped: a group is one run of memory in all addresses."""
    named = {k for s in kernel.body for value in values_of(s) for k in facts(value).axes}
    groups = [[order[0]]]
    for k in order[1:]:
        last, extent = groups[-1][-1], kernel.extents[k]
        is_one = (
            (last < kernel.space) is (k < kernel.space)
            and last not in named
            and k not in named
            and all(a.coefficients[last] == a.coefficients[k] * extent for a in addresses)
        )
        if is_one:
            groups[-1].append(k)
        else:
            groups.append([k])
    return groups


def _regrouped(kernel: Kernel, groups: list[list[int]]) -> Kernel:
    """Returns the kernel with one axis for each group.

    The merged axis has the coefficients of the innermost one, of which the others' are multiples.
    So the innermost runs over all points, and the others become the constant 0.
    """
    count = len(groups)
    forms: list[Affine] = [fixed(0, count)] * len(kernel.extents)
    extents = [1] * count
    for place, group in enumerate(groups):
        forms[group[-1]] = unit(place, count)
        for k in group:
            extents[place] *= kernel.extents[k]
    body = moved_body(kernel.body, tuple(forms), count)
    space = sum([group[0] < kernel.space for group in groups])
    return Kernel(kernel.name, tuple(extents), space, body)
