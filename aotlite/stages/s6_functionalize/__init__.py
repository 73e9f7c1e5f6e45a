"""Stage 6, functionalize: graph to graph; in-place ops and views of written memory become pure ops.

Input: an imperative graph. Output: an equal graph in which no op writes: input writes are outputs
with a `MutatedInput` role. One group per storage (value, version, pending writes), one alias per
object (group, view chain). Nothing is emitted until a stale alias is read; a second write through
the same chain replaces the pending one; replays are memoised per base value. As the last step
random ops get the generator's seed and offset, and effects their tokens.
Rules: FUN-2..FUN-12, FUN-25, FUN-35, RNG-1..RNG-4, TOK-1..TOK-5. Spec: `specs/s6_functionalize.md`.
"""

from __future__ import annotations

from operator import is_
from typing import Any

import attrs

from aotlite.eager.autograd.chain_simplification import further
from aotlite.eager.base.tape.view_chain import EMPTY_CHAIN, ViewChain, ViewStep, chain_of
from aotlite.ir.effects import EffectOp, TokenOp
from aotlite.ir.errors import UnsupportedError, noted
from aotlite.ir.geometry import layout
from aotlite.ir.geometry.overlap import has_internal_overlap
from aotlite.ir.graph import Copy, Graph, Node
from aotlite.ir.graph.builder import Builder, Proxy
from aotlite.ir.graph.role import (
    IntermediateBase,
    MutatedInput,
    Output,
    Part,
    Role,
    SyntheticBase,
    Tangent,
)
from aotlite.ir.graph.storage_roots import storage_root
from aotlite.ir.meta import TensorMeta
from aotlite.ir.op import OPS, GeometryOp, InplaceOp, MultiViewOp, PureOp, RandomOp, ViewOp
from aotlite.ir.ops.creation.factories import FULL
from aotlite.ir.ops.elementwise.comparisons import CAST
from aotlite.ir.ops.shape.copies import CLONE, COPY_, RESTRIDE
from aotlite.ir.ops.structure import GETITEM
from aotlite.ir.ops.views.view_ops import (
    ALIAS,
    AS_STRIDED,
    AS_STRIDED_SCATTER,
    DETACH,
    EXPAND,
    HIDDEN_ALIAS,
)
from aotlite.stages.s6_functionalize.view_inverses import lens_of, strided
from aotlite.stages.shared.effect_tokens import with_tokens
from aotlite.stages.shared.rng_inputs import GeneratorInputs
from aotlite.stages.shared.user_frames import describe

_SAME = (ALIAS, DETACH, HIDDEN_ALIAS)
_WINDOWS = (AS_STRIDED, OPS["as_strided_"])


def functionalize(graph: Graph) -> Graph:
    """The pure graph that computes what `graph` computes."""
    return with_tokens(_Functionalizer(graph).run())


@attrs.define(eq=False)
class Group:
    """The values of one storage: the root's newest value and the writes not yet folded into it."""

    meta: TensorMeta
    """Eager geometry of the root."""
    value: Node
    version: int = 0
    pending: list[tuple[ViewChain, Node, Node]] = attrs.field(factory=list)
    """(chain, value, writing node) of each."""
    last: tuple[ViewChain, Node] | None = None
    """The views through which the newest write went, and what they show."""


@attrs.define(eq=False)
class Alias:
    """An object on a storage: how it is seen from the root, and its value if it is up to date."""

    group: Group
    chain: ViewChain
    start: int
    meta: TensorMeta
    value: Node | None = None
    seen: int = -1


