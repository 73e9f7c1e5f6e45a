"""Sums of products over named dimensions: tensordot, inner, einsum, chains of matrices.

Composites of permutations, reshapes and one product of batches for each pair of operands, so that
gradients follow, and strides are those that PyTorch's own steps leave.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from aotlite.ir.errors import ArgumentError, ShapeError
from aotlite.ir.geometry import layout, sizes
from aotlite.ir.op.composite import composite
from aotlite.ir.op.operand import Operand
from aotlite.ir.ops.linalg.einsum_path import contraction_path
from aotlite.ir.ops.linalg.einsum_text import Equation, parsed
from aotlite.ir.ops.linalg.products import check_one_dtype

Ints = tuple[int, ...]
Bools = tuple[bool, ...]


# ----------------------------------------------------------------------------------- tensordot
@composite(is_method=False)
def tensordot(a: Operand, b: Operand, dims: object = 2) -> Operand:
    """The sum of products over `dims` last dimensions of `a` and first of `b`, or listed pairs."""
    left, right = _tensordot_dims(a, b, dims)
    check_one_dtype("tensordot", a.meta, b.meta)
    for i, j in zip(left, right, strict=True):
        m, n = a.shape[i], b.shape[j]
        if n == 1:  # repeated along the other's dimension: summed at once
            a = a.sum((i,), True, dtype=a.dtype)
        elif m == 1:
            b = b.sum((j,), True, dtype=b.dtype)
        elif m != n:
            raise ShapeError(
                f"tensordot: dimension {i} of 'a' has size {m} and dimension {j} of 'b' size {n}, "
                "expected one size"
            )
    return _contracted(a, b, left, right)


def _tensordot_dims(a: Operand, b: Operand, dims: object) -> tuple[Ints, Ints]:
    count = sizes.as_size(dims)
    if count is not None:
        if not 0 <= count <= min(a.ndim, b.ndim):
            raise ArgumentError(
                f"tensordot: dims is {dims}, expected 0 to the fewer dimensions of the two, "
                f"{min(a.ndim, b.ndim)}"
            )
        return tuple(range(a.ndim - count, a.ndim)), tuple(range(count))
    if not isinstance(dims, (tuple, list)) or len(dims) != 2:
        raise ArgumentError(f"tensordot: dims is {dims!r}, expected a number or two lists")
    left, right = [d if isinstance(d, (tuple, list)) else (d,) for d in dims]
    if len(left) != len(right):
        raise ArgumentError(f"tensordot: dims is {dims!r}, expected two lists of one length")
    return (
        sizes.wrap_dims(left, a.ndim, op="tensordot"),
        sizes.wrap_dims(right, b.ndim, op="tensordot"),
    )


def _contracted(a: Operand, b: Operand, left: Ints, right: Ints) -> Operand:
    kept_a = tuple([i for i in range(a.ndim) if i not in left])
    kept_b = tuple([j for j in range(b.ndim) if j not in right])
    shape_a, shape_b = _sizes_at(a, kept_a), _sizes_at(b, kept_b)
    inner = sizes.numel(_sizes_at(a, left))
    matrix_a = a.permute(kept_a + left).reshape((sizes.numel(shape_a), inner))
    matrix_b = b.permute(right + kept_b).reshape((inner, sizes.numel(shape_b)))
    return matrix_a.matmul(matrix_b).reshape(shape_a + shape_b)


def _sizes_at(tensor: Operand, dims: Ints) -> Ints:
    return tuple([tensor.shape[i] for i in dims])


@composite("inner(Tensor self, Tensor other) -> Tensor")
def inner(self: Operand, other: Operand) -> Operand:
    """The sum of products over the last dimensions; with a 0-d operand the plain product."""
    if not self.ndim or not other.ndim:
        return self * other
    check_one_dtype("inner", self.meta, other.meta)
    if self.shape[-1] != other.shape[-1]:
        raise ShapeError(
            f"inner: the last sizes of {self.shape} and {other.shape} differ, expected one size"
        )
    return tensordot(self, other, ((-1,), (-1,)))


# --------------------------------------------------------------------------- chains of matrices
@composite(is_method=False)
def chain_matmul(*matrices: Operand) -> Operand:
    """The product of matrices, multiplied in the cheapest order."""
    for k, matrix in enumerate(matrices):
        if matrix.ndim != 2:
            raise ShapeError(
                f"chain_matmul: matrix {k} has shape {matrix.shape}, expected 2 dimensions"
            )
    if not matrices:
        raise ArgumentError("chain_matmul: there are 0 matrices, expected at least 1")
    return matrices[0].clone() if len(matrices) == 1 else _chained("chain_matmul", matrices)


@composite("linalg_multi_dot(Tensor[] tensors) -> Tensor", is_method=False)
def linalg_multi_dot(tensors: Sequence[Operand]) -> Operand:
    """The product of matrices in the cheapest order; the first and the last may be vectors."""
    if len(tensors) < 2:
        raise ArgumentError(
            f"linalg_multi_dot: the number of tensors is {len(tensors)}, expected at least 2"
        )
    for k, tensor in enumerate(tensors):
        ranks = (1, 2) if k in (0, len(tensors) - 1) else (2,)
        if tensor.ndim not in ranks:
            raise ShapeError(
                f"linalg_multi_dot: tensor {k} has shape {tensor.shape}, expected "
                f"{' or '.join(map(str, ranks))} dimensions"
            )
    return _chained("linalg_multi_dot", tensors)


def _chained(op: str, tensors: Sequence[Operand]) -> Operand:
    """The product of a chain; a vector at its ends counts as a row or a column, and goes."""
    for before, after in pairwise(tensors):
        check_one_dtype(op, before.meta, after.meta)
        if before.shape[-1] != after.shape[0]:
            raise ShapeError(
                f"{op}: neighbors have shapes {before.shape} and {after.shape}, expected equal "
                "inner sizes"
            )
    first, last = tensors[0], tensors[-1]
    matrices = list(tensors)
    if first.ndim == 1:
        matrices[0] = first.unsqueeze(0)
    if last.ndim == 1:
        matrices[-1] = last.unsqueeze(1)
    splits = _best_splits([matrices[0].shape[0], *[m.shape[1] for m in matrices]])
    product = _in_order(matrices, splits, 0, len(matrices) - 1)
    return product.reshape(first.shape[:-1] + last.shape[1:])


def _in_order(
    matrices: list[Operand], splits: dict[tuple[int, int], int], i: int, j: int
) -> Operand:
    if i == j:
        return matrices[i]
    at = splits[i, j]
    return _in_order(matrices, splits, i, at).matmul(_in_order(matrices, splits, at + 1, j))


def _best_splits(p: Sequence[int]) -> dict[tuple[int, int], int]:
    """For each part (i, j) of a chain after which matrix to split it, fewest multiplications first.

    Matrix i has shape (p[i], p[i + 1]). Source: Cormen et al., "Introduction to algorithms", 15.2.
    """
    count = len(p) - 1
    cost = {(i, i): 0 for i in range(count)}
    splits: dict[tuple[int, int], int] = {}
    for length in range(1, count):
        for i in range(count - length):
            j = i + length
            costs = [cost[i, k] + cost[k + 1, j] + p[i] * p[k + 1] * p[j + 1] for k in range(i, j)]
            cost[i, j] = min(costs)
            splits[i, j] = i + costs.index(cost[i, j])
    return splits


# -------------------------------------------------------------------------------------- einsum
@composite(is_method=False)
def einsum(equation: str, *operands: Any) -> Operand:
    """The sum of products that the equation names, such as "bij,bjk->bik"; "..." for the rest.

    Of more than two operands the pair is multiplied first that is cheapest. Operands may be given
    in a list.
    """
    given = (
        operands[0] if len(operands) == 1 and isinstance(operands[0], (tuple, list)) else operands
    )
    if not isinstance(equation, str) or not given or not all(hasattr(t, "meta") for t in given):
        raise ArgumentError(
            f"einsum: the arguments are {_kinds((equation, *given))}, expected an equation, a str, "
            "and tensors"
        )
    found = parsed(equation, [t.ndim for t in given])
    for tensor in given[1:]:
        check_one_dtype("einsum", given[0].meta, tensor.meta)
    return _summed(found, [_aligned(found, k, t) for k, t in enumerate(given)])


def _kinds(values: Sequence[object]) -> str:
    return ", ".join(type(value).__name__ for value in values)


def _aligned(equation: Equation, k: int, tensor: Operand) -> Operand:
    """The operand with one dimension for each name of the equation, of size 1 where it has none."""
    names = list(equation.operands[k])
    for name in dict.fromkeys(names):
        while names.count(name) > 1:  # a name twice is the diagonal, which comes last
            i = names.index(name)
            j = names.index(name, i + 1)
            if tensor.shape[i] != tensor.shape[j]:
                raise ShapeError(
                    f"einsum: operand {k} of shape {tensor.shape} has the name {name!r} for sizes "
                    f"{tensor.shape[i]} and {tensor.shape[j]}, expected one size"
                )
            tensor = tensor.diagonal(0, i, j)
            del names[j], names[i]
            names.append(name)
    order = tuple([names.index(name) for name in equation.order if name in names])
    tensor = tensor.permute(order)
    for at, name in enumerate(equation.order):
        if name not in names:
            tensor = tensor.unsqueeze(at)
    return tensor


def _summed(equation: Equation, aligned: Sequence[Operand]) -> Operand:
    """The product of operands of equal rank, summed over the dimensions after the result's."""
    shapes = [t.shape for t in aligned]
    sizes.needed(_broadcast, *shapes)
    kept, rank = equation.kept, len(equation.order)
    if len(aligned) == 1:
        return aligned[0].sum(tuple(range(kept, rank))) if rank > kept else aligned[0]
    path = contraction_path(shapes, kept)
    uses = [0] * kept + [sum(bool(s[d] != 1) for s in shapes) for d in range(kept, rank)]
    for i, j in path:
        a, b = aligned[i], aligned[j]
        rest = [t for k, t in enumerate(aligned) if k not in (i, j)]
        aligned = [*rest, _pair(a, b, kept, uses)]
    return aligned[0].reshape(aligned[0].shape[:kept])


