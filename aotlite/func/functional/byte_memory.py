"""Memory as bytes: for windows of another dtype, and for memory that grows.

    y.resize_(100)                 the bytes of `y`, and zeros behind them (TEN-25)
    z.view(int32).expand(2, 3)     a write to it has an inverse on bytes alone

Bytes have no history: what had the memory's gets one of its own (`OwnHistory`).
Rules: FNT-4, FNT-8. Spec: `specs/functionalize_transform.md`.
"""

from __future__ import annotations

from aotlite.eager.autograd.as_strided_chain import bytes_window, step_of, strided_step
from aotlite.eager.base.tape.view_chain import chain_of
from aotlite.func.functional.memory import WrittenMemory
from aotlite.func.functional.tensor_history import own_history_of
from aotlite.ir.dtypes import uint8
from aotlite.ir.meta import TensorMeta, tensor_meta
from aotlite.ir.ops.creation.factories import FULL
from aotlite.ir.ops.shape.join import CAT
from aotlite.ir.ops.views.reinterpret import VIEW_DTYPE
from aotlite.ir.ops.views.view_ops import AS_STRIDED


def is_bytes(meta: TensorMeta) -> bool:
    """Whether the geometry of a root is that of bytes, one after the other."""
    return meta.dtype is uint8 and meta.ndim == 1 and meta.dense


def made_bytes(memory: WrittenMemory) -> WrittenMemory:
    """The bytes of memory that the function made, which take its place."""
    own_history_of(memory)
    first = step_of(AS_STRIDED, memory.meta, (memory.meta.span,), (1,), 0)
    steps = [first, step_of(VIEW_DTYPE, first.result, uint8)]
    value = memory.value
    for step in steps:
        value = memory.outside.shown(step, value)
    made = WrittenMemory(memory.outside, steps[-1].result, value, version=memory.version)
    made.tensors.root, made.written = memory.tensors.root, memory.written
    memory.moved_to(made, bytes_window(made.meta, memory.meta, 0), 0)
    return made


def lengthened(memory: WrittenMemory, count: int) -> WrittenMemory:
    """A root of this many bytes, which takes the place of a shorter one."""
    more = max(0, count - memory.meta.span)
    line = tensor_meta((memory.meta.span + more,), None, uint8, memory.meta.device)
    memory.fold()
    emit = memory.outside.emit
    zeros = emit(FULL, (more,), 0, uint8, memory.meta.device)
    made = WrittenMemory(
        memory.outside,
        line,
        emit(CAT, (memory.value, zeros), 0),
        handle=memory.handle,
        start=memory.start,
        version=memory.version,
        is_grown=True,
        written=memory.written,
    )
    made.tensors.root = memory.tensors.root
    memory.moved_to(made, chain_of(strided_step(line, memory.meta, 0)), 0)
    return made
