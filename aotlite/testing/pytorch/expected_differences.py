"""The differences between aotlite's eager mode and PyTorch's that a rule demands (GEN-11).

A difference is expected only if it disappears when the program, or PyTorch, is changed in the one
point of the rule. Such a rule is called an excuse.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from itertools import combinations
from typing import Any

import attrs
import numpy as np

from aotlite.ir.geometry.overlap import has_internal_overlap
from aotlite.testing.engines import engine
from aotlite.testing.engines.base import EngineTensor
from aotlite.testing.engines.interpreter import body_of, run_steps
from aotlite.testing.engines.pytorch import TorchEngine
from aotlite.testing.observe.observation import Observation, TensorSnapshot
from aotlite.testing.observe.observe_call import observe_call
from aotlite.testing.programs.program import Program
from aotlite.testing.programs.steps import Step, is_name, resolved, returned
from aotlite.testing.programs.vocabulary import GEOMETRY, REFUSE_OVERLAP
from aotlite.testing.pytorch.comparison import compared

OURS = engine("aotlite")

EXACT = "TEN-8: PyTorch writes a tensor that overlaps itself, but not by stride 0"
SAME = "TEN-8: PyTorch refuses an operand at the same place by strides of dimensions of size 1"
PICKED = "IDX-8: PyTorch's index_put_ picks from a dimension that is repeated"
BITS = "bits: which nan, and the sign of a zero, differ, and a view in another dtype shows them"
FILLED = "TEN-7: PyTorch refuses a number for a part that overlaps itself"
STALE = "TEN-18: PyTorch mistakes what was not looked at since its base was written"
MOVED = "TEN-26: in PyTorch a tensor keeps its base and its count of writes after set_"
LEFT = "TEN-26: in PyTorch a tensor and its views keep the history that they had before set_"
OUTSIDE = "FUN-11: PyTorch drops gradients of as_strided on a view that fall outside the view"
EXPANDED = "TEN-17: PyTorch's backward through a write of an expanded view raises"
EMPTY = "TEN-17: PyTorch's backward through a write of an empty view_as_real raises"
RESIZED = "TEN-25: PyTorch's backward through a view looks for its base as it was before resize_"
NEGATED = "neg: PyTorch negates and adds complex numbers by products, which carry a nan over"
TYPED = "TEN-14: in PyTorch integers get a history, which their next use refuses"
WINDOWS = "TEN-17: PyTorch adds up gradients of elements that overlap once for each window"
LEAVES = "TEN-23: in PyTorch a write takes away the history of a leaf that is a view"
TURNED = "TEN-3: PyTorch's gradients are those of other elements where a base changes its geometry"

MENDS = (
    *(EXACT, SAME, PICKED, FILLED, STALE, MOVED, LEFT, OUTSIDE),
    *(EXPANDED, EMPTY, RESIZED, NEGATED, BITS, WINDOWS, TYPED),
)
"""The excuses for which PyTorch's behavior is changed."""
CHANGES = (LEAVES, TURNED)
"""Excuses for which the program is changed."""
EXCUSES = (*MENDS, *CHANGES)


def excuse(torch: object, program: Program, number: int) -> str | None:
    """Returns the fewest rules that explain the differences of a call; None if none do."""
    program = attrs.evolve(program, calls=[program.calls[number]])
    usable = [name for name in EXCUSES if _concerns(name, program)]
    for count in range(1, min(len(usable), 3) + 1):
        for names in combinations(usable, count):
            if not compared(*_mended(torch, program, frozenset(names))):
                return "; ".join(names)
    return None


NEEDED = {
    FILLED: {"setitem"},
    MOVED: {"set_"},
    LEFT: {"set_"},
    LEAVES: {"requires_grad_"},
    OUTSIDE: {"as_strided"},
    TURNED: set(GEOMETRY),
    EXPANDED: {"expand"},
    EMPTY: {"view_as_real"},
    RESIZED: {"resize_"},
    PICKED: {"index_put_"},
    BITS: {"view_dtype"},
    NEGATED: {"neg_", "add_"},
    WINDOWS: {"as_strided", "as_strided_", "unfold"},
}
"""Excuse -> the ops of which a program needs one."""


