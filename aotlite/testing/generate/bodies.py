"""Random bodies of programs; each step runs eagerly when it is drawn."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import attrs

from aotlite.ir.errors import AutogradError
from aotlite.testing.coverage.cells import WatchedMemory, WatchedTensor, Watcher
from aotlite.testing.engines.base import EngineTensor
from aotlite.testing.engines.interpreter import run_steps
from aotlite.testing.generate.choices import LIBRARY as LIBRARY
from aotlite.testing.generate.choices import STEPS as STEPS
from aotlite.testing.generate.choices import Limits, Source
from aotlite.testing.generate.exact_steps import stays_exact
from aotlite.testing.generate.step_arguments import GEOMETRY_ARGS, VIEW_ARGS, name_of, other_size
from aotlite.testing.programs.steps import Step
from aotlite.testing.programs.vocabulary import DRAWN_VALUES, DRAWN_WRITES, FILLS, MULTI

RESHAPING = ("geometry", "resize", "set")
"""The kinds of writes that change an object's geometry or memory, not its values."""


@attrs.define
class Draft:
    """A body during its generation, and the live values of its first call."""

    rng: Source
    args: list[Any]
    limits: Limits
    grad: bool = True
    """The grad mode of the call."""
    steps: list[Step] = attrs.field(factory=list)
    values: list[Any] = attrs.field(init=False)
    watcher: Watcher = attrs.field(init=False)
    names: dict[int, str] = attrs.field(factory=dict)
    """The name of each live tensor by its id."""
    has_raised: bool = False

    def __attrs_post_init__(self) -> None:
        self.values = list(self.args)
        self.watcher = Watcher(self.limits.library, self.args, grad=self.grad)
        for place, arg in enumerate(self.args):
            self.names.setdefault(id(arg), f"${place}")

    def chance(self, share: float) -> bool:
        return self.rng.chance(share)

    def room(self) -> int:
        """The number of steps that may follow."""
        return self.limits.max_steps - len(self.steps)

    def run(self, op: str, *args: Any, no_grad: bool = False) -> list[EngineTensor] | None:
        """Adds a step if it runs, and rarely if it raises; returns the tensors that it made."""
        library = self.limits.library
        if len(self.steps) >= self.limits.max_steps or self.has_raised:
            return None
        if not (self.limits.allows(op, args) and stays_exact(library, op, args)):
            return None
        step = Step(op, tuple(map(self.name, args)), no_grad)
        try:
            with nullcontext() if self.grad else library.no_grad():
                run_steps(library, [step], self.values, self.watcher)
        except Exception:
            if self.chance(0.003):
                self.steps.append(step)
                self.has_raised = True
            return None
        self.steps.append(step)
        made = self.values[-1]
        place = f"${len(self.values) - 1}"
        parts = list(made) if isinstance(made, (tuple, list)) else [made]
        for i, part in enumerate(parts):
            self.names.setdefault(id(part), f"{place}.{i}" if made is not part else place)
        return parts

    def name(self, arg: object) -> Any:
        if isinstance(arg, (list, tuple)):
            return tuple(self.name(item) for item in arg)
        return self.names[id(arg)] if isinstance(arg, self.limits.library.tensor_type) else arg

    # --- live tensors
    def objects(
        self, memory: WatchedMemory | None = None, *, uncut: bool = False
    ) -> list[WatchedTensor]:
        """The live tensors; of one memory, if given; with `uncut`, not behind a detach."""
        return [
            each
            for each in self.watcher.objects.values()
            if (memory is None or memory is each.memory) and not (uncut and each.cut)
        ]

    def pick(
        self, memory: WatchedMemory | None = None, *, uncut: bool = False
    ) -> EngineTensor | None:
        """One of these tensors, with preference for late ones."""
        found = self.objects(memory, uncut=uncut)
        if not found:
            return None
        late = found[len(found) // 2 :] if self.chance(0.5) else found
        return self.rng.choice(late).tensor

    # --- the views
    def view(self, memory: WatchedMemory | None, op: str) -> list[EngineTensor]:
        """Takes a view of a tensor on the memory; returns the views, or []."""
        for _ in range(4):
            source = self.pick(memory)
            if source is None:
                return []
            made = self.view_of(source, op)
            if made:
                return made
        return []

    def any_view(self) -> str:
        """A view op, other than `hidden_alias` if there are others, as that hides writes."""
        views = [view for view in self.limits.views if view != "hidden_alias"]
        return self.rng.choice(views or self.limits.views)

    def view_of(self, source: EngineTensor, op: str) -> list[EngineTensor]:
        args = VIEW_ARGS[op](self.rng, source)
        if args is None:
            return []
        under = self.chance(0.06)
        made = self.run("getitem" if op == "slice" else op, source, *args, no_grad=under)
        return made or []

    # --- the writes
    def write(self, memory: WatchedMemory | None, kind: str) -> bool:
        """Writes a tensor on the memory; returns whether the write is of this kind."""
        return any(self._write(memory, kind) for _ in range(5))

    def _write(self, memory: WatchedMemory | None, kind: str) -> bool:
        if kind in ("detached", "hidden_alias"):
            return self._cut_write(memory, kind)
        target = self.pick(memory, uncut=kind not in RESHAPING)
        if target is None:
            return False
        if kind not in (*RESHAPING, "fill") and self.chance(0.8):
            target = self._apart(target)
        match kind:
            case "geometry":
                return self._geometry(target)
            case "resize":
                return self._resize(target)
            case "set":
                return self._set(target)
            case "tracked":
                return self._tracked(target)
            case "no_grad":
                any_kind = self.rng.choice(["pointwise", "copy", "fill", "setitem", "index"])
                return self._plain(target, any_kind, no_grad=True)
        return self._plain(target, kind)

    def _apart(self, target: EngineTensor) -> EngineTensor:
        """A view of the target without the dimensions that repeat its elements."""
        for dim, (size, stride) in enumerate(zip(target.shape, target.stride(), strict=True)):
            if size > 1 and not stride:
                made = self.run("select", target, dim, self.rng.randrange(size))
                return self._apart(made[0]) if made else target
        return target

    def _cut_write(self, memory: WatchedMemory | None, kind: str) -> bool:
        wanted = [each.tensor for each in self.objects(memory) if each.cut == kind]
        if not wanted or self.chance(0.2):
            source = self.pick(memory, uncut=True)
            op = "detach" if kind == "detached" else "hidden_alias"
            wanted = [] if source is None else self.view_of(source, op)
        if not wanted:
            return False
        any_kind = self.rng.choice(["pointwise", "pointwise", "copy", "fill", "setitem", "index"])
        return self._plain(self.rng.choice(wanted), any_kind, no_grad=self.chance(0.1))

    def _plain(self, target: EngineTensor, kind: str, *, no_grad: bool = False) -> bool:
        match kind:
            case "pointwise":
                made = self._pointwise(target, no_grad)
            case "copy":
                made = self.run("copy_", target, self._source(target), no_grad=no_grad)
            case "fill":
                op = self.rng.choice(FILLS)
                more = [self.rng.randint(-3, 3)] if op == "fill_" else []
                made = self.run(op, target, *more, no_grad=no_grad)
            case "setitem":
                made = self._setitem(target, no_grad)
            case _:
                made = self._indexed(target, no_grad)
        return made is not None

    def _pointwise(self, target: EngineTensor, no_grad: bool) -> object:
        op = self.rng.choice(DRAWN_WRITES)
        if op in ("neg_", "square_", "relu_"):
            return self.run(op, target, no_grad=no_grad)
        other = self._source(target) if self.chance(0.3) else self.rng.choice([2, -1, 3])
        if not no_grad and getattr(other, "requires_grad", False):
            other = 2
        return self.run(op, target, other, no_grad=no_grad)

    def _source(self, target: EngineTensor) -> EngineTensor:
        """A tensor that broadcasts to the target, with preference for its shape."""
        alike = [
            each.tensor
            for each in self.objects()
            if each.tensor.shape == target.shape or not each.tensor.dim()
        ]
        if alike and self.chance(0.7):
            return self.rng.choice(alike)
        made = self.run("sum", self.pick()) if self.chance(0.5) else None
        return made[0] if made else self.rng.choice(alike or [target])

    def _setitem(self, target: EngineTensor, no_grad: bool) -> object:
        args = VIEW_ARGS["slice"](self.rng, target)
        index = args[0] if args else ["..."]
        if target.dim() and target.shape[0] and self.chance(0.4):
            index = [self.rng.randrange(target.shape[0])]
        scalars = [each.tensor for each in self.objects() if not each.tensor.dim()]
        value = self.rng.choice(scalars) if scalars and self.chance(0.3) else self.rng.randint(1, 5)
        return self.run("setitem", target, index, value, no_grad=no_grad)

    def _indexed(self, target: EngineTensor, no_grad: bool) -> object:
        if self.room() < 2:
            return None
        if self.chance(0.4):
            mask = self.run("ne", self.pick() if self.chance(0.2) else target, 2)
            number = self.rng.randint(-2, 4)
            return mask and self.run("masked_fill_", target, mask[0], number, no_grad=no_grad)
        size = target.shape[0] if target.dim() else 0
        if not size:
            return None
        places = self.run("ints", self.rng.sample(range(size), self.rng.randint(1, size)))
        if not places:
            return None
        if self.chance(0.5):
            return self.run("index_fill_", target, 0, places[0], 3, no_grad=no_grad)
        value = self.run("full", [1] * target.dim(), 4, name_of(target.dtype))
        return value and self.run("index_put_", target, places, value[0], no_grad=no_grad)

    def _geometry(self, target: EngineTensor) -> bool:
        op = self.rng.choice(list(GEOMETRY_ARGS))
        args = GEOMETRY_ARGS[op](self.rng, target)
        under = target.requires_grad and _is_leaf(target) or self.chance(0.1)
        return args is not None and self.run(op, target, *args, no_grad=under) is not None

    def _resize(self, target: EngineTensor) -> bool:
        if target.requires_grad:
            cut = self.view_of(target, "detach")
            if not cut:
                return False
            target = cut[0]
        return self.run("resize_", target, other_size(self.rng, target)) is not None

    def _set(self, target: EngineTensor) -> bool:
        if not _is_leaf(target):
            cut = self.view_of(target, "detach")
            if not cut:
                return False
            target = cut[0]
        sources = [each.tensor for each in self.objects() if each.tensor.dtype == target.dtype]
        source = self.rng.choice(sources or [target])
        under = target.requires_grad or source.requires_grad or self.chance(0.2)
        return self.run("set_", target, source, no_grad=under) is not None

    def _tracked(self, target: EngineTensor) -> bool:
        found = [each.tensor for each in self.objects() if each.tensor.requires_grad]
        alike = [each for each in found if each.shape == target.shape]
        if alike and self.chance(0.7):
            operand = self.rng.choice(alike)
        elif found:
            made = self.run("sum", self.rng.choice(found))
            if not made:
                return False
            operand = made[0]
        else:
            return False
        if not operand.requires_grad:
            return False
        return self.run(self.rng.choice(["add_", "mul_", "sub_"]), target, operand) is not None

    # --- new memory
    def pure(self, source: EngineTensor | None = None) -> EngineTensor | None:
        """A tensor on new memory."""
        source = self.pick() if source is None else source
        op = self.rng.choice(DRAWN_VALUES)
        if source is None:
            return None
        match op:
            case "mul" | "add":
                alike = [o.tensor for o in self.objects() if o.tensor.shape == source.shape]
                other = self.rng.choice(alike) if alike and self.chance(0.4) else 2
                made = self.run(op, source, other)
            case "sum":
                dims = [[self.rng.randrange(source.dim())]] if source.dim() else []
                made = self.run(op, source, *dims)
            case _:
                made = self.run(op, source)
        return made[0] if made else None

    def act(self, memory: WatchedMemory | None) -> None:
        """Adds any step, mostly on the memory."""
        memory = memory if self.chance(0.8) else None
        match self.rng.randrange(8):
            case 0 | 1 | 2:
                self.view(memory, self.any_view())
            case 3 | 4 | 5:
                writes = [kind for kind in self.limits.writes if kind not in RESHAPING]
                self.write(memory, self.rng.choice(writes or self.limits.writes))
            case 6:
                self.write(memory, self.rng.choice(self.limits.writes))
            case _:
                self.pure(self.pick(memory))

    # --- the results
    def output(self, memory: WatchedMemory, kind: str) -> list[Any]:
        """Results of which one of this kind is on the memory; may add a view for it."""
        there = [each for each in self.objects() if memory in each.memories()]
        views = [o.tensor for o in there if not (o.is_root or o.is_argument or o.cut or o.is_part)]
        roots = [o.tensor for o in there if o.is_root]
        match kind:
            case "number":
                return [self.rng.choice([7, None])]
            case "new memory":
                others = [o.tensor for o in self.objects() if o.is_root]
                found = self.rng.choice(others) if others and self.chance(0.5) else None
                return [self.pure() if found is None else found]
            case "input":
                return [self.rng.choice([o.tensor for o in there if o.is_argument])]
            case "twice":
                return [self.rng.choice(there).tensor] * 2
            case "detached":
                cut = [o.tensor for o in there if o.cut]
                return [self.rng.choice(cut)] if cut else self.view(memory, "detach")[:1]
            case "multi-output view":
                parts = [o.tensor for o in there if o.is_part and not o.cut]
                op = self.rng.choice([op for op in MULTI if op in self.limits.views] or ["split"])
                return [self.rng.choice(parts)] if parts else self._uncut(memory, op)
            case "two views of an intermediate":
                more = views if len(views) > 1 else views + self._uncut(memory, self.plainest())
                return self.rng.sample(more, 2) if len(more) > 1 else []
            case "view of a result":
                views = views or self._uncut(memory, self.plainest())
                return [*roots[:1], *views[:1]]
        return [self.rng.choice(views)] if views else self._uncut(memory, self.plainest())

    def plainest(self) -> str:
        """The simplest view op, for a result that has to be a view."""
        return "alias" if "alias" in self.limits.views else self.any_view()

    def _uncut(self, memory: WatchedMemory, op: str) -> list[EngineTensor]:
        source = self.pick(memory, uncut=True)
        return [] if source is None else self.view_of(source, op)[:2]


def _is_leaf(tensor: EngineTensor) -> bool:
    """Whether it is a leaf; False if `is_leaf` raises, as for a part of a written base."""
    try:
        return bool(tensor.is_leaf)
    except AutogradError:
        return False
