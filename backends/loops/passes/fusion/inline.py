"""Inlining: the expression of a pointwise kernel replaces the loads of its result.

    k0: b1[i0] = exp(b0[i0])
    k1: b2[i0] = b1[i0] + 1.0    ->    k1: b2[i0] = exp(b0[i0]) + 1.0

It happens if computing the value in each reader costs less than storing and loading it. The store
in k0 stays, and `dead_code` removes it when nothing loads it. Spec: `specs/fusion.md`.
"""

from __future__ import annotations

from collections import defaultdict

import attrs

from aotlite.backends.loops.analysis.affine import (
    Bounds,
    Forms,
    Split,
    identity,
    is_injective,
    solve,
    whole,
)
from aotlite.backends.loops.analysis.conditions import executed
from aotlite.backends.loops.analysis.cost import (
    FLOP,
    LONG_ROW,
    MOST_BUFFERS,
    MOST_OPERATIONS,
    bytes_of,
    operations,
    points,
)
from aotlite.backends.loops.analysis.expression_facts import facts
from aotlite.backends.loops.analysis.size_proofs import exact_quotient
from aotlite.backends.loops.passes.axis_order import ordered_kernel
from aotlite.backends.loops.passes.vectorization import across, lies_across, vector_axis
from aotlite.backends.loops.program import (
    BufferKind,
    Kernel,
    LoopProgram,
    Step,
    Store,
    loaded,
    loads_of,
    named_by,
    reads,
    stored,
    stores_of,
    values_of,
    writes,
)
from aotlite.backends.loops.rewrite import (
    moved,
    replaced_body,
    split_axis,
    without_lets,
    without_unit_axes,
)
from aotlite.backends.loops.templates.shared_templates import about, changed, made, pattern
from aotlite.ir.geometry.overlap import has_internal_overlap
from aotlite.ir.scalar.expression import Affine, Scalar, const, walk, with_operands


@attrs.frozen(eq=False)
class StoredValue:
    """The value that a pointwise kernel stores in a buffer, and its cost."""

    kernel: Kernel
    index: int
    """The store of the kernel: its statements are stores alone."""
    buffer: int
    place: int
    """The index of the storing step in the program."""
    operations: float
    loads: dict[int, int]
    """The bytes that it loads of each buffer, each element counted once."""
    moved: dict[tuple[Forms, int], Scalar] = attrs.field(factory=dict)

    @property
    def store(self) -> Store:
        """The store of the value."""
        store = self.kernel.body[self.index]
        assert type(store) is Store
        return store

    def at(self, forms: Forms, count: int) -> Scalar:
        """Returns the value with axis k replaced by `forms[k]`, a form of `count` axes."""
        if forms == identity(count) and len(self.kernel.extents) == count:
            return self.store.value
        found = self.moved.get((forms, count))
        if found is None:
            found = self.moved[forms, count] = moved(self.store.value, forms, count, {})
        return found


def prepared(step: Step) -> Step:
    """Returns the step without lets and axes of one point, as the passes of fusion expect it."""
    if type(step) is Kernel and 0 not in step.extents:
        return changed(_prepared, step)
    return step


def _prepared(kernel: Kernel) -> Kernel:
    return without_unit_axes(without_lets(kernel))


def inlined(program: LoopProgram) -> LoopProgram:
    """Returns the program with pointwise values inlined where that is cheaper."""
    return _Inliner(program).run()


@attrs.define(eq=False)
class _Pull:
    """The state of inlining into one kernel: what keeps it within the cost model's limits."""

    place: int
    """The index of the kernel in the program."""
    streams: set[int]
    """The buffers that it loads by now."""
    own: float
    """The operations of the kernel itself."""
    operations: dict[int, float] = attrs.field(factory=dict)
    """The operations of inlined values, by the buffer whose load each one replaces."""


