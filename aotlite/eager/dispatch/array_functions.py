"""The function that computes a pure op on arrays: the array library's own, or the op's kernel.

`pure` caches it with the op. Spec: `specs/autograd.md`.
"""

# Note [shortcuts of pure ops]
#     for x in batches: y = x * 2.0 + 1.0         # the same metas in each round
# A small op spends most of its time on the meta rule, the choice of the kernel and the adoption of
# the result. These depend on the key alone (metas and literals). So the first call with a key puts
# into the op's shortcuts what the next ones need: the result's meta; the function on arrays,
# mostly one of NumPy's; and how to adopt its result, which is None for new memory with the right
# layout. A tensor whose `facts` is its meta has no history, so `_called` need not look for one.
# A capture does not use shortcuts.

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from aotlite.eager.base.tensor import Tensor
from aotlite.ir.arrays import Array, ArrayBackend
from aotlite.ir.dtypes import DType, bool_, int64
from aotlite.ir.meta import TensorMeta
from aotlite.ir.op import OPS, DataOp, PureOp
from aotlite.ir.ops.declare import common_dtype, is_plain_call
from aotlite.ir.ops.precision import number_in


def function_of(
    op: PureOp, key: tuple[object, ...], meta: TensorMeta
) -> tuple[Callable[..., Array] | None, int | None]:
    """(the array library's function that equals the kernel for this key, how many arguments it
    takes); (None, None) if the kernel does more.
    """
    fresh = meta.device.arrays.fresh_function
    if OPS.get(op.name) is not op:
        return None, None  # a copy of an op may have another kernel
    if op.namespaced is not None:
        found = op.namespaced(meta, *key)
        function = None if found is None else fresh(found[0])
        if found is None or function is None:
            return None, None
        return partial(function, **found[1]), len(op.tensors) + len(op.lists)
    if not is_plain_call(op, key):
        return None, None
    if op.function is not None:
        function, count = fresh(op.function), len(key)
    elif op.compute is not None:
        function, count = partial(op.compute, meta.device.arrays.namespace), None
    else:
        return None, None
    if function is not None and int in key and len(key) == 2 and op.numbers != "unwrapped":
        dtype = common_dtype(key)
        if dtype is int64 or meta.dtype is bool_:
            function = _holding(function, dtype)
    return function, count


_SIGNED_END = 1 << 63


def _holding(function: Callable[..., Array], dtype: DType) -> Callable[..., Array]:
    """A function of two operands that converts ints to the dtype first.

    NumPy refuses unsigned ints above the signed range, and compares them unconverted.
    """

    def call(a: object, b: object) -> Array:
        if type(b) is int and b >= _SIGNED_END:
            b = number_in(dtype, b)
        elif type(a) is int and a >= _SIGNED_END:
            a = number_in(dtype, a)
        return function(a, b)

    return call


def run_kernel(op: PureOp | DataOp, args: tuple[Any, ...], meta: Any, arrays: ArrayBackend) -> Any:
    return arrays.quiet(op.kernel, arrays, meta, *operands_of(args))


def operands_of(args: tuple[object, ...]) -> list[object]:
    """The arguments, with tensors replaced by their arrays."""
    operands: list[object] = []
    for a in args:
        if isinstance(a, Tensor):
            operands.append(array_of(a))
        elif type(a) is tuple and a and isinstance(a[0], Tensor):
            operands.append(tuple([array_of(item) for item in a]))
        else:
            operands.append(a)
    return operands


def array_of(tensor: Tensor) -> Array:
    array = tensor._array
    return tensor._data if array is None else array
