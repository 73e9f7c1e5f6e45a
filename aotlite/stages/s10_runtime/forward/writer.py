"""Writes the body of an entry, after its guards, in the order of RT-1.

Rules: RT-1..RT-10, TAN-1..TAN-9. Spec: `specs/s10_runtime.md`.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress
from typing import Any

import optree

from aotlite.backends.calling_convention import is_read, travels_as_array
from aotlite.backends.python_source import listed
from aotlite.eager.autograd.differentiable_views import accumulator, edge_of
from aotlite.eager.base.new_tensors import tensor_over
from aotlite.eager.tensor_facts import TensorFacts, facts_of
from aotlite.ir.graph.role import (
    RNG_OUTPUTS,
    Family,
    MutatedInput,
    NextOffset,
    NextSeed,
    Offset,
    Output,
    Role,
    Saved,
    Seed,
)
from aotlite.ir.meta import TensorMeta
from aotlite.stages.records.capture_inputs import InputRole
from aotlite.stages.records.metadata.function_facts import Alias, InputMeta, Plain
from aotlite.stages.records.synthetic_base import BaseInput
from aotlite.stages.s10_runtime.backward.memory.mutations import keep_forms, keep_memory
from aotlite.stages.s10_runtime.backward.memory.version_checks import (
    add_saved_versions,
    add_write_observers,
)
from aotlite.stages.s10_runtime.backward.node import CompiledBackward
from aotlite.stages.s10_runtime.backward.single_visit import SingleVisitBackward
from aotlite.stages.s10_runtime.checkpoint_check import refuse_regions
from aotlite.stages.s10_runtime.effect_isolation import run_call
from aotlite.stages.s10_runtime.forward.hooks import HookWriter
from aotlite.stages.s10_runtime.forward.inputs import InputTexts, copy_line
from aotlite.stages.s10_runtime.forward.metadata_updates import MetadataUpdateWriter
from aotlite.stages.s10_runtime.forward.results import ResultWriter
from aotlite.stages.s10_runtime.forward.variables import Variables
from aotlite.stages.s10_runtime.guards.guard_sources import name_of
from aotlite.stages.s10_runtime.plan import RuntimePlan
from aotlite.stages.s10_runtime.rng import RngWriter
from aotlite.stages.s10_runtime.source import MANY, FunctionSource
from aotlite.stages.s10_runtime.support import (
    arrays_of,
    change_geometry_of,
    read_only,
    take_history,
    write_seen,
    write_window,
)

_STARRED = 200
"""Python allows at most 255 variables before a starred one."""


# Note [order of an entry's side effects]
#     def f(x, w): v = x[1:]; y = x * w; x.add_(1); x.t_(); return v, y
# The edges of x and w are asked first: the write gives x another one. The tape node is made before
# the write, whose history it is. x is written before v is rebuilt, so that v has eager's version;
# v is rebuilt before `t_`: its view chain starts at the old geometry. Saved versions are noted
# after all writes, as the function's own writes are no error (SAV-2). Whatever can raise comes
# before the first write (RT-10), and so do the write observers of x's storage.
class EntryWriter:
    """Writes an entry's body after the guards. Note [order of an entry's side effects]."""

    def __init__(self, plan: RuntimePlan, source: FunctionSource) -> None:
        self.plan = plan
        self.meta = plan.meta
        self.source = source
        self.tensors = plan.guarded_values.tensors()
        self.written = [each for each in plan.meta.inputs if each.writes]
        self.variables = Variables([""] * len(plan.meta.outputs))
        calling = self.convention = plan.convention
        consumed = None if calling.sets_generator else calling.consumed
        self.draws = RngWriter(source, reads=Seed() in calling.inputs, consumed=consumed)
        self.leaders: dict[object, InputRole] = {
            family.role: family.through for family in plan.meta.families
        }
        self._metas = dict(zip(plan.forward.output_roles, plan.forward.output_metas, strict=True))
        storages = {role: tensor.storage for role, tensor in self.tensors.items()}
        self.changes = MetadataUpdateWriter(source, plan.meta, self.variables, storages)
        self.results = ResultWriter(plan, source, self.variables, self.changes)
        self.hooks = HookWriter(source, plan.meta.hooks, plan.guarded_values.hooks, self.variables)

    def write(self) -> None:
        self._check_writable()
        refuse_regions(self.source, self.plan.forward)
        edges = self._edges()
        hook_edges = self.hooks.edges()
        self._run()
        self._new_tensors()
        self._make_node(edges)
        self._write_inputs()
        self.changes.set_versions()
        self.results.write()
        self._observe_memory()
        self._geometries()
        if self.plan.backward is not None:
            keep_forms(
                self.source, self.plan.backward.facts.memory, self.variables.by_role(self.tensors)
            )
        for each in self.meta.grads:
            value = "None" if each.result is None else self.variables.results[each.result]
            self.source.add(f"{self.variables.lasting(each.role)}._grad = {value}")
        self.hooks.register(hook_edges)
        if self.meta.grad_mode_after is not None:
            self.source.add(f"STATE.grad_mode = {self.meta.grad_mode_after}")
        self.source.add(f"return {self._tree(self.plan.result_spec, iter(self.variables.results))}")

    # --- before
    def _check_writable(self) -> None:
        self.source.use(read_only)
        for each in self.written:
            if each.writes_data and each.role not in self.meta.wrappers:
                place = self.source.constant(each.place, "V", each.place)
                self.source.add(f"if not {name_of(each.role)}.storage.writable:")
                self.source.add(f"    raise read_only({place})")
                self.source.add(f"if {name_of(each.role)}.storage.write_observers is not None:")
                self.source.add(f"    {name_of(each.role)}.storage.before_write()")

    def _edges(self) -> str:
        """The node's arguments for the inputs' gradient edges, asked before the run: it may raise.
        Inputs without a gradient are not asked (RT-9)."""
        if self.plan.backward is None:
            return ""
        self.source.use(edge_of, accumulator)
        gradients = self.plan.backward.gradients
        later = self.plan.backward.derivatives.higher_order_inputs
        if later:
            edges = listed([self._edge(role) for role in later])
            self.source.add(f"higher_order_edges = {edges}")
        if not self.plan.backward.only_leaves:
            self.source.add(f"edges = {listed([self._edge_for(*each) for each in gradients])}")
            return "None, edges"
        names = [name_of(role) if isinstance(role, InputRole) else "" for role, _ in gradients]
        if len(names) > MANY and all(meta is not None for _, meta in gradients):
            end = "t._accumulator or accumulator(t)"
            self.source.add(f"ends = [{end} for t in {self._all(names)}]")
        else:
            ends = [
                "None" if meta is None else f"{name}._accumulator or accumulator({name})"
                for name, (_, meta) in zip(names, gradients, strict=True)
            ]
            self.source.add(f"ends = [{', '.join(ends)}]")
        return "ends, None"

    def _all(self, names: list[str]) -> str:
        """The variables as a tuple: `leaves` if they are all the arguments."""
        passed = [f"a{i}" for i in range(len(self.plan.guarded_values.leaves))]
        return "leaves" if names == passed else listed(names)

    def _is_leaf(self, role: Any) -> bool:
        facts = facts_of(self.tensors[role])
        return isinstance(facts, TensorFacts) and facts.is_leaf_requiring_grad

    def _edge_for(self, role: Role, meta: TensorMeta | None) -> str:
        is_none = meta is None or isinstance(role, Output)  # the node itself gives it to a result
        return "None" if is_none else self._edge(role)

    def _edge(self, role: Any) -> str:
        if isinstance(role, Family):
            return f"{name_of(self.leaders[role])}._root.edge()"
        name = name_of(role)
        if self._is_leaf(role) or role in self.plan.backward.facts.new_leaves:  # type: ignore[union-attr]
            return f"({name}._accumulator or accumulator({name}), 0)"
        return f"edge_of({name})"

    # --- the forward
    def _run(self) -> None:
        plan, calling, source = self.plan, self.convention, self.source
        if source.sizes is None:
            source.scope["run"] = plan.run
        bases: dict[object, BaseInput] = {base.role: base for base in calling.bases}
        inputs = InputTexts(source, bases, self.tensors, plan.guarded_values.sized)
        roles = [role for role in calling.inputs if not isinstance(role, (Seed, Offset))]
        many = None if self.draws.reads else self._many(inputs, roles)
        values = [] if many else self._values(inputs, roles)
        self.draws.begin()
        values += self._draw_inputs(len(calling.inputs) - 2)
        given = many or f"[{', '.join(values)}]"
        call = self._run_call(inputs, roles, given)
        names = self._outputs()
        saved = [i for i, role in enumerate(plan.forward.output_roles) if isinstance(role, Saved)]
        left = ", ".join([*names, "*saved"] if saved and names else names or ["saved"])
        line = f"{left}{',' if len(names) == 1 and not saved else ''} = {call}"
        many_names = saved and len(names) > _STARRED
        if many_names:
            line = f"saved = {call}"
        source.add_call(plan.run, line, *self.draws.on_error())
        if many_names:
            source.add(f"{listed(names)} = saved[:{len(names)}]", f"del saved[:{len(names)}]")
        if calling.sets_generator:
            self.draws.end(*map(self.variables.returned, (NextSeed(), NextOffset())))

    def _run_call(self, inputs: InputTexts, roles: Sequence[object], given: str) -> str:
        """The expression that runs the forward, with the checks of its effects (TOK-7)."""
        graph = self.plan.forward
        reads = {node.role for node in compress(graph.placeholders, is_read(graph))}
        storages = [f"{inputs.tensor(role)}.storage" for role in roles if role in reads]
        draws = self.draws.reads or self.draws.consumed != 0
        return run_call(self.source, graph, self.plan.run, given, storages, draws=draws)

    def _draw_inputs(self, first: int) -> list[str]:
        values = self.draws.inputs()
        return list(compress(values, self.plan.run.reads[first:])) if values else []

    def _values(self, inputs: InputTexts, roles: list[Any]) -> list[str]:
        """Expressions for the forward's inputs."""
        return [inputs.value(role) for role in compress(roles, self.plan.run.reads)]

    def _many(self, inputs: InputTexts, roles: list[Any]) -> str | None:
        """One expression for all inputs if they are many arrays, else None."""
        read = list(compress(roles, self.plan.run.reads))
        if len(read) <= MANY or not all(map(inputs.is_array_of_tensor, read)):
            return None
        self.source.use(arrays_of)
        return f"arrays_of({self._all([inputs.tensor(role) for role in read])})"

    def _outputs(self) -> list[str]:
        """Variables for the values that the forward returns, without the saved ones."""
        roles = [r for r in self.plan.forward.output_roles if not isinstance(r, Saved)]
        return [self.variables.add_returned(role) for role in roles]

    def _new_tensors(self) -> None:
        """Adds the lines that make tensors of results and intermediate bases."""
        self.source.use(tensor_over)
        for role, name in self.variables.all_returned():
            meta = self._metas[role]
            if meta is not None and not isinstance(role, (MutatedInput, *RNG_OUTPUTS)):
                made = self.variables.add_tensor(role)
                text = self.source.record(meta, "M", str(meta))
                self.source.add(f"{made} = tensor_over({name}[0], {text}, {name}[1])")

    # --- the tape
    def _make_node(self, edges: str) -> None:
        """Adds the lines that make one tape node the history of all results (RT-2)."""
        backward = self.plan.backward
        if backward is None:
            return
        # A gradient arrives in parts where the backward is linear in it, as for plain ops (DBL-1).
        kind = CompiledBackward if backward.derivatives.splits else SingleVisitBackward
        self.source.use(kind)
        plan = "backward"  # which a text for many sizes is given
        if self.source.sizes is None:
            plan = self.source.constant(backward, "B", "the plan of the backward")
        roles = self.plan.forward.output_roles
        saved = "saved" if any(isinstance(role, Saved) for role in roles) else "[]"
        self.source.add(f"node = {kind.__name__}({plan}, {edges}, {saved})")
        if backward.derivatives.higher_order_inputs:
            self.source.add("node.higher_order_edges = higher_order_edges")
        for role, _ in backward.tangents:
            # A mutated input or a rebuilt view gets its history when it is written or rebuilt.
            if self.variables.has_tensor(role):
                self.results.give_history(role)

    def _observe_memory(self) -> None:
        """Adds the lines that give the tape node the memory that its backward reads."""
        backward = self.plan.backward
        if backward is None:
            return
        keep_memory(self.source, backward.facts.memory, self.variables.by_role(self.tensors))
        add_write_observers(self.source, backward.write_observed, self._storage)
        add_saved_versions(self.source, backward.saved_tensors, self._storage)

    def _storage(self, owner: Role) -> str:
        return self.changes.storage(owner) or f"{self.variables.owner(owner)}.storage"

    # --- inputs
    def _write_inputs(self) -> None:
        """Adds the lines that write mutated inputs and raise their version counters (FUN-23)."""
        raised: set[int] = set()
        for each in self.meta.inputs:
            family = id(self.tensors[each.role].storage)
            if each.version_bumps and family not in raised:
                raised.add(family)
                self.source.add(f"{name_of(each.role)}.storage.version += {each.version_bumps}")
        self.changes.write(self.results.rebuild_early, self._write_data)
        for each in self.written:
            if each.writes_data and not each.in_graph and each not in self.changes.put:
                self._write_data(each)
        self._histories()

    def _write_data(self, each: InputMeta) -> None:
        """Adds the lines that write an input's new bytes (RT-2, RT-4)."""
        if each.role in self.meta.wrappers:
            return  # its parts are written
        role, name = MutatedInput(each.role), name_of(each.role)
        if self.plan.forward.returns_input(role, each.role):
            return  # the new value is the old one
        meta: Any = self._metas[role]
        new = self.variables.returned(role)
        if each.extent is not None:
            self.source.use(write_seen)
            text = self.source.record(meta, "M", str(meta))
            self.source.add(f"write_seen({name}, {new}, {text}, {each.extent[0]})")
        elif travels_as_array(meta):
            arrays = meta.device.arrays
            self.source.add(copy_line(self.source, arrays, f"{name}._data", new))
        else:
            self.source.use(write_window)
            text = self.source.record(meta, "M", str(meta))
            self.source.add(f"write_window({name}, {new}, {text})")

    def _histories(self) -> None:
        """Adds the lines that give mutated inputs the history of the call's results (RT-2)."""
        backward = self.plan.backward
        places = {} if backward is None else {r: i for i, (r, _) in enumerate(backward.tangents)}
        for role in self.meta.tangents:
            if isinstance(role, MutatedInput):
                self.source.use(take_history)
                of: Any = self.leaders.get(role.of, role.of)
                made = f"node, {places[role]}" if role in places else "None, 0"
                whole = ", whole=True" if role.of in self.leaders else ""
                self.source.add(f"take_history({name_of(of)}, {made}{whole})")

    def _geometries(self) -> None:
        """Adds the lines that change geometries (RT-3), after all views are rebuilt (META-11)."""
        changes = [(name_of(e.role), e.geometry_steps) for e in self.written if e.writes_metadata]
        for name, output in zip(self.variables.results, self.meta.outputs, strict=True):
            if isinstance(output, Plain):
                changes.append((name, output.geometry_steps))
            elif isinstance(output, Alias):
                changes.append((name, output.view.geometry_steps))
        self.source.use(change_geometry_of)
        for name, steps in changes:
            if steps:
                self.source.add(f"change_geometry_of({name}, {self.source.record(steps, 'V')})")

    def _tree(self, spec: Any, names: Any) -> str:
        """The results in their containers."""
        if spec.is_leaf():
            return str(next(names))
        if spec.type in (tuple, list):
            items = [self._tree(child, names) for child in spec.children()]
            return listed(items) if spec.type is tuple else f"[{', '.join(items)}]"
        items = [next(names) for _ in range(spec.num_leaves)]
        self.source.scope["unflatten"] = optree.tree_unflatten
        return f"unflatten({self.source.constant(spec, 'V', str(spec)[:60])}, {listed(items)})"