class _Functionalizer:
    """One run. `env` has the alias of each value whose storage is written, or spoken of by
    as_strided, and the node that stands for any other; a node that stands for itself is not in it.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.build = Builder(graph.name)
        self.env: dict[Node, Any] = {}
        self.memo: dict[tuple[Node, Any, tuple[Any, ...]], Node] = {}
        self.storages = _Storages(graph)
        self.generator = GeneratorInputs(graph, self.build, draws=self.storages.draws)
        self.trains = False
        self.copies: list[Copy] = []
        self.views: dict[ViewStep, Node] = {}
        """The view of the program that each step of a chain is."""

    def run(self) -> Graph:
        inputs = self.graph.placeholders
        self.trains = any(isinstance(node.role, Tangent) for node in inputs)
        for node in inputs:
            if node in self.storages.written and self._needs_memory(node):
                self._memory_of(node)
        for node in self.graph.nodes:
            op = node.target
            if type(op) is PureOp:
                self._pure(node)
            elif node.op in ("call", "get_attr"):
                self.build.source = node
                self._step(node, op)
        self.build.source = None
        return self._finish()

    # --- one node
    def _step(self, node: Node, op: Any) -> None:
        match op:
            case ViewOp():
                self._view(node, node.args[0], op, node.args[1:])
            case MultiViewOp():
                pass
            case InplaceOp():
                self._write(node)
            case GeometryOp():
                self._view(node, node.args[0], op.view, node.args[1:])
            case RandomOp():
                self.env[node] = self.generator.draw(node, self._read(node.args))
            case _ if op is GETITEM and isinstance(node.args[0].target, MultiViewOp):
                whole = node.args[0]
                view, rest = whole.target.parts(whole.args)[node.args[1]]
                self._view(node, whole.args[0], view, rest)
            case _:
                self._pure(node)

    def _pure(self, node: Node) -> None:
        """A node whose operands stand for themselves is shared with the graph given."""
        args = node.args
        if self.env:
            self.build.source = node
            args = self._read(args)
            if node.target is AS_STRIDED_SCATTER and args is not node.args:
                args = (self._exact(args[0], node.args[0].meta), *args[1:])
        if args is node.args:
            self.build.nodes.append(node)
        else:
            self.env[node] = self.build.emit(node.target, args)

    def _alias(self, node: Node) -> Alias:
        """The alias of a value; the first question for the maker of a storage makes its group."""
        found = self.env.get(node, node)
        if type(found) is not Alias:
            meta: TensorMeta = node.meta  # type: ignore[assignment]
            found = self.env[node] = Alias(Group(meta, found), EMPTY_CHAIN, 0, meta, found, 0)
        return found

    def _needs_memory(self, node: Node) -> bool:
        """Whether places in memory count: two elements in one, or as_strided on one with gaps."""
        meta: TensorMeta = node.meta  # type: ignore[assignment]
        return _repeats(meta) or not meta.dense and node in self.storages.windowed

    def _memory_of(self, node: Node) -> None:
        """Makes a written input a window on its memory, which holds each element once."""
        meta: TensorMeta = node.meta  # type: ignore[assignment]
        self.build.source = node
        flat = self.build.emit(AS_STRIDED, (node, (meta.span,), (1,), 0))
        held: TensorMeta = flat.meta  # type: ignore[assignment]
        step = ViewStep(AS_STRIDED, (meta.shape, meta.stride, 0), held, meta)
        self.env[node] = Alias(Group(held, flat), chain_of(step), 0, meta)

    def _copy(self, value: Node, stride: tuple[int, ...] | None, reason: str) -> Node:
        """A copy in these strides, counted; in the value's own where none are given."""
        op, args = (CLONE, (value,)) if stride is None else (RESTRIDE, (value, stride))
        copy = self.build.emit(op, args)
        self.copies.append(Copy(copy, reason))
        return copy

    # --- reading
    def _read(self, argument: Any) -> Any:
        """The argument with the values of its nodes; itself if they stand for themselves."""
        if type(argument) is Node:
            found = self.env.get(argument, argument)
            return self._sync(found) if type(found) is Alias else found
        if type(argument) is tuple:
            read = [self._read(item) for item in argument]
            return argument if all(map(is_, read, argument)) else tuple(read)
        return argument

    def _sync(self, alias: Alias) -> Node:
        """The alias's current value; writes still pending are folded in first (FUN-6)."""
        group = alias.group
        if alias.value is None or alias.seen != group.version:
            if group.last is not None and group.last[0] is alias.chain:
                return group.last[1]
            self._fold(group)
            alias.value = self._replay(group, alias.chain)
            alias.seen = group.version
        return alias.value

    def _replay(self, group: Group, chain: ViewChain) -> Node:
        value = group.value
        for step in chain:
            if step.op is AS_STRIDED:
                value, step = _from_root(self._exact(group.value, group.meta), step)
            if step.op not in _SAME:
                value = self._memoised(value, step)
        return value

    def _memoised(self, value: Node, step: ViewStep) -> Node:
        if type(step.op) is ViewOp and step.op.recasts:
            value = self._exact(value, step.operand)  # the last dimension must lie as in eager
        key = (value, step.op, step.args)
        found = self.memo.get(key)
        if found is None:
            reader = self.build.source
            self.build.source = self.views.get(step, reader)  # FUN-35
            found = self.memo[key] = self._shown(step.op, (value, *step.args))
            self.build.source = reader
        return found

    def _shown(self, op: Any, args: tuple[Any, ...]) -> Node:
        """The value of a view; one that is a copy lies so that views of the view can be taken."""
        found = self.build.emit(op.shown, args)
        if op.shown is op:
            return found
        stride = op.result(args)[0].stride
        meta: TensorMeta = found.meta  # type: ignore[assignment]
        if layout.same_order(meta.shape, meta.stride, stride) and 0 not in stride:
            return found
        return self._copy(found, stride, "views of it are taken, which eager's strides allow")

    def _exact(self, value: Node, eager: Any) -> Node:
        """The value in eager's own strides, which as_strided and others speak of (FUN-12)."""
        if value.meta.stride == eager.stride:  # type: ignore[union-attr]
            return value
        key = (value, RESTRIDE, (eager.stride,))
        found = self.memo.get(key)
        if found is None:
            found = self.memo[key] = self._copy(value, eager.stride, "its reader speaks of strides")
        return found

    # --- views
    def _view(self, node: Node, operand: Node, op: ViewOp, rest: tuple[Any, ...]) -> None:
        if not self.storages.needs_alias(operand):
            self.env[node] = self._plain_view(node, operand, op, rest)
            return
        parent = self._alias(operand)
        meta: TensorMeta = node.meta  # type: ignore[assignment]
        start = op.at((operand, *rest), parent.start)
        if op is AS_STRIDED:
            self._check_span(node, parent.group, meta, start)
            chain = strided(parent.group.meta, meta, start)
        else:
            step = ViewStep(op, rest, operand.meta, meta)  # type: ignore[arg-type]
            is_written = self.storages.is_written(operand)  # else views stay as they are (FUN-34)
            chain = further(parent.chain, step) if is_written else parent.chain.then(step)
        if chain:
            self.views.setdefault(chain[-1], node)
        alias = self.env[node] = Alias(parent.group, chain, start, meta)
        if op in _SAME:
            alias.value, alias.seen = parent.value, parent.seen
        elif not parent.group.pending:
            alias.value, alias.seen = self._seen_from(parent, chain), parent.group.version

    def _plain_view(self, node: Node, operand: Node, op: ViewOp, rest: tuple[Any, ...]) -> Node:
        """The value of a view of a storage that is never written."""
        value: Node = self._read(operand)
        if op in _SAME:
            return value
        if op.recasts:
            value = self._exact(value, operand.meta)
        key = (value, op, rest)
        found = self.memo.get(key)
        if found is None:
            if value is operand and op is node.target and op.shown is op:
                found = self.build.add(node)
            else:
                found = self._shown(op, (value, *rest))
            self.memo[key] = found
        return found

    def _seen_from(self, parent: Alias, chain: ViewChain) -> Node:
        """The value at the end of a chain that goes on from a parent's, or starts anew."""
        if chain is parent.chain:
            return self._sync(parent)
        if len(chain) <= len(parent.chain) or chain[-1].op is AS_STRIDED:
            return self._replay(parent.group, chain)
        return self._memoised(self._sync(parent), chain[-1])

    def _check_span(self, node: Node, group: Group, meta: TensorMeta, start: int) -> None:
        size, held = meta.dtype.itemsize, group.meta.span * group.meta.dtype.itemsize
        if meta.numel and not (0 <= start and (start + meta.span) * size <= held):
            place = describe(node.location)
            raise noted(
                UnsupportedError(
                    f"as_strided: size {meta.shape} with stride {meta.stride} reaches outside the "
                    f"{group.meta.span} elements of its base {group.meta}, expected to stay inside"
                ),
                place,
                "Pass the tensor that spans the whole storage as the argument.",
            )

    # --- writes
    def _write(self, node: Node) -> None:
        op: InplaceOp = node.target
        alias = self._alias(node.args[0])
        if not alias.meta.numel:  # nothing is written, and views of nothing cannot be undone
            self.env[node] = alias
            return
        value = self._in_layout(self._result(op, node, alias), alias.meta)
        if op is COPY_ and self.trains:
            value = self._apart(value, self._read(node.args[1]))
        group = alias.group
        lens = lens_of(alias.chain, alias.meta, alias.start, alias.group.meta)
        if group.pending and group.pending[-1][0] is lens:
            group.pending.pop()  # the same window is overwritten whole: one scatter, not two
        group.version += 1
        group.last = lens, value
        if all(step.op in _SAME for step in reversed(alias.chain)):
            group.value, group.pending = value, []
        else:
            group.pending.append((lens, value, node))
        self.env[node] = Alias(group, alias.chain, alias.start, alias.meta, value, group.version)

    def _result(self, op: InplaceOp, node: Node, alias: Alias) -> Node:
        meta = alias.meta
        if op is COPY_:
            source = self._read(node.args[1])
            if source.meta.dtype is not meta.dtype:
                source = self.build.emit(CAST, (source, meta.dtype))
            if source.meta.shape != meta.shape:
                source = self.build.emit(EXPAND, (source, meta.shape))
            return source
        if op.overwrites:
            return self.build.emit(FULL, (meta.shape, node.args[1], meta.dtype, meta.device))
        value = self.build.emit(op.functional, tuple([self._read(a) for a in node.args]))
        if value.meta.dtype is not meta.dtype:  # type: ignore[union-attr]
            value = self.build.emit(CAST, (value, meta.dtype))
        return value

    def _apart(self, value: Node, source: Node) -> Node:
        """What is copied, in memory of its own: before the backward the caller may write the
        source.
        """
        if storage_root(value) is not storage_root(source):
            return value
        return self._copy(value, None, "copy_ takes the values that its source has now")

    def _in_layout(self, value: Node, eager: TensorMeta) -> Node:
        """The value with the memory order that the written object has in eager (FUN-12)."""
        meta: TensorMeta = value.meta  # type: ignore[assignment]
        if meta.dense and layout.same_order(meta.shape, meta.stride, eager.stride):
            return value
        stride = layout.clone_strides(eager.shape, eager.stride)
        return self._copy(value, stride, "the tensor that is written lies so in memory")

    def _fold(self, group: Group) -> None:
        """Writes what is pending into the root's value, by the chains' inverses (FUN-7)."""
        reader = self.build.source
        for chain, value, writer in group.pending:
            self.build.source = writer
            # Sums depend on the order in memory: the root keeps eager's (FUN-12).
            group.value = self._in_layout(self._put(group, chain, value), group.meta)
        self.build.source = reader
        group.pending = []

    def _put(self, group: Group, chain: ViewChain, value: Node) -> Node:
        steps = [step for step in chain if step.op not in _SAME]
        is_window = steps[0].op is AS_STRIDED
        parents = [self._exact(group.value, group.meta) if is_window else group.value]
        for step in steps[:-1]:
            parents.append(self._memoised(parents[-1], step))
        for step, parent in zip(reversed(steps), reversed(parents), strict=True):
            value = step.op.put(
                Proxy(self.build, parent), Proxy(self.build, value), *step.args
            ).node
            if step.op.recasts:  # by copies of bytes, which lie contiguously
                value = self._in_layout(value, parent.meta)  # type: ignore[arg-type]
        return value

    # --- the end
    def _finish(self) -> Graph:
        outputs = [self._read(value) for value in self.graph.outputs]
        roles = self.graph.output_roles
        written = {role.of for role in roles if isinstance(role, MutatedInput)}
        owners: dict[Node, Role] = {}
        final = []
        for role, value, old in zip(roles, outputs, self.graph.outputs, strict=True):
            final.append(self._escaping(role, value, old, written, owners))
        graph = self.generator.closed(final, roles)
        graph.copies = tuple(self.copies)
        return graph

    def _escaping(
        self, role: Role, value: Any, old: Any, written: set[Any], owners: dict[Node, Role]
    ) -> Any:
        """A result in eager's exact strides, in memory that no other result or input has."""
        if value is None:
            return None
        self.build.source = value
        if isinstance(role, (Output, IntermediateBase, Part)):
            meta: TensorMeta = old.meta
            if value.meta.stride != meta.stride:
                value = self._copy(value, meta.stride, "the result lies so in memory")
            root = storage_root(value)
            if root.op != "call":
                value = self._copy(value, meta.stride, "the result is no memory of an input")
            elif root in owners:
                value = self._copy(value, meta.stride, "two results are two memories")
            owners[storage_root(value)] = role
        elif isinstance(role, MutatedInput):
            root = storage_root(value)
            shared = root.role in written or isinstance(root.role, SyntheticBase)
            if root.op == "placeholder" and root.role != role.of and shared:
                value = self._copy(value, None, "its memory is written before it is read")
        self.build.source = None
        return value


