"""The recorder, the tracer of a capture: ops become nodes, the caller's tensors become inputs.

The dispatcher, the engine and Modules call it (`eager.base.capture_protocol`): `record` for an op,
`here` for a tensor, `read_attribute` for a Module. Rules: GEN-8, FUN-27, CAP-1..CAP-9.
Spec: `specs/s1_capture.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from aotlite.eager.autograd.differentiable_views import edge_of, is_stale
from aotlite.eager.base.modes import STATE, recording
from aotlite.eager.base.storage import NO_COUNT, Storage
from aotlite.eager.base.tape.node import Edge, TapeNode
from aotlite.eager.base.tensor import Tensor
from aotlite.eager.base.unsupported import note_refusal
from aotlite.eager.subclass.protocol import is_wrapper
from aotlite.eager.tracked_objects import TrackedObject
from aotlite.ir.arrays import host_array
from aotlite.ir.errors import UnsupportedError, noted
from aotlite.ir.graph import Constant, Node, Phase
from aotlite.ir.graph.role import Hidden, Part, Primal
from aotlite.ir.graph.storage_roots import storage_root
from aotlite.ir.meta import TensorMeta
from aotlite.ir.op import OPS, GeometryOp, Op
from aotlite.ir.ops.shape.copies import CLONE
from aotlite.ir.ops.structure import GETITEM
from aotlite.ir.ops.views.view_ops import AS_STRIDED
from aotlite.ir.provenance.location import Location
from aotlite.stages.records.capture_inputs import CapturedInput, InputRole
from aotlite.stages.records.guards.access_paths import NOTHING, AccessPath
from aotlite.stages.records.guards.access_words import argument_words
from aotlite.stages.records.guards.guard_records import (
    Guard,
    HiddenInputGuard,
    SameTensorGuard,
    ValueGuard,
)
from aotlite.stages.records.guards.snapshots import snapshot_of
from aotlite.stages.records.symbolic_sizes import SymbolicSizes
from aotlite.stages.records.trace import OuterFakes
from aotlite.stages.s1_capture.as_strided_extents import AsStridedExtents, check_window
from aotlite.stages.s1_capture.data_sizes import DataSizes
from aotlite.stages.s1_capture.environment.access_search import AccessPathIndex, parts_at
from aotlite.stages.s1_capture.environment.capture_tables import CaptureTables
from aotlite.stages.s1_capture.environment.scan import EnvironmentBefore, check_unwatched
from aotlite.stages.s1_capture.grad_attribute import GradAttributes
from aotlite.stages.s1_capture.hooks.registered import DryRun, RegisteredHooks
from aotlite.stages.s1_capture.metadata_mutations import MetadataMutations
from aotlite.stages.s1_capture.module_scopes import ModuleScopes, backward_in, sum_in
from aotlite.stages.s1_capture.rng_tracking import RngTracker
from aotlite.stages.s1_capture.subclass_fakes import SubclassFakes, values_of, with_parts_of
from aotlite.stages.shared.memory.sized_views import arguments_with_symbols
from aotlite.stages.shared.memory.view_families import ViewFamilies, base_edges, copy_autograd
from aotlite.stages.shared.tape_queries import passes_outside
from aotlite.stages.shared.user_frames import describe, user_location

AS_STRIDED_ = OPS["as_strided_"]
_OUR_FRAMES = 5
"""Those of `user_location`, `add_node`, `record`, the op's handler, and `_apply` of dispatch."""


