"""`FloatRecorder`: the recorder of a function with float arguments that are inputs.

    p - lr * g        mul(g, 0-d tensor of lr): a hidden input, which each call makes of its float

A node gets the tensor where the op takes a tensor or a number there, and gives the same for both,
bit for bit: it computes in floats, and a tensor of that dtype without dimensions has the number as
the op would round it. Some ops that take numbers alone are recorded as others that take tensors.
Any other op takes the number, which is assumed then. The tape
keeps the number: formulas of gradients compute with Python's floats, and their nodes take the same
inputs. Rules: DYN-27.
Spec: `specs/float_inputs.md`.
"""

from __future__ import annotations

from collections.abc import Callable

import attrs

from aotlite.eager.base.tensor import Tensor
from aotlite.ir import dtypes
from aotlite.ir.arrays import NUMPY
from aotlite.ir.dtypes import DType
from aotlite.ir.errors import AotliteError
from aotlite.ir.graph import Node
from aotlite.ir.graph.role import Hidden
from aotlite.ir.meta import TensorMeta, tensor_meta
from aotlite.ir.op import OPS, InplaceOp, Op, PureOp
from aotlite.ir.ops.declare import PARTS
from aotlite.ir.ops.precision import COMPUTED_NUMBERS, WIDE_NUMBERS
from aotlite.ir.symbols.floats.symfloat import SymFloat
from aotlite.ir.symbols.python_number import plain
from aotlite.stages.records.guards.float_guards import FloatPath
from aotlite.stages.records.guards.guard_records import HiddenInputGuard
from aotlite.stages.records.symbolic_sizes import SymbolicSizes
from aotlite.stages.s1_capture.hooks.registered import DryRun
from aotlite.stages.s1_capture.recorder import CaptureRecorder

_TAKEN = (dtypes.float32, dtypes.float64)
_NARROW = (dtypes.float16, dtypes.bfloat16)


def kind(sizes: SymbolicSizes) -> type[CaptureRecorder]:
    """The class of the recorder for a capture with these symbols."""
    return FloatRecorder if sizes.may_have_floats else CaptureRecorder


@attrs.frozen
class _Operand:
    """What has a meta, as tensors have."""

    meta: TensorMeta


class _TakenError(Exception):
    """A number has no tensor."""


