"""Writes the backward of a compiled call as straight-line Python.

Used by `variants.py`; `double_backward.py` uses parts. Rules: TAN-3, TAN-4, TAN-8, SAV-2, SUB-4,
SUB-11. Spec: `specs/s10_runtime.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import attrs

from aotlite.backends.calling_convention import travels_as_array
from aotlite.backends.python_source import listed
from aotlite.eager.base.new_tensors import tensor_over, tensors_over
from aotlite.eager.base.tensor import Tensor
from aotlite.eager.dispatch import dispatch
from aotlite.ir.graph import Graph
from aotlite.ir.graph.role import (
    Gradient,
    NextBackwardOffset,
    NextBackwardSeed,
    Role,
    Tangent,
    part_suffix,
)
from aotlite.ir.meta import TensorMeta
from aotlite.ir.ops.creation.factories import FULL
from aotlite.ir.ops.shape.copies import RESTRIDE
from aotlite.stages.records.metadata.subclass_meta import SubclassMeta
from aotlite.stages.s10_runtime.backward.memory.mutations import BackwardMemoryWriter
from aotlite.stages.s10_runtime.backward.plan import Absent, BackwardPlan
from aotlite.stages.s10_runtime.checkpoint_check import refuse_regions
from aotlite.stages.s10_runtime.effect_isolation import run_call
from aotlite.stages.s10_runtime.rng import RngWriter
from aotlite.stages.s10_runtime.source import MANY, ORDER, FunctionSource
from aotlite.stages.s10_runtime.subclass_code import (
    SubclassWriter,
    dense_part,
    is_like,
    write_tangent,
)

Step = Callable[[Any, list[Any]], list[Any]]
"""The backward of a node: from the gradients of its results to those of its inputs."""
PARAMETERS = "node, grads"


def zeros(meta: TensorMeta) -> Tensor:
    """A tensor of zeros, for a part of a wrapper that no gradient reaches."""
    made: Tensor = dispatch(FULL, (meta.shape, 0, meta.dtype, meta.device))
    return made if made.meta is meta else dispatch(RESTRIDE, (made, meta.stride))


def share_memory(graph: Graph) -> bool:
    """Whether two gradients of a backward can lie in one buffer.

    Asked of each variant: the operand left of a sum may be the gradient of another input, too.
    """
    pairs = zip(graph.output_roles, graph.output_roots, strict=True)
    roots = [root for role, root in pairs if isinstance(role, Gradient) and root is not None]
    return len(set(roots)) != len(roots) or any(root < 0 for root in roots)


@attrs.define(eq=False, repr=False)
class BackwardWriter:
    """Writes the backward of a call as straight-line Python."""

    plan: BackwardPlan
    absent: Absent
    graph: Graph
    run: Any
    source: FunctionSource = attrs.field(factory=FunctionSource)
    metas: dict[Any, Any] = attrs.field(init=False)
    late: BackwardMemoryWriter = attrs.field(init=False)
    draws: RngWriter = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        source, facts, absent, graph = self.source, self.plan.facts, self.absent, self.graph
        source.scope[ORDER] = self.plan.derivatives.order
        if source.sizes is None:
            source.scope["run"] = self.run
        inputs = self.plan.variants.graph.placeholders  # type: ignore[union-attr]
        self.metas = {node.role: node.meta for node in inputs}
        self.late = BackwardMemoryWriter(facts.memory, absent, graph, source)
        self.draws = RngWriter.of_backward(source, graph, facts.final_rng_state, absent)

    def function(self) -> tuple[Step, str]:
        """The backward of a node, and its source."""
        self.write()
        return self.source.function(self.graph.name, self.number, PARAMETERS)

    @property
    def number(self) -> str:
        """What tells it apart from other backwards of the process (GEN-9)."""
        absent = "".join(f" without {role}" for role in sorted(map(str, self.absent)))
        return f"{self.plan.number} backward{absent}"

    def write(self) -> None:
        """Adds the lines."""
        refuse_regions(self.source, self.graph)
        self._check()
        self._call(self._values())
        self._gradients()

    def _check(self) -> None:
        """Adds the checks of saved versions (SAV-2)."""
        plan, source = self.plan, self.source
        absent = source.constant(self.absent, "A", "the results whose gradients are absent")
        if any(role not in self.absent for role in plan.facts.errors):
            source.add(f"node.check({absent})")
            return
        wanted = [i for i, is_read in enumerate(plan.read(self.absent)) if is_read]
        if len(wanted) > MANY:
            source.add("for s, n in node.saved_versions:", "    if s.version != n:")
            source.add(f"        node.check({absent})")
        elif wanted:
            names = [f"(s{i}, n{i})" for i in range(len(plan.saved_tensors))]
            source.add(f"{listed(names)} = node.saved_versions")
            tests = " or ".join([f"s{i}.version != n{i}" for i in wanted])
            source.add(f"if {tests}:", f"    node.check({absent})")

    def _values(self) -> str:
        """The list of saved values and tangents, in the layouts of the recorded backward."""
        plan, source = self.plan, self.source
        source.use(laid_out)
        names = [f"g{i}" for i in range(len(plan.tangents))]
        source.add(f"{listed(names)} = grads")
        values = []
        for name, (role, meta) in zip(names, plan.tangents, strict=True):
            if role not in self.absent:
                wrapping = plan.facts.subclass_metas.get(Tangent(role))
                if wrapping is None:
                    values.append(self._tangent(name, meta))
                else:
                    write_tangent(source, name, role, wrapping)
                    values += self._parts(name, role, "", wrapping)
        values += self.late.values()
        self.draws.begin()
        values += self.draws.inputs()
        return f"[{', '.join(['*node.saved', *values])}]"

    def _parts(self, name: str, result: Role, path: str, wrapping: SubclassMeta) -> list[str]:
        """The values of a wrapper's parts, depth first (SUB-4)."""
        source, values = self.source, []
        for attr, of, inner in wrapping.parts:
            part = f"{name}{part_suffix(attr)}"
            source.add(f"{part} = getattr({name}, {attr!r}, None)")
            if inner is None:
                meta = self.metas[Tangent(of)]
                self._check_part(part, f"{path}{attr}", result, wrapping.kind, meta)
                values.append(self._tangent(part, meta))
            else:
                write_tangent(source, part, of, inner)
                values += self._parts(part, result, f"{path}{attr}.", inner)
        return values

    def _check_part(
        self, name: str, path: str, result: Role, kind: type[object], meta: TensorMeta
    ) -> None:
        """Adds the check of a part's shape and dtype, before its layout is changed (TAN-4)."""
        source = self.source
        source.use(dense_part)
        known = [source.constant(each, letter) for each, letter in ((result, "R"), (kind, "T"))]
        expected = source.record(meta, "M", str(meta))
        source.use(is_like, Tensor)
        source.add(f"if type({name}) is not Tensor or {name}.meta is not {expected}:")
        source.add(f"    if not is_like({name}, {expected}):")
        how = f"{path!r}, {', '.join(known)}, {expected}"
        source.add(f"        {name} = dense_part({name}, {how})")

    def _tangent(self, name: str, meta: TensorMeta) -> str:
        """The value of a dense gradient in the layout of the recorded backward (TAN-3)."""
        source = self.source
        expected = source.record(meta, "M", str(meta))
        source.add(f"if {name}.meta is not {expected}:")
        source.add(f"    {name} = laid_out({name}, {expected})")
        if not travels_as_array(meta):
            return f"({name}.storage.buffer, {name}.offset)"
        source.add(f"x = {name}._array")
        source.add(f"x{name} = {name}._data if x is None else x")
        return f"x{name}"

    def _call(self, values: str) -> None:
        plan = self.plan
        given = values if all(self.run.reads) else f"run.read_among({values})"
        # Memory of saved tensors; with effects no value is copied on write (PART-37).
        storages = [f"node.saved_versions[{i}][0]" for i in range(len(plan.saved_tensors))]
        draws = self.draws.reads or self.draws.consumed != 0
        call = run_call(self.source, self.graph, self.run, given, storages, draws=draws)
        self.source.add_call(self.run, f"found = {call}", *self.draws.on_error())
        if self.draws.consumed is None:
            self.draws.end(self._found(NextBackwardSeed()), self._found(NextBackwardOffset()))

    def _found(self, role: Role) -> str:
        return f"found[{self.graph.output_roles.index(role)}]"

    def _gradients(self) -> None:
        """Adds the lines that make the gradients; None for sources without one (TAN-8)."""
        plan, source = self.plan, self.source
        # Where a gradient is absent, what is left of a sum may lie in another layout than the sum.
        metas: list[Any] = [meta for _, meta in self.graph.output_metas_with(Gradient)]
        if plan.facts.memory:
            self.late.put_back(len(metas))
        if len(self.graph.output_roles) > len(metas):
            source.add(f"found = found[:{len(metas)}]")
        if share_memory(self.graph) or len(metas) > MANY:
            source.use(tensors_over)
            made = f"tensors_over(found, {source.record(tuple(metas), 'V', 'metas')})"
            self._return(made, metas)
            return
        source.use(tensor_over)
        names = [f"w{i}" for i in range(len(metas))]
        source.add(f"{listed(names)} = found")
        tensors = [
            "None"
            if meta is None
            else f"tensor_over({name}[0], {source.record(meta, 'M', str(meta))}, {name}[1])"
            for name, meta in zip(names, metas, strict=True)
        ]
        self._return(f"[{', '.join(tensors)}]", metas)

    def _return(self, tensors: str, metas: Sequence[object]) -> None:
        """Adds the line that returns the gradients; wrappers are made from their parts."""
        if self.plan.facts.subclass_metas:
            names = [f"t{i}" for i in range(len(metas))]
            self.source.add(f"{listed(names)} = {tensors}")
            tensors = self._wrapped(names, metas)
        self.source.add(f"return {tensors}")

    def _wrapped(self, names: list[str], metas: Sequence[object]) -> str:
        """The gradients of the sources; wrappers are made from their parts' gradients (SUB-11)."""
        roles = [role.of for role, _ in self.graph.outputs_with(Gradient)]
        by_role = dict(zip(roles, zip(names, metas, strict=True), strict=True))
        writer = SubclassWriter(self.source)

        def dense_part_of(wrapping: SubclassMeta, of: Role) -> str:
            name, meta = by_role[of]
            return self._dense_part(name, meta, wrapping.layouts[of])

        found = []
        for source, _ in self.plan.gradients:
            wrapping = self.plan.facts.subclass_metas.get(Gradient(source))
            if wrapping is None:
                found.append(by_role[source][0])
            elif all(by_role[of][1] is None for _, of in wrapping.leaves()):
                found.append("None")
            else:
                found.append(writer.made_of(wrapping, dense_part_of))
        return f"[{', '.join(found)}]"

    def _dense_part(self, name: str, meta: TensorMeta | None, expected: TensorMeta) -> str:
        """The variable of a part's gradient; zeros if none reaches this part, but other ones."""
        if meta is not expected:
            layout = self.source.record(expected, "M", str(expected))
            self.source.use(zeros if meta is None else laid_out)
            made = f"zeros({layout})" if meta is None else f"laid_out({name}, {layout})"
            self.source.add(f"{name} = {made}")
        return name


def laid_out(grad: Tensor, meta: TensorMeta) -> Tensor:
    """The gradient in the layout of the recorded backward (TAN-3)."""
    out: Tensor = grad.detach().restride(meta.stride)
    return out
