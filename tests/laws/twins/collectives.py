"""What collectives of N ranks are in PyTorch, written with ops of one process."""

from __future__ import annotations

import functools
from typing import Any

from tests.laws.twins.torch_twins import twins


def _total(torch: Any, tensors: Any, op: str) -> Any:
    dtype = tensors[0].dtype
    if dtype is torch.bool and op not in ("max", "min"):
        raise RuntimeError("bool is no number")
    if dtype.is_floating_point and dtype.itemsize == 1:
        raise TypeError("8-bit floats are for storage: PyTorch reduces none")
    if op == "avg":
        return torch.stack(list(tensors)).mean(0)
    if op == "sum":
        return torch.stack(list(tensors)).sum(0, dtype=dtype)
    combine = {"product": torch.mul, "max": torch.maximum, "min": torch.minimum}[op]
    return functools.reduce(combine, tensors)


def _all_reduce(torch: Any, tensors: Any, op: str) -> Any:
    return tuple(_dense(torch, _total(torch, tensors, op)) for _ in tensors)


def _blocks(torch: Any, tensor: Any, count: int, dim: int) -> list[Any]:
    sizes = [tensor.shape[dim] // count] * count
    return list(torch.split(tensor, sizes, dim))


def _reduce_scatter(torch: Any, tensors: Any, dim: int, op: str) -> Any:
    blocks = _blocks(torch, _total(torch, tensors, op), len(tensors), dim)
    return tuple(_dense(torch, block) for block in blocks)


def _all_to_all(torch: Any, tensors: Any, split_dim: int, concat_dim: int) -> Any:
    count = len(tensors)
    sent = [_blocks(torch, each, count, split_dim) for each in tensors]
    joined = (torch.cat([blocks[r] for blocks in sent], concat_dim) for r in range(count))
    return tuple(_dense(torch, each) for each in joined)


def _dense(torch: Any, tensor: Any) -> Any:
    return tensor.clone(memory_format=torch.contiguous_format)


FACES: dict[str, Any] = {"all_reduce()": _all_reduce, "reduce_scatter()": _reduce_scatter}

twins(
    all_reduce=_all_reduce,
    all_reduce_nonlinear=_all_reduce,
    all_gather=lambda torch, tensors, dim: tuple(
        _dense(torch, torch.cat(list(tensors), dim)) for _ in tensors
    ),
    reduce_scatter=_reduce_scatter,
    reduce_scatter_nonlinear=_reduce_scatter,
    all_to_all=_all_to_all,
    broadcast=lambda torch, tensors, source: tuple(
        _dense(torch, torch.stack(list(tensors))[source]) for _ in tensors
    ),
    **FACES,
    wait=lambda torch, tensors: tuple(_dense(torch, each) for each in tensors),
)