class FloatRecorder(CaptureRecorder):
    """The recorder of a function with float arguments that are inputs."""

    has_returned = False

    def __init__(
        self, function: object, leaves: list[object], dry_run: Callable[[], DryRun]
    ) -> None:
        super().__init__(function, leaves, dry_run)
        self._floats: dict[tuple[str, TensorMeta], Tensor | None] = {}

    def record(self, op: Op, args: tuple[object, ...], meta: object) -> object:
        if any(type(each) is SymFloat for each in args):
            node = self._in_parts(op, args, meta)
            if node is not None:
                return node
        return super().record(op, self._lifted(op, args), meta)

    def _in_parts(self, op: Op, args: tuple[object, ...], meta: object) -> Node | None:
        """The node of an op that takes numbers alone, as others that take tensors and give the same
        bits; None where there are none. Note [ops in parts]"""
        pure = op.functional if isinstance(op, InplaceOp) else op
        parts = PARTS.get(pure) if isinstance(pure, PureOp) else None
        metas = [meta, *[each.meta for each in op.operands(args)]]
        kinds = {each.dtype for each in metas if isinstance(each, TensorMeta)}
        on_host = isinstance(meta, TensorMeta) and meta.device.arrays is NUMPY
        if parts is None or not on_host or len(kinds) != 1 or not kinds <= set(_TAKEN):
            return None
        start, dtype = len(self.nodes), kinds.pop()

        def do(name: str, *given: object) -> Node:
            each = OPS[name]
            lifted = tuple([self._needed(x, dtype) if type(x) is SymFloat else x for x in given])
            made: Node = super(FloatRecorder, self).record(each, lifted, each.result(lifted))
            return made

        try:
            node: Node | None = parts(do, *args)
            if node is not None and op is not pure:
                node = do("copy_", args[0], node)
        except _TakenError:
            node = None
        if node is None or node.meta != meta:
            self.drop_from(start)
            return None
        return node

    def _needed(self, number: SymFloat, dtype: DType) -> Tensor:
        tensor = self._tensor_of(number, dtype)
        if tensor is None:
            raise _TakenError
        return tensor

    def record_wrapped(
        self, op: Op, args: tuple[object, ...], outs: tuple[Tensor, ...], meta: object
    ) -> tuple[object, ...]:
        return super().record_wrapped(op, plain(args), outs, meta)

    def finish_guards(self) -> None:
        super().finish_guards()
        self.has_returned = True

    def _lifted(self, op: Op, args: tuple[object, ...]) -> tuple[object, ...]:
        """The arguments with tensors or numbers for floats that are inputs."""
        for i, value in enumerate(args):
            if type(value) is SymFloat:
                fake = self._input(op, args, i, value)
                args = (*args[:i], value.plain() if fake is None else fake, *args[i + 1 :])
            elif type(value) is tuple and any(type(x) is SymFloat for x in value):
                args = (*args[:i], plain(value), *args[i + 1 :])
        return args

    def _input(self, op: Op, args: tuple[object, ...], i: int, number: SymFloat) -> Tensor | None:
        """The tensor that a node takes in the place of a number; None where it takes the number."""
        pure = op.functional if isinstance(op, InplaceOp) else op
        if not isinstance(pure, PureOp) or pure.numbers in ("unwrapped", *COMPUTED_NUMBERS):
            return None  # that of a power is looked at
        if not op.schema.parameters[i].type.holds_number:
            return None
        dtype = _computed(op, args)
        if dtype in _NARROW and pure.computes is not None:
            dtype = dtypes.float32 if pure.numbers in WIDE_NUMBERS and i else dtype
        elif dtype not in _TAKEN:
            return None
        meta = tensor_meta((), (), dtype)
        try:
            known = op.result(args)
            if op.result((*args[:i], _Operand(meta), *args[i + 1 :])) != known:
                return None
        except AotliteError:  # it takes no tensor of no dimensions there
            return None
        return self._tensor_of(number, dtype)

    def _tensor_of(self, number: SymFloat, dtype: DType) -> Tensor | None:
        """The hidden input of a number; None where it is none, and the number is to be taken."""
        meta = tensor_meta((), (), dtype)
        key = (number.text, meta)
        if self.has_returned and key not in self._floats:
            return None  # a formula has made it: the inputs are known by now
        if key not in self._floats:
            self._floats[key] = self._made(number, meta)
        return self._floats[key]

    def _made(self, number: SymFloat, meta: TensorMeta) -> Tensor | None:
        place = FloatPath(None, None, number=number, meta=meta)
        try:
            tensor = place.of(number.hint)
        except ValueError:  # too small for the dtype
            number.taken(fixes=False)
            return None
        role = Hidden(len(self._hidden), str(place), is_number=True)
        self._hidden.append(place)
        self.guards.append(HiddenInputGuard(role.index, place))
        return self._fake_input(tensor, role, str(place))


def _computed(op: Op, args: tuple[object, ...]) -> DType | None:
    """The dtype in which an op computes with a float: that of all its floating-point operands, or
    the one that integers become; None where there are several."""
    metas = [each.meta for each in op.operands(args)]
    if any(meta.device.arrays is not NUMPY for meta in metas):
        return None
    kinds = {meta.dtype for meta in metas if not meta.dtype.kind <= dtypes.INTEGER}
    if not kinds and metas:
        kinds = {OPS["mul"].infer((_Operand(metas[0]), 1.0)).dtype}  # type: ignore[union-attr]
    return kinds.pop() if len(kinds) == 1 else None
