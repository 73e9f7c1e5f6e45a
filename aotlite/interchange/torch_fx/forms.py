"""The overloads of aten that no row of the table expresses, as ops: `READERS`.

Their counterpart in the other direction is `special`. Spec: `specs/torch_fx.md`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Protocol

import attrs

from aotlite.ir.errors import UnsupportedError
from aotlite.ir.geometry.memory_format import preserve_format
from aotlite.ir.graph.builder import Builder
from aotlite.ir.meta import TensorMeta
from aotlite.ir.op.composite import COMPOSITES

Arguments = dict[str, Any]


@attrs.frozen(eq=False)
class Unwritten:
    """New memory whose content nobody may read, as of `torch.ops.aten.empty`."""

    meta: TensorMeta


class FxReader(Protocol):
    """What the forms below ask of the reader of a torch.fx graph."""

    builder: Builder
    made: Any

    def emit(self, op: str, *args: Any, **kwargs: Any) -> Any: ...
    def offset_of(self, name: str) -> int: ...
    def meta_made(self) -> TensorMeta: ...
    def copied(self, value: Any, stride: tuple[int, ...]) -> Any: ...


Read = Callable[[FxReader, Arguments], Any]


def _as_strided(r: FxReader, given: Arguments) -> Any:
    x, place = given["self"], given["storage_offset"]
    offset = 0 if place is None else place - r.offset_of("self")
    return r.emit("as_strided", x, given["size"], given["stride"], offset)


def _as_strided_scatter(r: FxReader, given: Arguments) -> Any:
    x, place = given["self"], given["storage_offset"]
    offset = 0 if place is None else place - r.offset_of("self")
    return r.emit("as_strided_scatter", x, given["src"], given["size"], given["stride"], offset)


def _positions(given: Arguments) -> tuple[tuple[Any, ...], tuple[int, ...]]:
    pairs = [(x, dim) for dim, x in enumerate(given["indices"]) if x is not None]
    for index, _ in pairs:
        if index.meta.dtype.name in ("bool", "uint8"):
            raise UnsupportedError(
                "from_fx: an index is a mask, by which the shape of the result depends on values, "
                "expected indices of integers"
            )
    return tuple([x for x, _ in pairs]), tuple([dim for _, dim in pairs])


def _index(r: FxReader, given: Arguments) -> Any:
    return r.emit("index", given["self"], *_positions(given))


def _index_put(ending: str) -> Read:
    def read(r: FxReader, given: Arguments) -> Any:
        values = given["values"], given["accumulate"]
        return r.emit("index_put" + ending, given["self"], *_positions(given), *values)

    return read


def _unwritten(r: FxReader, given: Arguments) -> Any:
    made, like = r.meta_made(), given.get("self")
    if not made.numel and like is not None and not isinstance(like, Unwritten):
        if (made.shape, made.dtype) == (like.meta.shape, like.meta.dtype):  # a copy of nothing
            return r.copied(like, made.stride)
    return Unwritten(made)


def _copy(r: FxReader, given: Arguments) -> Any:
    target, source = given["self"], given["src"]
    if type(target) is Unwritten and not isinstance(source, Unwritten):
        same = target.meta.shape == source.meta.shape and target.meta.dtype is source.meta.dtype
        if same and target.meta.device is source.meta.device:
            return r.copied(source, target.meta.stride)
    return NotImplemented


def _clone(r: FxReader, given: Arguments) -> Any:
    x, form = given["self"], given["memory_format"]
    made = r.emit("clone", x)
    if form is None or form is preserve_format:
        return made
    wanted = r.meta_made()
    return made if made.meta is wanted else r.emit("restride", x, wanted.stride)


def _to_copy(r: FxReader, given: Arguments) -> Any:
    x, form, made = given["self"], given["memory_format"], given["self"]
    if given["device"] is not None:
        made = r.emit("to_device", made, given["device"])
    if given["dtype"] is not None:
        made = r.emit("cast", made, given["dtype"])
    if made is x:
        return r.emit("clone", x)
    is_same = form is None or form is preserve_format
    return made if is_same else r.emit("restride", made, r.meta_made().stride)


def _arange(r: FxReader, given: Arguments) -> Any:
    start, step = given.get("start", 0), given.get("step", 1)
    count = max(0, math.ceil((given["end"] - start) / step))
    dtype = given["dtype"]
    if dtype is None and "start" not in given:
        dtype = r.meta_made().dtype
    return r.emit("arange_of", count, start, step, dtype=dtype, device=given["device"])


def _scalar_tensor(r: FxReader, given: Arguments) -> Any:
    return r.emit("full", (), given["s"], dtype=r.meta_made().dtype, device=given["device"])


def _convolution(r: FxReader, given: Arguments) -> Any:
    image, weight, bias = given["input"], given["weight"], given["bias"]
    stride, padding, dilation = given["stride"], given["padding"], given["dilation"]
    rank, groups = len(image.meta.shape) - 2, given["groups"]
    if rank not in (1, 2):
        return NotImplemented
    if given["transposed"]:
        transposed = COMPOSITES[f"conv_transpose{rank}d"].call
        more = given["output_padding"], groups, dilation
        return transposed(image, weight, bias, stride, padding, *more)
    if rank == 2:
        return r.emit("conv2d", image, weight, bias, stride, padding, dilation, groups)
    return COMPOSITES["conv1d"].call(image, weight, bias, stride, padding, dilation, groups)


def _first_alone(name: str, *parameters: str) -> Read:
    """An overload of which only the first of several results is read, by the op of that result."""

    def read(r: FxReader, given: Arguments) -> Any:
        named = {each: given[each] for each in parameters}
        return r.emit(name, **named), *[None] * (len(r.made) - 1)

    return read


def _convolution_backward(r: FxReader, given: Arguments) -> Any:
    grad, image, weight = given["grad_output"], given["input"], given["weight"]
    rank = len(grad.meta.shape) - 2
    if given["transposed"] or rank not in (1, 2):
        return NotImplemented
    steps = [given["stride"], given["padding"], given["dilation"]]
    to_image, to_weight, to_bias = given["output_mask"]
    bias = r.emit("sum", grad, (0, *range(2, rank + 2))) if to_bias else None
    if rank == 1:  # as images of one row
        grad = grad.unsqueeze(2)
        image, weight = [x.unsqueeze(2) if _is_read(x) else x for x in (image, weight)]
        steps = [(first, *step) for first, step in zip((1, 0, 1), steps, strict=True)]
    window = (*steps, given["groups"])
    found = (
        r.emit("conv2d_input", grad, weight, image.meta.shape, *window) if to_image else None,
        r.emit("conv2d_weight", grad, image, weight.meta.shape, *window) if to_weight else None,
    )
    return *[x.squeeze(2) if x is not None and rank == 1 else x for x in found], bias


def _is_read(value: Any) -> bool:
    return not isinstance(value, Unwritten)


def _pad_backward(name: str) -> Read:
    def read(r: FxReader, given: Arguments) -> Any:
        shape = given["self"].meta.shape
        return r.emit(name, given["grad_output"], shape, given["padding"])

    return read


def _reshape(r: FxReader, given: Arguments) -> Any:
    return given["self"].reshape(given["shape"])


READERS: dict[str, Read] = {
    "as_strided.default": _as_strided,
    "as_strided_scatter.default": _as_strided_scatter,
    "index.Tensor": _index,
    "_unsafe_index.Tensor": _index,
    "index_put.default": _index_put(""),
    "_unsafe_index_put.default": _index_put(""),
    "index_put_.default": _index_put("_"),
    "new_empty.default": _unwritten,
    "new_empty_strided.default": _unwritten,
    "empty.memory_format": _unwritten,
    "empty_strided.default": _unwritten,
    "empty_like.default": _unwritten,
    "copy.default": _copy,
    "clone.default": _clone,
    "_to_copy.default": _to_copy,
    "arange.default": _arange,
    "arange.start": _arange,
    "arange.start_step": _arange,
    "scalar_tensor.default": _scalar_tensor,
    "convolution.default": _convolution,
    "_linalg_solve_ex.default": _first_alone("linalg_solve", "A", "B", "left"),
    "linalg_inv_ex.default": _first_alone("linalg_inv", "A"),
    "linalg_cholesky_ex.default": _first_alone("linalg_cholesky", "self", "upper"),
    "_linalg_det.default": _first_alone("linalg_det", "A"),
    "convolution_backward.default": _convolution_backward,
    "reshape.default": _reshape,
    **{
        f"{kind}_pad{n}d_backward.default": _pad_backward(f"{kind}_pad_backward")
        for kind in ("reflection", "replication")
        for n in (1, 2, 3)
    },
}
"""Overload -> the ops that compute it; NotImplemented where the table and decompositions decide."""

KEEPS_UNWRITTEN = {"copy.default", "convolution_backward.default"} | {
    name for name in READERS if "_pad" in name or "empty" in name
}
"""The overloads that read but the shape of an operand, so that it may be unwritten."""

CHECKS = {"_assert_tensor_metadata.default", "_linalg_check_errors.default"}
"""Overloads that compute nothing: what they check of metas is checked here as well."""
