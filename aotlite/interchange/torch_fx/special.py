"""The ops that no row of the table expresses, as calls of PyTorch's: `WRITERS`.

Their counterpart in the other direction is `forms`. Spec: `specs/torch_fx.md`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, Protocol

from aotlite.ir.graph import Node
from aotlite.ir.meta import TensorMeta


class FxWriter(Protocol):
    """What the forms below ask of the writer of a torch.fx graph."""

    aten: Any

    def call(self, target: Any, *args: Any, **kwargs: Any) -> Any: ...
    def restrided(self, made: Any, meta: TensorMeta) -> Any: ...
    def place(self, made: Any, offset: int) -> Any: ...


Write = Callable[[FxWriter, Node, tuple[Any, ...]], Any]


def _getitem(w: FxWriter, node: Node, args: tuple[Any, ...]) -> Any:
    return w.call(operator.getitem, *args)


def _as_strided(w: FxWriter, node: Node, args: tuple[Any, ...]) -> Any:
    x, size, stride, offset = args
    return w.call(w.aten.as_strided.default, x, size, stride, w.place(x, offset))


def _as_strided_scatter(w: FxWriter, node: Node, args: tuple[Any, ...]) -> Any:
    x, part, size, stride, offset = args
    place = w.place(x, offset)
    return w.call(w.aten.as_strided_scatter.default, x, part, size, stride, place)


def _positions(indices: tuple[Any, ...], dims: tuple[int, ...]) -> list[Any]:
    """PyTorch's list of indices: None for a whole dimension."""
    found = dict(zip(dims, indices, strict=True))
    return [found.get(dim) for dim in range(max(dims) + 1)]


def _index(w: FxWriter, node: Node, args: tuple[Any, ...]) -> Any:
    x, indices, dims = args
    return w.call(w.aten.index.Tensor, x, _positions(indices, dims))


def _index_put(w: FxWriter, node: Node, args: tuple[Any, ...]) -> Any:
    x, indices, dims, values, accumulate = args
    target = getattr(w.aten, node.target.name).default
    return w.call(target, x, _positions(indices, dims), values, *([True] if accumulate else []))


def _restride(w: FxWriter, node: Node, args: tuple[Any, ...]) -> Any:
    return w.restrided(args[0], node.meta)  # type: ignore[arg-type]


def _arange_of(w: FxWriter, node: Node, args: tuple[Any, ...]) -> Any:
    count, start, step, dtype, device = args
    whole = type(start) is type(step) is int or not count
    between = count if whole else count - 0.5
    named = {"dtype": dtype, "device": device}
    given = {name: value for name, value in named.items() if value is not None}
    return w.call(w.aten.arange.start_step, start, start + between * step, step, **given)


def _convolution_backward(
    w: FxWriter, image: Any, weight: Any, grad: Any, window: tuple[Any, ...], number: int
) -> Any:
    stride, padding, dilation, groups = window
    mask = [number == k for k in range(3)]
    both = w.call(
        w.aten.convolution_backward.default,
        *(grad, image, weight, None, _pair(stride), _pair(padding), _pair(dilation)),
        *(False, (0, 0), groups, mask),
    )
    return w.call(operator.getitem, both, number)


def _pair(numbers: tuple[int, ...]) -> tuple[int, ...]:
    return numbers * 2 if len(numbers) == 1 else numbers


def _conv2d_input(w: FxWriter, node: Node, args: tuple[Any, ...]) -> Any:
    grad, weight, size, *window = args
    image = w.call(w.aten.new_empty.default, grad, size)
    return _convolution_backward(w, image, weight, grad, tuple(window), 0)


def _conv2d_weight(w: FxWriter, node: Node, args: tuple[Any, ...]) -> Any:
    grad, image, size, *window = args
    weight = w.call(w.aten.new_empty.default, grad, size)
    return _convolution_backward(w, image, weight, grad, tuple(window), 1)


def _pad_backward(w: FxWriter, node: Node, args: tuple[Any, ...]) -> Any:
    grad, size, padding = args
    name = f"{node.target.name.removesuffix('_backward')}{len(padding) // 2}d_backward"
    image = w.call(w.aten.new_empty.default, grad, size)
    return w.call(getattr(w.aten, name).default, grad, image, padding)


WRITERS: dict[str, Write] = {
    "getitem": _getitem,
    "as_strided": _as_strided,
    "as_strided_scatter": _as_strided_scatter,
    "index": _index,
    "index_put": _index_put,
    "index_put_": _index_put,
    "restride": _restride,
    "arange_of": _arange_of,
    "conv2d_input": _conv2d_input,
    "conv2d_weight": _conv2d_weight,
    "reflection_pad_backward": _pad_backward,
    "replication_pad_backward": _pad_backward,
}
"""Op -> the calls that compute it."""