class _Inliner:
    def __init__(self, program: LoopProgram) -> None:
        self.program = program
        self.steps: list[Step] = list(map(prepared, program.steps))
        self.kinds = {buffer.number: buffer.kind for buffer in program.buffers}
        self.readers: dict[int, list[int]] = defaultdict(list)
        self.writers: dict[int, list[int]] = defaultdict(list)
        for place, step in enumerate(self.steps):
            for number in reads(step):
                self.readers[number].append(place)
            for number in writes(step):
                self.writers[number].append(place)
        self.chosen: dict[int, StoredValue] = {}

    def run(self) -> LoopProgram:
        """Returns the program with the chosen values inlined."""
        for place, step in enumerate(self.steps):
            if type(step) is Kernel and 0 not in step.extents:
                kernel, found = self._pulled(step, place)
                self.steps[place] = kernel
                if about(kernel, is_pointwise):
                    self._define(kernel, place, sum(found.values()) + about(step, operations))
        return attrs.evolve(self.program, steps=tuple(self.steps))

    # --- producers
    def _define(self, kernel: Kernel, place: int, cost: float) -> None:
        for index, number in enumerate(stored(kernel)):
            if self.writers[number] == [place] and self.readers[number]:
                read, nbytes = named_by(kernel, _read_for, index), about(kernel, _bytes_for, index)
                loads = dict(zip(read, nbytes, strict=True))
                found = StoredValue(kernel, index, number, place, cost, loads)
                if self._is_worth_it(found):
                    self.chosen[number] = found

    def _is_worth_it(self, found: StoredValue) -> bool:
        """Whether computing the value in each reader costs less than storing and loading it."""
        size, count = about(found.kernel, _itemsize, found.index), max(points(found.kernel), 1)
        stays = self.kinds[found.buffer] is not BufferKind.TEMPORARY
        again = read = 0.0
        for place in self.readers[found.buffer]:
            step = self.steps[place]
            if type(step) is not Kernel:
                stays = True
                continue
            buffers = loaded(step)
            own, sites = set(buffers), buffers.count(found.buffer)
            evaluations = sites * points(step)
            part = min(evaluations / max(count, 1), 1.0)
            read += part * count * size
            again += FLOP * found.operations * evaluations
            again += part * sum([n for number, n in found.loads.items() if number not in own])
        once = (FLOP * found.operations + size) * count + sum(found.loads.values())
        return again <= (read if stays else once + read)

    # --- consumers
    def _pulled(self, kernel: Kernel, place: int) -> tuple[Kernel, dict[int, float]]:
        """Returns the kernel with chosen values inlined, and their operations by buffer. It is made
        once for each template with values of the same templates (REG-8)."""
        values = [self.chosen[n] for n in dict.fromkeys(loaded(kernel)) if n in self.chosen]
        if not values:
            return kernel, {}
        if kernel.shared is None or None in [each.kernel.shared for each in values]:
            return self._pulled_anew(kernel, place)
        buffers, of_values = kernel.shared[1], list[object]()
        for each in values:
            template, own = each.kernel.shared
            buffers += own
            of_values += template, each.index, each.operations, self._overwritten(each, place)
        key = StoredValue, pattern(buffers), *of_values
        known = kernel.shared[0].known
        if key not in known:
            result, counts = self._pulled_anew(kernel, place)
            kept = [(buffers.index(number), count) for number, count in counts.items()]
            known[key] = made(result, buffers), kept
            return result, counts
        found, kept = known[key]
        return found.on(buffers, kernel.name), {buffers[k]: count for k, count in kept}

    def _pulled_anew(self, kernel: Kernel, place: int) -> tuple[Kernel, dict[int, float]]:
        while True:
            streams = {value.args[0] for value in loads_of(kernel)}
            pull = _Pull(place, streams, operations(kernel))
            result = self._once(kernel, pull)
            if not isinstance(result, Split):
                return result, pull.operations
            kernel = split_axis(kernel, result.axis, result.inner)

    def _once(self, kernel: Kernel, pull: _Pull) -> Kernel | Split:
        if pull.streams.isdisjoint(self.chosen):
            return kernel
        roots = [value for statement in kernel.body for value in values_of(statement)]
        everywhere = whole(kernel.extents)
        branches = any(facts(root).branches for root in roots)
        bounds = executed(roots, everywhere) if branches else {}
        memo: dict[Scalar, Scalar] = {}
        for value in walk(roots):
            operands = value.operands
            same = (
                with_operands(value, tuple([memo[each] for each in operands]))
                if operands
                else value
            )
            memo[value] = same
            if value.op == "load" and value.args[0] in self.chosen:
                new = self._instead(same, bounds.get(value, everywhere), kernel, pull)
                if isinstance(new, Split):
                    return new
                memo[value] = new
        body = replaced_body(kernel.body, memo)
        return Kernel(kernel.name, kernel.extents, kernel.space, body)

    def _instead(
        self,
        value: Scalar,
        inside: Bounds | None,
        kernel: Kernel,
        pull: _Pull,
    ) -> Scalar | Split:
        """Returns the replacement of a load: the inlined value, or the load itself; a Split of the
        kernel's axes that must be made before."""
        if inside is None:
            return const(0, value.dtype)
        found = self.chosen[value.args[0]]
        if len(pull.streams | found.loads.keys()) > MOST_BUFFERS:
            return value
        if pull.own + sum(pull.operations.values()) + found.operations > MOST_OPERATIONS:
            return value
        forms = _forms(value.args[1], inside, found, kernel.extents)
        if forms is None or isinstance(forms, Split):
            return forms or value
        new = found.at(forms, len(kernel.extents))
        if _jumps(value, new, kernel) or not self._is_unchanged(found, new, kernel, pull.place):
            return value
        pull.streams |= found.loads.keys()
        pull.operations[found.buffer] = found.operations
        return new

    def _is_unchanged(self, found: StoredValue, new: Scalar, kernel: Kernel, place: int) -> bool:
        """Whether no step overwrites the buffers that the value loads before the kernel runs."""
        by = zip(found.loads, self._overwritten(found, place), strict=True)
        return all(
            is_itself is None or (is_itself and _in_place(number, new, kernel))
            for number, is_itself in by
        )

    def _overwritten(self, found: StoredValue, place: int) -> tuple[bool | None, ...]:
        """Returns, for each buffer that the value loads, whether the kernel at this place is the
        only step that overwrites it between the value's kernel and itself; None if no step does."""
        return tuple([self._between(number, found.place, place) for number in found.loads])

    def _between(self, number: int, first: int, last: int) -> bool | None:
        writers = self.writers[number]
        if not writers or writers[-1] <= first:
            return None
        between = [place for place in writers if first < place <= last]
        return between == [last] if between else None