def _concerns(name: str, program: Program) -> bool:
    ops = {step.op for step in (*program.body, *program.calls[0].setup)}
    return name not in NEEDED or bool(NEEDED[name] & ops)


def _mended(torch: Any, program: Program, names: frozenset[str]) -> tuple[Observation, Observation]:
    """Both observations of the only call, without the behavior of the excuses."""
    if LEAVES in names:
        program = detached_leaves(program)
    if TURNED in names:
        program = unturned(program)
    mended = Mended(torch, names)
    mine = observe_call(OURS, program, 0, body_of(OURS, program))
    its = observe_call(mended, program, 0, mended.body_of(program))
    if LEFT in names:
        mine, its = (_unmoved(world, mended.has_kept_kind) for world in (mine, its))
    elif MOVED in names:
        mine, its = (_without(world, base=None, version=0) for world in (mine, its))
    if EXACT in names and _wrote_overlap(program, mine, its):
        mine, its = (attrs.evolve(each, write=None, written=[]) for each in (mine, its))
    if BITS in names:
        dtypes = ["f4"] if "float32" in str(program) else ["f8"]
        mine, its = (_plain_bits(world, dtypes) for world in (mine, its))
    if mended.has_wrong_gradients:
        mine, its = (attrs.evolve(each, grads=[]) for each in (mine, its))
    if mended.could_not_go_back:
        mine, its = (attrs.evolve(each, backward=None, grads=[]) for each in (mine, its))
    return mine, its


def _unmoved(world: Observation, has_raised: bool) -> Observation:
    """The observation without bases, versions, and the history that depends on them."""
    if has_raised:
        return Observation()
    seen = _without(world, base=None, version=0, requires_grad=True, leaf=True, node=True)
    return attrs.evolve(seen, backward=None, grads=[])


def _without(world: Observation, **forgotten: Any) -> Observation:
    """The observation with these fields in all snapshots."""
    called = [attrs.evolve(each, **forgotten) for each in world.called]
    written = [attrs.evolve(each, **forgotten) for each in world.written]
    return attrs.evolve(world, called=called, written=written)


def _plain_bits(world: Observation, dtypes: Sequence[str]) -> Observation:
    """The observation with one nan and one zero for memory that has float views."""
    floats = {each.storage for each in world.called if "int" not in each.dtype}

    def plain(seen: TensorSnapshot) -> TensorSnapshot:
        is_float = seen.storage in floats
        return attrs.evolve(seen, values=_one_nan(seen.values, dtypes)) if is_float else seen

    called, written = ([plain(each) for each in seen] for seen in (world.called, world.written))
    return attrs.evolve(world, called=called, written=written)


def _one_nan(values: bytes, dtypes: Sequence[str]) -> bytes:
    for dtype in dtypes:
        floats = np.frombuffer(values, dtype)
        values = np.where(np.isnan(floats), np.nan, floats + 0).astype(dtype).tobytes()
    return values


def _wrote_overlap(program: Program, mine: Observation, its: Observation) -> bool:
    """Whether aotlite alone refused the write after the call, as its target overlaps itself."""
    returned_tensors = [place for place, plain in enumerate(mine.plain) if plain is None]
    if (mine.write, its.write) != ("AliasError", None) or not returned_tensors:
        return False
    count = len(mine.objects) - len(returned_tensors)
    write = program.calls[0].write
    assert write is not None
    place = write[0] % len(returned_tensors)
    seen = mine.called[mine.objects[count + place]]
    return has_internal_overlap(seen.shape, seen.stride)


