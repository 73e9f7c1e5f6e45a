"""Saved values of a compiled call in another form: packed by saved-tensor hooks, or copied.

Used by stage 10 alone. Rules: TEN-42, SAV-2, SAV-7, PART-37, PART-40, CKP-5. Spec:
`specs/s10_runtime.md`.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from threading import RLock
from typing import Any, Protocol, TypeVar

import attrs
import numpy as np
import optree

from aotlite.backends.calling_convention import Value, array_of
from aotlite.eager.autograd.nodes.saved_tensors import PackedTensor
from aotlite.eager.base.modes import STATE, backward_task
from aotlite.eager.base.new_tensors import tensor_over
from aotlite.eager.base.storage import Storage
from aotlite.eager.base.tensor import Tensor
from aotlite.eager.regions.checkpoint import CheckpointRegion
from aotlite.ir.arrays import copied, host_array
from aotlite.ir.errors import AutogradError, noted
from aotlite.ir.graph import Graph
from aotlite.ir.graph.role import Saved, is_number
from aotlite.ir.meta import TensorMeta
from aotlite.stages.s10_runtime.backward.plan import BackwardPlan

T = TypeVar("T")


def saved_metas(graph: Graph) -> list[TensorMeta]:
    """The metas of the saved values that a backward takes, in order."""
    return [node.meta for node in graph.placeholders if isinstance(node.role, Saved)]  # type: ignore[misc]


def with_copies(
    values: Sequence[Value], metas: Sequence[TensorMeta], indices: Sequence[int]
) -> list[Value]:
    """The values, with copies in the place of those with these numbers."""
    found = list(values)
    for i in indices:
        found[i] = _copied(found[i], metas[i])
    return found


def _copied(value: Value, meta: TensorMeta) -> Value:
    made = copied(meta.device.arrays, array_of(value, meta), meta), 0
    return made if type(value) is tuple else array_of(made, meta)


class SavingNode(Protocol):
    """The tape node of a call (`backward/node.py`), as its saved values see it."""

    plan: BackwardPlan
    saved: list[Value] | None
    copies: dict[int, Value]
    observed_storages: Sequence[Storage]
    _left: list[Value | None]
    _lock: RLock

    def name(self) -> str: ...


# Note [copy on write of saved values]
#     def f(x): return x.exp().sin().sum()        # min-cut saves x, and recomputes x.exp()
#     y = f(x); x.zero_(); y.backward()
# Eager's backward does not read x, so a user may write it. The compiled one does: so `zero_` calls
# the write observers of x's storage, and the node copies x first. Calls without such a write copy
# nothing. A write by NumPy calls nobody: if an ndarray shows the memory, the node copies at once.
# A value that eager's backward reads, too, is not copied: a write to it has to raise (SAV-2). If
# the node recomputes from it, it finds a write by NumPy by comparing bytes with a copy.
def copy_before_write(node: SavingNode, storage: Storage) -> None:
    """PART-37: copies a node's saved values in this memory, which is about to change.

    Byte-checked values stay. If the change can go unnoticed, a copy is kept to compare them with
    (PART-40). Note [copy on write of saved values].
    """
    plan = node.plan
    with node._lock:
        left = getattr(node, "_left", None)
        values: Any = left if node.saved is None else node.saved
        if values is None or plan.variants is None:
            return
        metas = saved_metas(plan.variants.graph)
        pairs = zip(plan.write_observed, node.observed_storages, strict=True)
        here = [i for (i, _), each in pairs if each is storage and values[i] is not None]
        checked = {index for index, _ in plan.byte_checked}.intersection(here)
        if storage.exported and checked:
            made = with_copies(values, metas, sorted(checked))
            node.copies |= {i: made[i] for i in checked if i not in node.copies}
        copies = with_copies(values, metas, [i for i in here if i not in checked])
        if node.saved is None:
            node._left = [*copies]
        else:
            node.saved = copies


def check_copies(node: SavingNode) -> None:
    """Raises AutogradError if a byte-checked value of a call was written unnoticed (PART-40)."""
    if node.saved is None or node.plan.variants is None:
        return
    metas = saved_metas(node.plan.variants.graph)
    for index, copy in node.copies.items():
        value = node.saved[index]  # None: no further backward reads it
        if value is not None and not _same_bytes(value, copy, metas[index]):
            raise _written_unnoticed(node.name(), metas[index])


def _same_bytes(value: Value, other: Value, meta: TensorMeta) -> bool:
    """Whether two values of one geometry have the same bytes."""
    mine, its = [host_array(array_of(each, meta)) for each in (value, other)]
    return np.ascontiguousarray(mine).tobytes() == np.ascontiguousarray(its).tobytes()


def _written_unnoticed(name: str, meta: TensorMeta) -> Exception:
    """The error for a saved tensor that an ndarray has written before the backward (PART-40)."""
    return noted(
        AutogradError(
            f"{name}: a saved tensor {meta} was written by an ndarray on its memory, expected the "
            "values that it had in the forward"
        ),
        "Eager's backward mixes old and new values there, without an error. Write after the "
        "backward, or pass al.tensor(array), a copy. (PART-40)",
    )


@attrs.frozen(eq=False, repr=False)
class PackedValues:
    """The objects that saved-tensor hooks keep for a call's saved values; there may be none."""

    kept: Sequence[PackedTensor]
    metas: Sequence[TensorMeta]
    before: Sequence[bool]
    """Whether each value was a window (buffer, start)."""
    region: CheckpointRegion | None
    """The checkpointed region that recomputes them, if the hooks are a region's (CKP-1)."""
    is_same: bool
    """Whether a hook has kept the memory itself that it was given."""

    @classmethod
    def of(
        cls, values: Sequence[Value], graph: Graph | None, copied: Sequence[int], hooks: Any
    ) -> PackedValues:
        """Packs the saved values of a backward graph, copies of those with numbers in `copied`.
        Float arguments are kept: eager saves no tensors for them (DYN-27)."""
        metas = [] if graph is None else saved_metas(graph)
        roles = () if graph is None else [node.role for node in graph.placeholders]
        numbers = [is_number(role) for role in roles if isinstance(role, Saved)]
        values = with_copies(values, metas, copied)
        region = getattr(hooks[0], "__self__", None)
        kept, is_same = [], False
        for value, meta, stays in zip(values, metas, numbers, strict=True):
            buffer, start = value if type(value) is tuple else (value, 0)
            tensor = tensor_over(buffer, meta, start)
            kept.append(PackedTensor.of(tensor, *((_itself, _itself) if stays else hooks)))
            is_same = is_same or _holds(kept[-1].value, tensor)
        windows = [type(value) is tuple for value in values]
        return cls(
            kept, metas, windows, region if isinstance(region, CheckpointRegion) else None, is_same
        )

    def is_written(self, storage: Storage, version: int) -> bool:
        """Whether a saved tensor was written since, so that its packed value is stale (SAV-2).

        Hooks keep copies, or else the memory itself. A region's results are recomputed.
        """
        if self.region is not None:
            return self.region.version_of(storage) != version
        return self.is_same and storage.version != version

    def check_region(self) -> None:
        """Raises what the region raises when a value is asked for, used here or not (CKP-5)."""
        if self.region is not None:
            self.region.check()

    def unpack(self) -> Any:
        """The saved values, each an array or a window as it was when packed."""
        values: list[Value] = []
        with backward_task() if STATE.task is None else nullcontext():
            tensors = [each.unpack() for each in self.kept]
        for tensor, meta, window in zip(tensors, self.metas, self.before, strict=True):
            if tensor.meta is not meta:
                tensor = tensor.detach().to(meta.dtype).restride(meta.stride)
            values.append((tensor.storage.buffer, tensor.offset) if window else tensor._data)
        return values


def _itself(tensor: T) -> T:
    return tensor


def _holds(kept: Any, tensor: Tensor) -> bool:
    """Whether the object that a hook keeps, or a container in it, holds the tensor's memory."""
    leaves: list[Any] = optree.tree_leaves(kept, none_is_leaf=True)
    return any(isinstance(each, Tensor) and each.storage is tensor.storage for each in leaves)