def _broadcast(*shapes: Ints) -> Ints:
    """Raises ShapeError where the operands do not fit."""
    return sizes.broadcast_shapes(*shapes, op="einsum")


def _pair(a: Operand, b: Operand, kept: int, uses: list[int]) -> Operand:
    """The product of two operands, summed over the dimensions that no other operand has.

    `uses` counts the operands that have each dimension that is summed, and is brought up to date.
    """
    both: list[int] = []
    alone: tuple[list[int], list[int]] = ([], [])
    for dim in range(kept, len(uses)):
        wide_a, wide_b = [t.shape[dim] != 1 for t in (a, b)]
        if wide_a and wide_b:
            uses[dim] -= 1
            if uses[dim] == 1:
                both.append(dim)
                uses[dim] = 0
        elif uses[dim] == 1 and (wide_a or wide_b):
            alone[0 if wide_a else 1].append(dim)
            uses[dim] = 0
    a = a.sum(tuple(alone[0]), True) if alone[0] else a
    b = b.sum(tuple(alone[1]), True) if alone[1] else b
    return _product(a, b, tuple(both)) if both else a * b


def _product(a: Operand, b: Operand, summed: Ints) -> Operand:
    """The product summed over `summed`, those dimensions kept with size 1, as one `bmm`."""
    swaps, batch, left, right = _grouped(*_ones(a.shape, b.shape, summed), summed)
    a, b = (b, a) if swaps else (a, b)
    made = (*batch, *left, *summed, *right)
    shape = [*_sizes_at(a, batch + left), *[1] * len(summed), *_sizes_at(b, right)]
    count, inner = sizes.numel(_sizes_at(a, batch)), sizes.numel(_sizes_at(a, summed))
    rows, columns = sizes.numel(_sizes_at(a, left)), sizes.numel(_sizes_at(b, right))
    first = a.permute(batch + left + summed + right).reshape((count, rows, inner))
    second = b.permute(batch + summed + right + left).reshape((count, inner, columns))
    product = first.matmul(second).reshape(shape)
    return product.permute(tuple([made.index(dim) for dim in range(a.ndim)]))


