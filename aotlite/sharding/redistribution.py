"""From one placement to another, by collectives and by what each rank does alone.

Input are the parts of all ranks and their placement, output the parts for another one, in new
memory. Rules: SHD-4, SHD-5, SHD-6. Spec: `specs/sharding.md`.
"""

from __future__ import annotations

from collections.abc import Callable

from aotlite.eager.autograd.nodes.op_nodes import laid_out
from aotlite.eager.base.tensor import Tensor
from aotlite.eager.creation.factories import arange
from aotlite.eager.subclass.protocol import flatten, inner_tensors, is_wrapper, leaves_of, unflatten
from aotlite.ir.dtypes import DType
from aotlite.ir.errors import SubclassError
from aotlite.ir.meta import TensorMeta
from aotlite.ir.ops.collectives import reduction, waited
from aotlite.sharding.collective_counts import note_collective
from aotlite.sharding.mesh import Mesh, Parts
from aotlite.sharding.placements import Partial, PlacedView, Placement, Replicate, Shard


def redistributed(mesh: Mesh, parts: Parts, source: Placement, target: Placement) -> Parts:
    """The parts for the target: themselves where nothing changes, else new memory."""
    if source == target:
        return parts
    match source, target:
        case PlacedView(), _:
            return redistributed(mesh, _shown(mesh, parts, source), Replicate(), target)
        case Shard(dim), Replicate():
            return _collective("all_gather", parts, dim)
        case Shard(dim), Shard(other):
            return _collective("all_to_all", parts, other, dim)
        case Partial(op), Replicate():
            return _collective(reduction("all_reduce", op), parts, op)
        case Partial(op), Shard(dim):
            return _collective(reduction("reduce_scatter", op), parts, dim, op)
        case Replicate(), Shard(dim):
            return mesh.each(lambda rank: cut(parts[rank], dim, rank, mesh.size), [parts])
        case Replicate(), Partial(op):
            return mesh.each(lambda rank: share(parts[rank], op, rank), [parts])
    return redistributed(mesh, redistributed(mesh, parts, source, Replicate()), Replicate(), target)


def _collective(name: str, parts: Parts, *args: object) -> Parts:
    note_collective(name)
    return waited(name, parts, *args)


def cut(whole: Tensor, dim: int, rank: int, ranks: int) -> Tensor:
    """The part of a rank, in memory of its own."""
    size = whole.shape[dim] // ranks
    start = rank * size
    try:
        return owned(whole.narrow(dim, start, size))
    except SubclassError:  # a wrapper that has no such view: its elements are read
        places = arange(start, start + size)
        return whole._do("index_select", dim, places)


def owned(tensor: Tensor) -> Tensor:
    """A copy that shares no memory with the tensor, also where copies of its class share a part."""
    made = tensor.clone()
    if is_wrapper(made):
        held = [leaf.storage for leaf in leaves_of(tensor)]
        if any(leaf.storage is each for leaf in leaves_of(made) for each in held):
            inner = {name: owned(part) for name, part in inner_tensors(made).items()}
            return unflatten(type(made), inner, flatten(made)[1], made.shape, made.stride())
    return made


def share(whole: Tensor, op: str, rank: int) -> Tensor:
    """What a rank holds of a value that is to be the reduction of all: rank 0 the value."""
    nothing = neutral(whole.dtype, op, rank)
    return owned(whole) if nothing is None else whole._do("fill", nothing)


def neutral(dtype: DType, op: str, rank: int) -> complex | None:
    """The number that a rank holds beside rank 0's value; None where it holds the value too."""
    if rank == 0 or op in ("avg", "max", "min"):
        return None
    if op == "product" or not dtype.is_differentiable:
        return int(op == "product")
    # What is added to -0.0 and leaves it so is -0.0.
    return complex(-0.0, -0.0) if dtype.is_complex else -0.0


def bytes_moved(meta: TensorMeta, source: Placement, target: Placement, ranks: int) -> float:
    """What a redistribution costs: about the bytes that all ranks receive, over their number."""
    size = meta.numel * meta.dtype.itemsize
    match source, target:
        case _ if source == target:
            return 0
        case PlacedView(), _:
            return bytes_moved(source.base, source.placement, Replicate(), ranks)
        case Replicate(), _:
            return 0
        case Shard(), Shard():
            return size / ranks
        case Partial(), Replicate():
            return 2 * size
    return size


# ---------------------------------------------------------------------- views across ranks (SHD-6)
def _whole(mesh: Mesh, parts: Parts, window: PlacedView) -> Parts:
    """What the views are of, on every rank, laid out as it is outside."""
    whole = redistributed(mesh, parts, window.placement, Replicate())
    return mesh.each(lambda rank: laid_out(whole[rank], window.base), [whole])


def _seen(window: PlacedView, whole: Tensor) -> Tensor:
    """The views, of a tensor that is what they are of."""
    for name, args in window.chain:
        whole = whole._run(name, *args)
    return whole


def _shown(mesh: Mesh, parts: Parts, window: PlacedView) -> Parts:
    whole = _whole(mesh, parts, window)
    return mesh.each(lambda rank: owned(_seen(window, whole[rank])), [whole])


def written_through(
    mesh: Mesh,
    parts: Parts,
    window: PlacedView,
    write: Callable[[Tensor, int], object],
    value: Parts,
) -> None:
    """Writes what a window on the parts shows: `write(view, rank)`, of which `value` is read."""
    whole = _whole(mesh, parts, window)

    def written(rank: int) -> Tensor:
        write(_seen(window, whole[rank]), rank)
        return whole[rank]

    after = redistributed(mesh, mesh.each(written, [whole, value]), Replicate(), window.placement)
    mesh.each(lambda rank: parts[rank].copy_(after[rank]), [parts, after])
