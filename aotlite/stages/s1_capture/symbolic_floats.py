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

import math
from collections.abc import Callable
from typing import Any

import attrs

from aotlite.eager.base.tensor import Tensor
from aotlite.ir import dtypes
from aotlite.ir.arrays import NUMPY
from aotlite.ir.dtypes import DType
from aotlite.ir.dtypes.limits import finfo
from aotlite.ir.errors import AotliteError
from aotlite.ir.graph import Node
from aotlite.ir.graph.role import Hidden
from aotlite.ir.meta import TensorMeta, tensor_meta
from aotlite.ir.op import OPS, InplaceOp, Op, PureOp
from aotlite.ir.ops.precision import WIDE_NUMBERS
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
        parts = PARTS.get(pure.name)
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
        if not isinstance(pure, PureOp) or pure.numbers == "unwrapped" or pure.computes_numbers:
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


# --------------------------------------------------------------------------- ops in parts
# Note [ops in parts]
#     addcmul(x, y, z, value=s)      mul(y, z), mul(_, hidden), add(x, _)
# The tape has the op as it was called, so gradients are eager's. In the graph the parts compute
# what its kernel does, in the same order. They are of float32 or float64, as operands and results.
Do = Callable[..., Any]
"""`do(name, *args)`: the node of an op; numbers that change are inputs of it."""
_MOST = finfo(dtypes.float32).max
"""The largest float32."""


def _clamp(do: Do, x: Any, low: Any, high: Any) -> Any:
    x = x if low is None else do("clamp", x, low, None)
    return x if high is None else do("clamp", x, None, high)


def _elu(do: Do, x: Any, alpha: Any, scale: Any, input_scale: Any) -> Any:
    below = do("le", x, 0)
    bent = do("expm1", do("mul", do("where", below, x, 0), input_scale))
    return do("where", below, do("mul", bent, alpha * scale), do("mul", x, scale))


def _softplus(do: Do, x: Any, beta: Any, threshold: Any) -> Any:
    scaled = do("mul", x, beta)
    bent = do("div", do("log1p", do("exp", scaled)), beta)
    return do("where", do("gt", scaled, threshold), x, bent)


def _softshrink(do: Do, x: Any, lambd: Any) -> Any:
    if not lambd >= 0:  # which the kernel refuses
        return None
    inner = do("where", do("lt", x, -lambd), do("add", x, lambd), do("mul", x, 0))
    return do("where", do("gt", x, lambd), do("sub", x, lambd), inner)


def _hardshrink(do: Do, x: Any, lambd: Any) -> Any:
    inside = do("logical_and", do("ge", x, -lambd), do("le", x, lambd))
    return do("where", inside, 0.0, x)


def _padded(do: Do, x: Any, pad: Any, value: Any) -> Any:
    given = do("full", x.meta.shape, True, dtypes.bool_, x.meta.device)
    inside = do("constant_pad_nd", given, pad, False)
    return do("where", inside, do("constant_pad_nd", x, pad, 0.0), value)


def _filled(do: Do, x: Any, value: Any) -> Any:
    if x.meta.dtype is dtypes.float32 and _MOST < abs(value) < math.inf:  # which eager refuses
        return None
    return do("copy", x, value)


def _lerp(do: Do, x: Any, end: Any, weight: Any) -> Any:
    way = do("sub", end, x)
    if abs(weight) < 0.5:
        return do("add", x, do("mul", way, weight))
    return do("sub", end, do("mul", way, 1 - weight))  # of the double


def _scaled(sign: str) -> Callable[..., Any]:
    def scaled(do: Do, x: Any, other: Any, alpha: Any) -> Any:
        is_tensor = hasattr(other, "meta")
        return do(sign, x, do("mul", other, alpha) if is_tensor else other * alpha)

    return scaled


def _added_to_product(do: Do, x: Any, a: Any, b: Any, beta: Any, alpha: Any) -> Any:
    whole = do("matmul", a, b)
    whole = whole if alpha == 1 else do("mul", whole, alpha)
    if beta != 0:
        whole = do("add", whole, x if beta == 1 else do("mul", x, beta))
    return whole


PARTS: dict[str, Callable[..., Any]] = {
    "clamp": _clamp,
    "hardtanh": _clamp,
    "addcmul": lambda do, x, y, z, value: do("add", x, do("mul", do("mul", y, z), value)),
    "addcdiv": lambda do, x, y, z, value: do("add", x, do("div", do("mul", y, value), z)),
    "leaky_relu": lambda do, x, slope: do("where", do("gt", x, 0), x, do("mul", x, slope)),
    "threshold": lambda do, x, most, value: do("where", do("le", x, most), value, x),
    "elu": _elu,
    "softplus": _softplus,
    "softshrink": _softshrink,
    "hardshrink": _hardshrink,
    "constant_pad_nd": _padded,
    "lerp": _lerp,
    "add_scaled": _scaled("add"),
    "sub_scaled": _scaled("sub"),
    **dict.fromkeys(("addmm", "addmv", "baddbmm"), _added_to_product),
    "fill": _filled,
    "full": lambda do, size, value, *kind: _filled(do, do("full", size, 0.0, *kind), value),
}
"""By the name of the pure op."""
