"""`check_parts`, `check_orders`: compare the parts of records that anybody may have written.

Each graph is checked where it is read. Here its inputs are compared with the values that a call
passes for them, in their order, and its outputs with the parts that read them: so no kernel reads
or writes beyond its memory. Used for programs, bundles and the artifact cache.
Rule: REC-10. Spec: `specs/record_files.md`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from aotlite.eager.base.tensor import Tensor
from aotlite.ir.dtypes import bool_
from aotlite.ir.errors import AotliteError, FormatError
from aotlite.ir.graph import Graph
from aotlite.ir.graph.files.values import Said, Unread
from aotlite.ir.graph.role import (
    RNG_INPUTS,
    RNG_OUTPUTS,
    Arrived,
    BackwardOffset,
    BackwardSeed,
    Current,
    Gradient,
    Incoming,
    IntermediateBase,
    Kept,
    MutatedInput,
    Offset,
    Output,
    Part,
    Rewritten,
    Saved,
    Seed,
    Tangent,
)
from aotlite.ir.meta import TensorMeta, table_in, tensor_meta
from aotlite.ir.symbols.assumption import NO_VALUE, Assumption
from aotlite.pipeline.record_files.view_check import check_views
from aotlite.pipeline.size_regions.records import StageRecords
from aotlite.stages.records.backward.joint import Joint
from aotlite.stages.records.backward.partition import Partition
from aotlite.stages.records.metadata.function_facts import Alias, Plain
from aotlite.stages.shared.rng_inputs import STATE_META

Values = Mapping[str, int]
Metas = dict[Any, Any]
FLAG_META: Final = tensor_meta((), None, bool_)
"""The meta of `Arrived`."""


def check_parts(cut: StageRecords, values: Values) -> None:
    """Raises Unread unless the parts of the records fit together, where symbols have these values.

    The metas of arguments are those of `cut.meta.inputs`, with which a call is compared elsewhere.
    """
    if (cut.values, cut.kernels, cut.handed, cut.run) != (None, (None, None), None, None):
        raise Unread(Said("records with parts of one process"), "records at rest", ".records")
    check = _Check(values)
    with _known_symbols():
        inputs = check.inputs(cut)
        check.forward(cut, inputs)
        check_views(cut.meta, values)
        known = {**inputs, **check.results(cut)}
        check.backward(cut.joint, cut.partition, known)
        _check_owners(cut, known)


def check_bases(cut: StageRecords, tensors: Mapping[Any, object], values: Values) -> None:
    """Raises Unread unless each synthetic base lies in the memory that its members have in a call.
    How they lie in it is guarded."""
    given = {each.role: each for each in cut.meta.inputs}
    for base in cut.convention.bases:
        roles: list[Any] = [base.anchor, *[member.role for member in base.members]]
        facts, found = [given.get(role) for role in roles], [tensors.get(role) for role in roles]
        if not any(each and (each.writes_data or each.extent) for each in facts):
            raise _misfit(f"{base.role}", "a base of inputs that are not written", "one")
        ends, anchor = [], found[0]
        for each, tensor in zip(facts, found, strict=True):
            if not isinstance(tensor, Tensor) or not isinstance(anchor, Tensor):
                raise _misfit(f"{base.role}", "of no tensor", "the base of arguments")
            if tensor.storage.buffer is not anchor.storage.buffer:  # a hidden alias has a twin
                raise _misfit(f"{base.role}", "a base of two memories", "of arguments in one")
            extent = None if each is None else each.extent
            least, end = extent or (0, tensor.meta.span)
            size = tensor.dtype.itemsize
            ends.append(((tensor.offset + least) * size, (tensor.offset + end) * size, size))
        assert isinstance(anchor, Tensor)
        meta = base.meta.concrete(values)
        first = anchor.offset * anchor.dtype.itemsize + base.start
        end = first + meta.span * meta.dtype.itemsize
        least = min(start for start, _, _ in ends)
        least -= least % max(size for _, _, size in ends)
        if not 0 <= least <= first <= end <= max(end for _, end, _ in ends):
            raise _misfit(f"{base.role}", f"in bytes {first} to {end}", "in those of its members")
        if end > anchor.storage.nbytes():
            raise _misfit(f"{base.role}", f"in bytes {first} to {end}", "in those of its memory")


def check_orders(cut: StageRecords, orders: Any, values: Values) -> None:
    """Raises Unread unless each order of derivatives takes what the order before it saves."""
    check = _Check(values)
    backward = cut.partition.backward
    if backward is None and orders:
        raise Unread(Said("orders of derivatives"), "none without a backward", ".orders")
    if backward is not None:
        with _known_symbols():
            known = {**check.inputs(cut), **check.results(cut)}
            splits = cut.derivable.is_linear
            check.orders(backward, known, orders, 1, splits=splits)


def check_guards(graphs: Sequence[Graph | None], guards: Sequence[Assumption]) -> None:
    """Raises Unread if a graph assumes of its symbols what no guard of the records says."""
    known = {each.text for each in guards}
    for graph in graphs:
        table = None if graph is None else table_in([(x.meta, *x.args) for x in graph.nodes])
        for each in () if table is None else table.log:
            if each.text not in known:
                raise Unread(
                    Said(f"assumed {each.text}"[:100]), "a guard of the records", ".graphs"
                )


def hints_of(values: Sequence[object]) -> Values:
    """The numbers of the symbols of these metas and sizes in the call that was captured."""
    table = table_in(values)
    return {} if table is None else dict(table.hints)


@contextmanager
def _known_symbols() -> Iterator[None]:
    """Raises Unread for a size with a symbol that the call does not have, or without a value."""
    try:
        yield
    except (AotliteError, KeyError, *NO_VALUE) as error:
        words = f"a size without a value ({error})"[:160]
        raise Unread(Said(words), "sizes of the call", ".graphs") from None


def as_error(error: Unread, of: str) -> FormatError:
    """The error for a file of programs or of kept entries."""
    return FormatError(f"{error.error()}".replace("serialize:", f"{of}:", 1))


class _Check:
    """Compares metas at these values of their symbols."""

    def __init__(self, values: Values) -> None:
        self.values = values

    def at(self, meta: Any) -> Any:
        return meta.concrete(self.values) if isinstance(meta, TensorMeta) else None

    # --- forward
    def inputs(self, cut: StageRecords) -> Metas:
        """The metas of the values that a call passes, by role."""
        found: Metas = {each.role: self.at(each.meta) for each in cut.meta.inputs}
        for base in cut.convention.bases:
            anchor, meta = found.get(base.anchor), self.at(base.meta)
            if anchor is None or (base.whole and (meta is not anchor or base.start)):
                raise _misfit(f"{base.role}", meta, anchor)
            found[base.role] = meta
        found.update({kind(): STATE_META for kind in RNG_INPUTS})
        return found

    def results(self, cut: StageRecords) -> Metas:
        """The metas of results, bases and families, by role."""
        meta, found = cut.meta, Metas()
        for index, output in enumerate(meta.outputs):
            if isinstance(output, Plain):
                found[meta.role_of(index)] = self.at(output.meta)
            elif isinstance(output, Alias) and output.view.chain:
                found[meta.role_of(index)] = self.at(output.view.chain[-1].result)
        found.update({IntermediateBase(k): self.at(x.meta) for k, x in enumerate(meta.bases)})
        found.update({each.role: self.at(each.meta) for each in meta.families})
        return found

    def forward(self, cut: StageRecords, inputs: Metas) -> None:
        graph, meta = cut.partition.forward, cut.meta
        roles = list(cut.convention.inputs)
        draws: list[Any] = [Seed(), Offset()] if {Seed(), Offset()} & {*roles} else []
        others = [role for role in roles if type(role) not in RNG_INPUTS]
        self._inputs_are(graph, [*others, *draws], inputs, "a forward")
        if roles != [*others, *draws]:
            raise Unread(Said("other inputs"), "seed and offset last", ".records.convention")
        given: Metas = {each.role: each for each in meta.inputs}
        outputs: Metas = dict(
            zip(graph.output_roles, map(self.at, graph.output_metas), strict=True)
        )
        results = self.results(cut)
        for role, found in outputs.items():
            if isinstance(role, MutatedInput):
                _like(found, _written(given.get(role.of), self), role)
            elif isinstance(role, (Output, Part, IntermediateBase)):
                expected = results.get(role)
                if expected is None or found is not expected:
                    raise _misfit(f"{role} of the forward", found, expected)
            elif isinstance(role, RNG_OUTPUTS):
                _like(found, STATE_META, role)
            elif not isinstance(role, Saved) or found is None:
                raise _misfit(f"{role} of the forward", found, "a result, or a saved value")
        needed: list[Any] = [
            MutatedInput(x.role) for x in meta.inputs if x.writes_data and not x.in_graph
        ]
        needed += [meta.role_of(k) for k, x in enumerate(meta.outputs) if isinstance(x, Plain)]
        needed += [IntermediateBase(k) for k in range(len(meta.bases))]
        for role in needed:
            of: Any = role.of if isinstance(role, MutatedInput) else role
            if role not in outputs and of not in meta.wrappers:
                raise _misfit(f"{role} of the forward", None, "a result")
        _check_saved_last(graph, cut.partition)

    def _inputs_are(self, graph: Graph, roles: Sequence[Any], metas: Metas, of: str) -> None:
        """Raises Unread unless the graph takes the values of these roles and metas, in order."""
        given = [node.role for node in graph.placeholders]
        given.sort(key=lambda role: isinstance(role, Arrived))
        if given != list(roles):
            got, expected = (", ".join(map(str, each))[:80] for each in (given, roles))
            raise Unread(Said(f"{of} of {got}"), f"one of {expected}", ".graphs")
        for node in graph.placeholders:
            meta, found = metas.get(node.role), self.at(node.meta)
            if isinstance(node.role, Tangent):  # it is brought into the layout of the graph
                _like(found, meta, f"{node.role} of {of}")
            elif meta is None or found is not meta:
                raise _misfit(f"{node.role} of {of}", node.meta, meta)

    # --- backward
    def backward(self, both: Joint, partition: Partition, known: Metas) -> None:
        """Compares a backward with the saved values, the results and the memory that it takes."""
        forward, backward = partition.forward, partition.backward
        outputs = dict(zip(forward.output_roles, map(self.at, forward.output_metas), strict=True))
        layouts = {role: self.at(meta) for role, meta in both.layouts.items()}
        for role, meta in layouts.items():
            of: Any = role.of if isinstance(role, MutatedInput) else role
            result = outputs.get(role) or known.get(of)
            if role not in both.backward.subclass_metas:
                _like(meta, result, Tangent(role))
        if backward is None:
            if partition.saved:
                raise Unread(Said("saved values"), "a backward that takes them", ".records")
            return
        count = len(both.backward.arrivals)
        placeholders: list[Any] = [node.role for node in backward.placeholders]
        arrived = [role for role in placeholders if isinstance(role, Arrived)]
        if any(role.index >= count for role in arrived):
            raise Unread(Said("more sets of results"), f"{count}", ".records.joint")
        tangents = [role for role in placeholders if type(role) is Tangent]
        memory = [each for each in both.backward.memory if not each.is_counted_alone]
        draws = [role for role in placeholders if type(role) in RNG_INPUTS]
        late: list[Any] = [BackwardSeed(), BackwardOffset()] if draws else []
        saved = [role for role in outputs if isinstance(role, Saved)]
        metas: Metas = {role: outputs[role] for role in saved}
        metas.update({Tangent(role): meta for role, meta in layouts.items()})
        metas.update({Current(each.owner): self.at(each.meta) for each in memory})
        metas.update(dict.fromkeys(late, STATE_META))
        metas.update(dict.fromkeys(arrived, FLAG_META))  # constants take their places
        roles = [*saved, *tangents, *[Current(each.owner) for each in memory], *late, *arrived]
        self._inputs_are(backward, roles, metas, "a backward")
        facts = both.backward
        for tangent in tangents:
            of = tangent.of
            if of not in facts.reachable_inputs or of not in facts.receiving_inputs:
                raise Unread(Said(f"without the inputs of {of}"), "them", ".records.joint")
        self._gradients(both, backward, known)

    def _gradients(self, both: Joint, backward: Graph, known: Metas) -> None:
        memory = {each.owner: self.at(each.meta) for each in both.backward.memory}
        for role, meta in zip(backward.output_roles, backward.output_metas, strict=True):
            found = self.at(meta)
            if isinstance(role, Rewritten):
                _like(found, memory.get(role.of), role)
            elif isinstance(role, RNG_OUTPUTS):
                _like(found, STATE_META, role)
            elif not isinstance(role, Gradient):
                raise _misfit(f"{role} of the backward", meta, "a gradient")
            elif found is not None and role.of in known:
                _like(found, known[role.of], role)

    # --- orders
    def orders(
        self, backward: Graph, known: Metas, orders: Any, number: int, *, splits: bool
    ) -> None:
        """Compares the orders that differentiate this backward with it, and those behind them.
        `splits`: it is linear in its gradients."""
        saved = [self.at(n.meta) for n in backward.placeholders if isinstance(n.role, Saved)]
        metas: Metas = {Kept(k): meta for k, meta in enumerate(saved)}
        tangents: Metas = {}
        for node in backward.placeholders:
            if isinstance(node.role, Tangent):
                of: Any = node.role.of
                for _ in range(number):
                    of = Incoming(of)
                tangents[node.role.of] = of
                metas[of] = self.at(node.meta)
        for arriving, records, behind in orders:
            given = [role for role, _ in arriving]
            if given != [role for role in tangents if role in given]:
                raise Unread(Said("other gradients"), "those of the backward", ".orders")
            if records.splits > splits or (not records.splits and not records.is_single_visit):
                raise Unread(Said("gradients in parts"), "gradients as a whole", ".orders")
            graph = records.partition.forward
            roles = [*[Kept(k) for k in range(len(saved))], *[tangents[role] for role in given]]
            self._inputs_are(graph, roles, metas, "an order")
            _check_saved_last(graph, records.partition)
            now = {**known, **metas}
            outputs = dict(zip(graph.output_roles, map(self.at, graph.output_metas), strict=True))
            self._order_results(records, outputs, now)
            now.update({role: x for role, x in outputs.items() if isinstance(role, Output)})
            self.backward(records.joint, records.partition, now)
            inner = records.partition.backward
            if inner is None and behind:
                raise Unread(Said("orders of derivatives"), "none without a backward", ".orders")
            if inner is not None:
                self.orders(inner, now, behind, number + 1, splits=records.splits)

    def _order_results(self, records: Any, outputs: Metas, known: Metas) -> None:
        count = sum(isinstance(role, Output) for role in outputs)
        indices = [index for _, index in records.results if index is not None]
        if not records.subclass_metas and indices != list(range(count)):
            raise Unread(Said("other results"), "one for each gradient", ".orders")
        for role, index in records.results:
            if index is not None and role in known and not records.subclass_metas:
                _like(outputs.get(Output(index)), known[role], Gradient(role))


def _check_owners(cut: StageRecords, known: Metas) -> None:
    """Raises Unread for memory of what is no input, no result and no base."""
    both = cut.joint.backward
    owners: list[Any] = [each.owner for each in both.reads.saved_tensors]
    owners += [each.owner for each in both.memory]
    owners += [each.owner for each in cut.partition.saved if each.owner is not None]
    for owner in owners:
        if (owner.of if isinstance(owner, MutatedInput) else owner) not in known:
            raise _misfit("a saved tensor", f"on {owner}", "an input or a result")


def _written(given: Any, check: _Check) -> Any:
    """The meta of the bytes of an input that a call writes: of all that the function sees."""
    if given is None or given.extent is None:
        return None if given is None else check.at(given.meta)
    least, end = given.extent
    return check.at(given.meta.as_contiguous((end - least,)))


def _check_saved_last(graph: Graph, partition: Partition) -> None:
    """Raises Unread unless the last outputs are the saved values, in their order."""
    count = len(partition.saved)
    roles = list(graph.output_roles)
    numbers = [role.index if isinstance(role, Saved) else None for role in roles]
    first = len(roles) - count
    if first < 0 or numbers != [None] * first + list(range(count)):
        raise Unread(Said("saved values in another place"), f"{count} behind all", ".graphs")


def _like(found: Any, expected: Any, role: object) -> None:
    """Raises Unread unless two metas have one shape, dtype and device."""
    if found is None or expected is None or found.device is not expected.device:
        raise _misfit(f"{role}", found, expected)
    if found.shape != expected.shape or found.dtype is not expected.dtype:
        raise _misfit(f"{role}", found, expected)


def _misfit(what: str, got: Any, expected: Any) -> Unread:
    return Unread(Said(f"{got}"[:100]), f"{expected}"[:100], f".{what}")