class _Storages:
    """What a graph does to the storages of its values, each named by the node that made it."""

    def __init__(self, graph: Graph) -> None:
        self.root: dict[Node, Node] = {}
        """For values that share another's storage."""
        self.written: set[Node] = set()
        self.windowed: set[Node] = set()
        """Those of which as_strided shows a window."""
        self.draws = False
        for node in graph.nodes:
            if node.op == "call" and type(node.target) is not PureOp:
                self._note(node, node.target)

    def _note(self, node: Node, op: Any) -> None:
        if type(op) is RandomOp:
            self.draws = True
            return
        if type(op) is EffectOp or type(op) is TokenOp:
            return
        if op is GETITEM and not isinstance(node.args[0].target, MultiViewOp):
            return
        operand = node.args[0]
        root = self.root[node] = self.root.get(operand, operand)
        if type(op) is InplaceOp:
            self.written.add(root)
        if op in _WINDOWS:
            self.windowed.add(root)

    def is_written(self, node: Node) -> bool:
        """Whether the storage of this value is written anywhere."""
        return self.root.get(node, node) in self.written

    def needs_alias(self, node: Node) -> bool:
        """Whether more must be known of this value than the node that stands for it."""
        root = self.root.get(node, node)
        return root in self.written or root in self.windowed


def _repeats(meta: TensorMeta) -> bool:
    return not meta.dense and has_internal_overlap(meta.shape, meta.stride)


def _from_root(value: Node, step: ViewStep) -> tuple[Node, ViewStep]:
    """A window on a value that is itself a view, told from what that is a view of (FUN-34)."""
    start, root = 0, value
    while type(root.target) is ViewOp and not root.target.recasts:
        start, root = root.target.at(root.args, 0) + start, root.args[0]
    if root is value:
        return value, step
    size, stride, first = step.args
    meta: TensorMeta = root.meta  # type: ignore[assignment]
    return root, attrs.evolve(step, args=(size, stride, first + start), operand=meta)