class CaptureRecorder:
    """Collects nodes, inputs and guards while the user's function runs."""

    refusal: BaseException | None = None
    """The first refusal that was raised: users' Python may have caught it (CAP-13)."""
    phase = Phase.FORWARD
    origin: Node | None = None
    recompute: bool | None = None
    failed: TapeNode | None = None
    sequence = 0
    """The number of the next tape node; an op that makes none shares it (SEQ-1, SEQ-3). In a
    recorded backward, that of the tape node that runs."""
    counts = True
    closed = unrecorded = False
    sizes: SymbolicSizes | None = None
    eager_values: None = None
    _location: Location | None = None

    def __init__(self, function: Any, leaves: list[Any], dry_run: Callable[[], DryRun]) -> None:
        self.function = function
        self.leaves = leaves
        self.nodes: list[Node] = []
        self.placeholders: list[Node] = []
        self.inputs: list[CapturedInput] = []
        self.guards: list[Guard] = []
        self.offset_read: set[InputRole] = set()
        self.scopes = ModuleScopes()
        self._index = AccessPathIndex(function, leaves)
        self._met = CaptureTables()
        self.outer_fakes: OuterFakes = {}
        self._hidden: list[AccessPath] = []
        """Access paths of the hidden inputs, in order."""
        # a part for each feature
        self.around = EnvironmentBefore()
        self.families, self.reach = ViewFamilies(), AsStridedExtents()
        self.changes = MetadataMutations(self)
        """Mutations of inputs that are not ops."""
        self.streams = RngTracker(self)
        self.wrapped = SubclassFakes(self)
        self.grads = GradAttributes(self)
        self.hooks, self.data = RegisteredHooks(self, dry_run), DataSizes(self)

    # --- recording
    def admit(self, args: tuple[object, ...]) -> tuple[Any, ...]:
        """The arguments with `here` of each tensor among them."""
        for i, value in enumerate(args):
            if isinstance(value, Tensor):
                if value.storage.capture is not self or value.value is None:
                    args = (*args[:i], self.here(value), *args[i + 1 :])
            elif type(value) is tuple and value and isinstance(value[0], Tensor):
                args = (*args[:i], self.admit(value), *args[i + 1 :])
        return args

    def here(self, tensor: Tensor) -> Tensor:
        """A tensor of the capture itself; for one from outside its fake, lifted when first met."""
        if tensor.storage.capture is self:
            return tensor if tensor.value is not None else self.wrapped.adopted(tensor)
        fake = self._met.fakes.get(id(tensor))
        if fake is None:
            known = self.outer_fakes.get(id(tensor))
            return self._lift(tensor) if known is None or known[0]() is not tensor else known[1]
        given = self._met.inputs[id(fake)]
        if isinstance(given.role, (Primal, Part)) and id(tensor) not in self._met.reached:
            self._reach(tensor, given.role)
            if fake.meta is not given.entry_meta or fake.offset != given.entry_offset:
                raise self.refuse(
                    "an argument by another name after its geometry changed",
                    "use the argument itself",
                )
        return fake

    def _reach(self, tensor: Tensor, role: Primal | Part) -> None:
        """Notes that the function reached an argument through a closure, global or Module too."""
        self._met.reached.add(id(tensor))
        places = self._index.all_of(tensor)
        if not places and self._place_of(tensor) is None:
            raise self._refuse_placeless(tensor)
        self.guards.extend(SameTensorGuard(place, role) for place in places)

    def record(self, op: Op, args: tuple[Any, ...], meta: Any) -> Any:
        """Adds the node of an op; returns it, or a tuple with a `getitem` node for each result."""
        if type(op) is GeometryOp or op is AS_STRIDED:
            self._check_geometry(op, args, meta)
        node = self.add_node(op, values_of(args), meta)
        if type(meta) is TensorMeta:
            return node
        return tuple([self.add_node(GETITEM, (node, k), one) for k, one in enumerate(meta)])

    def record_wrapped(
        self, op: Op, args: tuple[object, ...], outs: tuple[Tensor, ...], meta: object
    ) -> tuple[Any, ...]:
        return self.wrapped.record(op, values_of(args), outs, meta)

    def _check_geometry(self, op: Op, args: tuple[Any, ...], meta: Any) -> None:
        if type(op) is GeometryOp:
            self.check_is_argument(args[0], op.name)
        if op in (AS_STRIDED, AS_STRIDED_):
            check_window(self, op, args[0], meta, AS_STRIDED.start(args))

    def add_node(self, op: Op, args: tuple[Any, ...], meta: Any) -> Node:
        origin, mode = self.origin, bool(STATE.grad_mode)
        if origin is not None:
            location, scope = origin.location, origin.scope
            if self.scopes.now is not None:
                scope = self.scopes.around(scope)
        else:
            location, scope = user_location(_OUR_FRAMES), self.scopes.now
        if self.scopes.is_backward:
            scope = self.scopes.inner(scope)
            if location == self._location:  # the same line again: one object serves
                location = self._location
            self._location = location
        records = mode, self.phase, self.sequence, location, origin, self.recompute, scope
        node = Node("call", op, args, meta, None, *records)
        self.nodes.append(node)
        return node

    def check_is_argument(self, fake: Tensor, name: str) -> None:
        """Refuses a geometry op on a hidden input, or on an argument that is also reached so: on
        that path Python reads the geometry of the caller's tensor."""
        given = self.input_of(fake)
        if given is not None and (
            isinstance(given.role, Hidden) or id(self._met.reals[id(fake)]) in self._met.reached
        ):
            raise self.refuse(
                f"{name} on a tensor that is not an argument", "pass the tensor as an argument"
            )

    def drop_from(self, start: int) -> None:
        """Removes the nodes from number `start` on."""
        self.wrapped.forget(self.nodes[start:])
        del self.nodes[start:]

    def count_tape_node(self) -> None:
        if self.counts:
            self.sequence += 1

    def constant(self, data: object, tensor: Tensor) -> Tensor:
        """A clone of a `get_attr` node, for data made in the function: writes spare the constant
        (FUN-27)."""
        meta = tensor.meta
        host = np.array(host_array(data), dtype=meta.dtype.numpy)
        node = Node("get_attr", Constant(f"constant_{len(self.nodes)}", host), meta=meta)
        node.location = user_location()
        self.nodes.append(node)
        source = Tensor(Storage(None, capture=self), meta)
        source.value = node
        copy: Tensor = source._apply(CLONE, (source,))
        return copy

    def run_before(self, node: TapeNode) -> None:
        """Nodes recorded from now on get the location of `node`'s forward op (JNT-8)."""
        self.origin = node.origin
        if self.origin is not None:
            self.sequence = self.origin.sequence

    def backward_inside(self) -> AbstractContextManager[None]:
        return backward_in(self)

    def summed(self, add: Callable[..., object], *args: object) -> Any:
        return sum_in(self.nodes, add, args)

    # --- inputs
    def add_argument(self, index: int, tensor: Tensor) -> Tensor:
        """The fake of argument leaf `index`."""
        return self._fake_input(tensor, Primal(index), argument_words(self.function, index))

    def _lift(self, tensor: Tensor) -> Tensor:
        """The fake of an outer tensor met for the first time: it becomes a hidden input."""
        if tensor.storage.capture is not None:
            error = self.refuse(
                "a tensor of another capture",
                "a tensor made while a function is captured is of no use afterwards: return it "
                "from that function",
            )
            raise note_refusal(error, tensor.storage.capture)
        place = self._place_of(tensor)
        if place is None:
            raise self._refuse_placeless(tensor)
        role = Hidden(len(self._hidden), str(place))
        self._hidden.append(place)
        self.guards.append(HiddenInputGuard(role.index, place))
        if id(tensor) not in self._met.places:  # unknown which of its paths the function used
            others = self._index.all_of(tensor)[1:]
            self.guards.extend(SameTensorGuard(other, role) for other in others)
        return self._fake_input(tensor, role, str(place))

    def _refuse_placeless(self, tensor: Tensor) -> Exception:
        return self.refuse(
            f"a tensor {tensor.meta} that is neither an argument nor found in the function's "
            "closure, its globals, or in a Module, optimizer or container among these",
            "pass the tensor as an argument, or hold it in a Module",
        )

    def input_for(self, tensor: Tensor, role: Part, place: str) -> CapturedInput:
        """The input record of a wrapper's inner tensor, which may be an input in its own right."""
        fake = self._met.fakes.get(id(tensor))
        return self._met.inputs[id(self._fake_input(tensor, role, place) if fake is None else fake)]

    def _fake_input(self, tensor: Tensor, role: InputRole, place: str) -> Tensor:
        meta = self.wrapped.sized_meta(tensor, role, self.families)
        storage = self._met.storages.get(id(tensor.storage))
        wraps = is_wrapper(tensor)
        if storage is None:
            writable = tensor.storage.writable
            make = self.wrapped.storage
            storage = make(tensor) if wraps else Storage(None, writable=writable, capture=self)
            storage.version = 0 if type(tensor.storage.version) is int else NO_COUNT
            self._met.storages[id(tensor.storage)] = storage
        requires_grad = tensor.requires_grad_outside()
        is_leaf = tensor._leaf and tensor._node is None
        node = Node("placeholder", role, meta=meta, role=role)
        self.placeholders.append(node)
        if wraps:
            fake = self.wrapped.fake(tensor, role, place, meta)
            fake.storage = storage
            self.wrapped.nodes[node] = fake
        else:
            fake = Tensor(storage, meta, tensor.offset)
            fake.__class__ = type(tensor) if "__slots__" in vars(type(tensor)) else Tensor
        copy_autograd(tensor, fake, requires_grad=requires_grad)
        fake.value = node
        entry = None if is_stale(tensor) else edge_of(fake)
        family = self.families.join(tensor, fake, role)
        if entry is not None and fake._node is not None and not fake._leaf:
            entry = fake._node, fake._index  # earlier writes are part of the family root's history
        given = CapturedInput(
            role,
            node,
            fake,
            entry,
            meta,
            tensor.offset,
            is_leaf or not requires_grad,
            requires_grad,
            place,
            storage,
            id(tensor.storage if wraps or tensor.storage.capture else tensor.storage.buffer),
            family=family,
            entry_chain=fake._chain,
        )
        self.inputs.append(given)
        self._met.fakes[id(tensor)] = fake
        self._met.reals[id(fake)] = tensor
        self._met.inputs[id(fake)] = given
        self._met.real_by_node[node] = tensor
        self._met.alive.append(tensor)
        return fake

    def input_of(self, tensor: Tensor) -> CapturedInput | None:
        """The input record of a fake or of a caller's tensor; None if it is no input."""
        return self._met.inputs.get(id(self._met.fakes.get(id(tensor), tensor)))

    def is_one_memory(self, a: Tensor, b: Tensor) -> bool:
        one, other = storage_root(self.here(a).value), storage_root(self.here(b).value)
        reals = self._met.real_by_node.get(one), self._met.real_by_node.get(other)
        if one is other or None in reals:
            return one is other
        first, second = reals[0].storage, reals[1].storage  # type: ignore[union-attr]
        return first is second or (first.buffer is second.buffer and first.buffer is not None)

    def weak_fakes(self) -> OuterFakes:
        return self._met.outer_fakes()

    def real_of(self, fake: Tensor) -> Tensor:
        """The caller's tensor that an input's fake stands for."""
        return self._met.reals[id(fake)]

    def real_at(self, placeholder: Node) -> Tensor | None:
        """The caller's tensor that a placeholder stands for; None for any other node."""
        return self._met.real_by_node.get(placeholder)

    def is_outside(self, tensor: Tensor) -> bool:
        return tensor.storage.capture is not self or id(tensor) in self._met.reals

    def ask_gradients(self, inputs: Sequence[Any]) -> None:
        check_unwatched(self, inputs)

    def check_paths(self, starts: Sequence[Edge | None], sinks: Sequence[Edge | None]) -> None:
        with recording(None):
            outside = [
                (entry, edge_of(self._met.reals[id(i.fake)]))
                for i in self.inputs
                for entry in (i.entry, edge_of(i.fake) if i.fake._leaf else None)
                if entry is not None  # a leaf whose geometry changes has another edge then
            ]
        if passes_outside(starts, sinks, [*outside, *base_edges(self.families.all())]):
            raise self.refuse(
                "the gradient of a tensor from outside by another, which it was computed from,",
                "ask for the gradient outside, or compute the tensor inside the function",
            )

    def note_offset_read(self, tensor: Tensor) -> None:
        real = self._met.real_by_node.get(storage_root(self.here(tensor).value))
        for given in self.inputs:
            if real is not None and self._met.reals[id(given.fake)].storage is real.storage:
                self.offset_read.add(given.role)

    # --- places and guards
    def _place_of(self, thing: object) -> AccessPath | None:
        place = self._met.places.get(id(thing)) or self._index.find(thing)
        return place or self._met.parts.get(id(thing))

    def read_attribute(self, owner: object, name: str, value: object) -> Any:
        """Guards attribute `name` of a Module or optimizer, which is read; returns it (CAP-5)."""
        if id(owner) in self._met.created or (id(owner), name) in self._met.guarded:
            return value
        self._met.guarded.add((id(owner), name))
        self._met.alive += (owner, value)
        place = self._place_of(owner)
        if place is None:
            raise self.refuse(
                f"attribute {name!r} of a {type(owner).__name__} that is neither an argument nor "
                "found in the function's closure, its globals or containers among these",
                "pass the object as an argument, or hold it in a variable of the function's",
            )
        self._note(value, place.then("attr", name))
        return value

    def read_absent(self, owner: object, name: str) -> None:
        place = self._place_of(owner)
        if place is not None and id(owner) not in self._met.created:
            self.guards.append(ValueGuard(place.then("attr", name), snapshot_of(NOTHING)))

    def _note(self, value: object, place: AccessPath) -> None:
        """Records the access paths of tensors and objects in a value; guards a plain value."""
        self.learn(value, place)
        if not isinstance(value, Tensor):
            self.guards.append(ValueGuard(place, snapshot_of(value)))

    def learn(self, value: object, place: AccessPath) -> None:
        """Records the access paths of tensors and objects in nested containers, in order."""
        above: set[int] = set()
        stack: list[tuple[Any, AccessPath | None]] = [(value, place)]
        while stack:
            value, at = stack.pop()
            if at is None:  # this container is done
                above.discard(id(value))
            elif isinstance(value, (Tensor, TrackedObject)):
                self._met.alive.append(value)
                if isinstance(value, Tensor) and is_wrapper(value):
                    self._met.parts.update({id(p): where for p, where in parts_at(value, at)})
                known = self._met.places.setdefault(id(value), at)
                if known is not at and isinstance(value, Tensor):
                    self._same(value, at)
            elif isinstance(value, (dict, list, tuple)) and id(value) not in above:
                above.add(id(value))
                stack.append((value, None))
                items = list(value.items() if isinstance(value, dict) else enumerate(value))
                stack.extend((item, at.then("item", key)) for key, item in reversed(items))

    def _same(self, tensor: Tensor, place: AccessPath) -> None:
        role = self._met.inputs[id(self.here(tensor))].role
        self.guards.append(SameTensorGuard(place, role))

    def note_surroundings(self) -> None:
        """Takes snapshots of all that the function can reach, before it runs."""
        observed = [i for i, leaf in enumerate(self.leaves) if isinstance(leaf, TrackedObject)]
        places = [AccessPath(i, self.function) for i in observed] + self._index.roots()
        self.around.look(self.function, places, self.leaves)
        self.families.look_at(
            with_parts_of(self._index.tensors()),
            () if self.sizes is None else arguments_with_symbols(self.sizes, self.leaves),
        )

    def guard_surroundings(self) -> None:
        """Adds guards for all that the function can reach by name and did not change."""
        inputs = [given for given in self.inputs if isinstance(given.role, (Primal, Hidden))]
        self.around.guard(self, {given.role: self.real_of(given.fake) for given in inputs})

    def compared(self) -> list[Any]:
        """The functions whose variables the guards compare at each call."""
        return self._index.functions()

    def note_reached(self, things: Sequence[object]) -> None:
        """Excludes containers from the guards: a hook called at each backward may change them."""
        self.around.note_reached(things, self.leaves)

    def check_numbers(self) -> None:
        self.around.numbers.check(self)

    def finish_guards(self) -> None:
        """Adds the guards that are known once the function has returned."""
        self.check_numbers()
        self.guard_surroundings()
        # An argument that was also reached through a Module must stay that same object.
        for real_id, place in self._met.places.items():
            fake = self._met.fakes.get(real_id)
            given = None if fake is None else self._met.inputs[id(fake)]
            if given is not None and isinstance(given.role, Primal):
                self.guards.append(SameTensorGuard(place, given.role))

    def place_at(self, role: InputRole) -> AccessPath:
        if isinstance(role, Part):
            return self.place_at(role.of).then("part", role.attr)  # type: ignore[arg-type]
        is_argument = isinstance(role, Primal)
        return AccessPath(role.index, self.function) if is_argument else self._hidden[role.index]

    def created(self, thing: object) -> None:
        """Notes a Module or optimizer made during the capture: it may be written, unguarded."""
        self._met.created[id(thing)] = thing

    def is_created(self, thing: object) -> bool:
        return id(thing) in self._met.created

    def replace_input(self, given: CapturedInput, later: CapturedInput) -> None:
        """Replaces the record of an input."""
        self._met.inputs[id(given.fake)] = later
        self.inputs = [later if each is given else each for each in self.inputs]

    # --- refusals
    def refuse(self, what: str, advice: str, at: Location | None = None) -> Exception:
        place = describe(at or user_location())
        error = UnsupportedError(
            f"capture: {what} cannot be captured, expected a function without it"
        )
        return note_refusal(noted(error, place, f"Instead: {advice}."), self)

    def close(self) -> None:
        """Drops all references: fakes that stay alive hold the recorder, and nothing through it."""
        self.nodes, self.placeholders, self.inputs, self.guards = [], [], [], []
        self.leaves, self._index, self.families = [], AccessPathIndex(None, []), ViewFamilies()
        self.closed, self.around = True, EnvironmentBefore()
        self._met = CaptureTables(reached=self._met.reached, guarded=self._met.guarded)
        self.wrapped.close()
        self.grads, self.data = GradAttributes(self), DataSizes(self)
        self.grads.end()