def _in_place(number: int, value: Scalar, kernel: Kernel) -> bool:
    """Whether the value loads a buffer that the kernel overwrites at the store's own address only
    (K-6)."""
    addresses = {store.address for store in stores_of(kernel) if store.buffer == number}
    loads = [each for each in facts(value).loads if each.args[0] == number]
    if any(_meets_itself(each, kernel.extents) for each in addresses):
        return False  # a later point would load the value that an earlier one has stored
    return all({each.args[1]} == addresses for each in loads)


def _meets_itself(address: Affine, extents: tuple[int, ...]) -> bool:
    """Whether two points have one address, as in a tensor that overlaps itself."""
    if any(type(each) is not int for each in (*address.coefficients, *extents)):
        return not is_injective(address.coefficients, extents[: len(address.coefficients)])
    steps = tuple([abs(step) for step in address.coefficients])
    return has_internal_overlap(extents[: len(steps)], steps)


def _jumps(value: Scalar, new: Scalar, kernel: Kernel) -> bool:
    """Whether inlining makes a reduction load with a large stride along its vector axis, which a
    pointwise kernel avoids by transposing in tiles. Other orders of inner axes are tried."""
    if kernel.space == len(kernel.extents) or points(kernel) <= LONG_ROW:
        return False
    vector = vector_axis(kernel)
    loads = facts(new).loads
    if not any(lies_across(load.args[1], vector, kernel.extents) for load in loads):
        return False
    body = replaced_body(kernel.body, {value: new})
    changed = ordered_kernel(Kernel(kernel.name, kernel.extents, kernel.space, body))
    return across(changed) > across(kernel)


def _forms(
    address: Affine, bounds: Bounds, found: StoredValue, extents: tuple[int, ...]
) -> Forms | Split | None:
    target, own = found.store.address, found.kernel.extents
    if address == target and extents == own:
        return identity(len(extents))
    forms = solve(address, bounds, target, own)
    if isinstance(forms, Split) and exact_quotient(extents[forms.axis], forms.inner) is None:
        return None  # the branch's part of the axis could be split, but not the whole axis
    return forms


def is_pointwise(kernel: Kernel) -> bool:
    """Whether a kernel stores pointwise values alone, and loads none of the buffers it stores."""
    if kernel.space != len(kernel.extents) or 0 in kernel.extents:
        return False
    stores = [s for s in kernel.body if type(s) is Store and is_plain(s)]
    if len(stores) != len(kernel.body):
        return False
    return not {s.buffer for s in stores} & {value.args[0] for value in loads_of(kernel)}


def is_plain(store: Store) -> bool:
    """Whether a store replaces, at an affine address."""
    return store.combine is None and not store.address.dynamic


def _read_for(kernel: Kernel, index: int) -> list[int]:
    """Returns the buffers that the value of a store loads."""
    return list(_bytes_read(kernel, index))


def _bytes_for(kernel: Kernel, index: int) -> tuple[int, ...]:
    """Returns the bytes that the value of a store loads of each of these buffers."""
    return tuple(_bytes_read(kernel, index).values())


def _bytes_read(kernel: Kernel, index: int) -> dict[int, int]:
    return bytes_of(facts(stores_of(kernel)[index].value).loads, kernel.extents)


def _itemsize(kernel: Kernel, index: int) -> int:
    return stores_of(kernel)[index].value.dtype.itemsize