class Mended(TorchEngine):
    """PyTorch without the behavior of some excuses."""

    def __init__(self, torch: Any, mends: frozenset[str]) -> None:
        super().__init__(torch)
        self.mends = mends
        self.could_not_go_back = False
        """Whether a backward raises by one of the excuses."""
        self.has_wrong_gradients = False
        self.has_kept_kind = False
        """Whether a write was refused because of the base before `set_`."""
        self.moved = False

    def backward(self, tensors: Sequence[Any], gradients: Sequence[Any]) -> None:
        try:
            super().backward(tensors, gradients)
        except RuntimeError as error:
            self.could_not_go_back = any(
                name in self.mends and text in str(error) for name, text in BACKWARD_ERRORS.items()
            )
            raise

    def body_of(self, program: Program) -> Any:
        """The program's function."""

        def body(*args: object) -> list[Any]:
            values = list(args)
            for step in program.body:
                self.run(step, values)
            return returned(program, values)

        return body

    def run(self, step: Step, values: list[object]) -> None:
        """Runs a step and appends its value."""
        if STALE in self.mends:
            self._look(values)
        op, args = step.op, step.args
        target: EngineTensor = resolved(args[0], values)
        with self.no_grad() if step.no_grad else nullcontext():
            if NEGATED in self.mends and op == "add_" and target.is_complex():
                other = resolved(args[1], values)
                is_complex = isinstance(other, self.tensor_type) and other.is_complex()
                result = self._add_parts(target, other) if is_complex else None
            else:
                result = self._instead(op, args, target)
            if result is None:
                result = self._as_it_is(op, args, target, values)
        values.append(result)
        if PICKED in self.mends and op == "index_put_":
            self._check_picks(target, len(args[1]))
        self._check_overlap(op, target, args)

    def _instead(self, op: str, args: tuple[Any, ...], target: Any) -> object:
        """Returns the result of an op with the same effect; None if the step itself is right."""
        if FILLED in self.mends and op == "setitem" and isinstance(args[2], (int, float)):
            steps = [Step("getitem", ("$0", args[1])), Step("fill_", ("$1", args[2]))]
            run_steps(self, steps, [target])
            return target
        if OUTSIDE in self.mends and op == "as_strided" and target._base is not None:
            offset = args[3] if len(args) > 3 else target.storage_offset()
            is_typed = target._base.dtype != target.dtype
            return None if is_typed else target._base.as_strided(args[1], args[2], offset)
        if NEGATED in self.mends and op == "neg_" and target.is_complex():
            self.torch.view_as_real(target).neg_()
            return target
        return None

    def _add_parts(self, target: EngineTensor, other: EngineTensor) -> object:
        self.torch.view_as_real(target).add_(self.torch.view_as_real(other))
        return target

    def _as_it_is(
        self, op: str, args: tuple[object, ...], target: EngineTensor, values: list[Any]
    ) -> Any:
        sets = op == "set_" and not self.mends.isdisjoint((MOVED, LEFT))
        self.moved |= sets
        was_plain = not sets or (target.is_leaf and not target.requires_grad)
        shape = target.shape if sets else None
        given = list(values)
        if TYPED in self.mends and _is_write_of_integers(op, target):
            given = [self._without_history(value, target) for value in values]
        if SAME in self.mends and op.endswith("_") and op != "set_":
            args = (args[0], *(self._elsewhere(name, target, given) for name in args[1:]))
        try:
            run_steps(self, [Step(op, args)], given)
            if sets and self._is_refused(was_plain, shape, target, resolved(args[1], values)):
                raise RuntimeError("TEN-26")
        except RuntimeError as error:
            self.has_kept_kind = self.moved and any(text in str(error) for text in KEPT)
            raise
        return given.pop()

    def _without_history(self, value: EngineTensor, target: EngineTensor) -> object:
        is_source = isinstance(value, self.tensor_type) and value is not target
        return value.detach() if is_source and value.requires_grad else value

    def _elsewhere(self, name: Any, target: EngineTensor, values: list[object]) -> Any:
        """The name of a copy of an operand, if it has the target's address; else its name."""
        operand = resolved(name, values)
        if not isinstance(operand, self.tensor_type) or operand is target:
            return name
        if _place(operand) != _place(target):
            return name
        values.append(operand.clone())
        return f"${len(values) - 1}"

    def _is_refused(
        self,
        was_plain: bool,
        shape: Sequence[int] | None,
        target: EngineTensor,
        source: EngineTensor,
    ) -> bool:
        """TEN-26: `set_` with gradients needs no_grad, and a leaf or an unchanged shape."""
        tracked = not was_plain or source.requires_grad
        has_other_shape = not target.is_leaf and target.shape != shape
        return (self.torch.is_grad_enabled() and tracked) or has_other_shape

    def _check_overlap(self, op: str, target: EngineTensor, args: tuple[object, ...]) -> None:
        if op == "index_put_" and EXACT in self.mends and _overlaps_itself(target, repeats=False):
            raise RuntimeError("TEN-8")
        if op not in REFUSE_OVERLAP or not _overlaps_itself(target):
            return
        if op == "copy_" and args[0] == args[1]:
            self.has_wrong_gradients = WINDOWS in self.mends
        elif EXACT in self.mends:
            raise RuntimeError("TEN-8")

    def _check_picks(self, target: EngineTensor, dims: int) -> None:
        """Raises by IDX-8 if an indexed dimension has a stride of 0."""
        sizes = list(zip(target.shape, target.stride(), strict=True))[:dims]
        if any(size > 1 and stride == 0 for size, stride in sizes):
            raise RuntimeError("IDX-8")

    def _look(self, values: list[object]) -> None:
        for value in values:
            for tensor in value if isinstance(value, (tuple, list)) else (value,):
                if isinstance(tensor, self.tensor_type):
                    try:
                        tensor.grad_fn  # noqa: B018
                    except RuntimeError:
                        pass