def _ones(a: Ints, b: Ints, summed: Ints) -> tuple[Bools, Bools]:
    """Which sizes of the operands are taken as 1: those of which the product's strides tell it."""
    ones_a, ones_b = [tuple([sizes.always_equal(n, 1) for n in shape]) for shape in (a, b)]
    for dim in range(len(a)):
        if sizes.needed(_lies_alike, a, b, summed, ones_a, ones_b):
            break
        ones_a = (*ones_a[:dim], bool(a[dim] == 1), *ones_a[dim + 1 :])
        ones_b = (*ones_b[:dim], bool(b[dim] == 1), *ones_b[dim + 1 :])
    return ones_a, ones_b


def _grouped(ones_a: Bools, ones_b: Bools, summed: Ints) -> tuple[bool, Ints, Ints, Ints]:
    """Whether the operands are swapped, and then the dimensions that are kept: those of both, of
    the first and of the second. They are given by which sizes are 1."""
    batch: Ints = ()
    left: Ints = ()
    right: Ints = ()
    for dim, (one_a, one_b) in enumerate(zip(ones_a, ones_b, strict=True)):
        if dim not in summed:
            if not one_a and not one_b:
                batch += (dim,)
            elif not one_a:
                left += (dim,)
            else:
                right += (dim,)
    # Swapped where that leaves the result's dimensions in the order in which they lie in memory.
    if left and right and right[-1] < left[0]:
        return True, batch, right, left
    return False, batch, left, right


def _lies_alike(a: Ints, b: Ints, summed: Ints, ones_a: Bools, ones_b: Bools) -> bool:
    """Whether the product has the strides that it has where sizes are told from 1, if only these
    are taken as 1."""
    asked = [tuple([bool(n == 1) for n in shape]) for shape in (a, b)]
    found, exact = [_lies(a, b, summed, *ones) for ones in ((ones_a, ones_b), asked)]
    return sizes.same_shape(found, exact)


def _lies(a: Ints, b: Ints, summed: Ints, ones_a: Bools, ones_b: Bools) -> Ints:
    """The strides of the product."""
    swaps, batch, left, right = _grouped(ones_a, ones_b, summed)
    a, b = (b, a) if swaps else (a, b)
    made = (*batch, *left, *summed, *right)
    lies = [*[a[i] for i in batch + left], *[1] * len(summed), *[b[i] for i in right]]
    stride = layout.contiguous_strides(tuple(lies))
    return tuple([stride[made.index(dim)] for dim in range(len(a))])