BACKWARD_ERRORS = {
    EXPANDED: "more than one element of the written-to tensor",
    RESIZED: "are out of bounds for storage",
    EMPTY: "Tensor must have a last dimension with stride 1",
}
KEPT = "A view was created in no_grad", "cannot resize variables that require grad"
"""The errors of a tensor that are due to its history before `set_`."""


def _place(tensor: EngineTensor) -> object:
    telling = [(n, s) for n, s in zip(tensor.shape, tensor.stride(), strict=True) if n != 1]
    return tensor.data_ptr(), tensor.itemsize, telling


def _is_write_of_integers(op: str, target: EngineTensor) -> bool:
    writes = op.endswith("_") or op == "setitem"
    return writes and not (target.is_floating_point() or target.is_complex())


def _overlaps_itself(tensor: EngineTensor, *, repeats: bool = True) -> bool:
    """Whether two elements have one address; `repeats`: also by a stride of 0."""
    dims = zip(tensor.shape, tensor.stride(), strict=True)
    kept = [(size, stride) for size, stride in dims if stride or repeats]
    return has_internal_overlap(tuple(n for n, _ in kept), tuple(s for _, s in kept))


def detached_leaves(program: Program) -> Program:
    """The program in which a view is detached before it is made a leaf."""
    calls = []
    for call in program.calls:
        setup, args = call.setup, call.args
        place = 0
        while place < len(setup):
            step = setup[place]
            if step.op == "requires_grad_":
                setup, args = _with_detached(setup, args, int(step.args[0][1:]))
                place += 1
            place += 1
        calls.append(attrs.evolve(call, setup=setup, args=args))
    return attrs.evolve(program, calls=calls)


def _with_detached(
    setup: tuple[Step, ...], args: tuple[Any, ...], place: int
) -> tuple[tuple[Step, ...], tuple[Any, ...]]:
    """The setup with a step that detaches value `place`; later steps use the detached value."""
    renamed = {n: n + (n >= place) for n in range(len(setup))}
    made, rest = setup[place], setup[place + 1 :]
    steps = [*setup[:place], made, Step("detach", (f"${place}",))]
    steps += [attrs.evolve(step, args=_renamed(step.args, renamed)) for step in rest]
    return tuple(steps), _renamed(args, renamed)


def unturned(program: Program) -> Program:
    """The program with view ops in place of ops that change geometry."""
    body = [
        attrs.evolve(step, op=step.op.rstrip("_")) if step.op in GEOMETRY else step
        for step in program.body
    ]
    return attrs.evolve(program, body=body)


def _renamed(value: Any, names: dict[int, int]) -> Any:
    if isinstance(value, tuple):
        return tuple(_renamed(item, names) for item in value)
    if is_name(value):
        place, dot, part = value[1:].partition(".")
        return f"${names[int(place)]}{dot}{part}"
    return value
