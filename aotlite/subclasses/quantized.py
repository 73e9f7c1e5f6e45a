"""`QuantizedTensor`: int8 values or 8-bit floats, times a scale.

It stands for the dequantized tensor, `(values - zero_point) * scale`. Spec: `specs/subclasses.md`.
"""

from __future__ import annotations

from typing import Any

from aotlite.eager.base.modes import no_grad
from aotlite.eager.base.tensor import Tensor
from aotlite.ir.dtypes import DType, float8_e4m3fn, float8_e5m2, int8
from aotlite.subclasses.encoded import EncodedTensor, View, wrong

RANGES: dict[DType, tuple[float, float]] = {
    int8: (-128.0, 127.0),
    float8_e4m3fn: (-448.0, 448.0),
    float8_e5m2: (-57344.0, 57344.0),
}
"""dtype of the values -> (least, greatest) number that it represents."""


class QuantizedTensor(EncodedTensor):
    """8-bit values, a scale, and for int8 optionally a zero point.

    The scale is one number, or one for each position of a dimension ("per channel"); then it has as
    many dimensions as the values, of size 1 or theirs. The zero point is int8 and has the scale's
    shape. Ops return dense results, but `clone` a quantized one. Views share the values' memory.
    In-place ops quantize their result with the present scale: to the nearest value, ties to even,
    clamped to the range.

    >>> import aotlite as al
    >>> x = QuantizedTensor.quantize(al.tensor([0.5, -1.0, 99.0]), al.tensor(0.25))
    >>> x.values.tolist(), x.decode().tolist()
    ([2, -4, 127], [0.5, -1.0, 31.75])
    >>> x[1].add_(0.6).item(), (x + 1).tolist()
    (-0.5, [1.5, 0.5, 32.75])
    >>> rows = QuantizedTensor.from_dense(al.tensor([[1.27, 0.0], [127.0, 2.0]]), axis=0)
    >>> rows.scale.flatten().tolist() == al.tensor([0.01, 1.0]).tolist(), rows.t().shape
    (True, (2, 2))
    """

    values: Tensor
    scale: Tensor
    zero_point: Tensor | None

    def __new__(
        cls,
        values: Tensor,
        scale: Tensor,
        zero_point: Tensor | None = None,
        *,
        requires_grad: bool = False,
    ) -> QuantizedTensor:
        _check(cls, values, scale, zero_point)
        made: Any = Tensor._make_wrapper_subclass(
            cls, values.shape, values.stride(), dtype=scale.dtype, device=values.device
        )
        made.values, made.scale, made.zero_point = values, scale, zero_point
        return made.requires_grad_() if requires_grad else made

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        names = ["values", "scale"]
        return names if self.zero_point is None else [*names, "zero_point"], None

    @classmethod
    def __tensor_unflatten__(
        cls, inner: dict[str, Tensor], spec: None, outer_size: object, outer_stride: object
    ) -> QuantizedTensor:
        return cls(inner["values"], inner["scale"], inner.get("zero_point"))

    @classmethod
    def quantize(
        cls,
        dense: Tensor,
        scale: Tensor,
        zero_point: Tensor | None = None,
        *,
        dtype: DType = int8,
    ) -> QuantizedTensor:
        """Quantizes a dense tensor with this scale, to the nearest values of `dtype`."""
        if dtype not in RANGES:
            raise wrong(cls, "dtype", dtype, _KNOWN)
        with no_grad():
            return cls(_quantized(dense, scale, zero_point, dtype), scale, zero_point)

    @classmethod
    def from_dense(
        cls, dense: Tensor, *, dtype: DType = int8, axis: int | None = None, affine: bool = False
    ) -> QuantizedTensor:
        """Quantizes a dense tensor with a scale that maps its largest magnitude to the range's end.

        One scale for all, or one for each position of dimension `axis`. `affine`, for int8: maps
        the range from the least number, or 0, to the greatest, with a zero point.
        """
        if dtype not in RANGES or (affine and dtype is not int8):
            raise wrong(cls, "dtype", dtype, "int8" if affine else _KNOWN)
        if not dense.dtype.is_floating_point:
            raise wrong(cls, "dense", dense.meta, "a tensor of floats")
        with no_grad():
            scale, zero = _affine(dense, axis) if affine else (_span(dense, axis, dtype), None)
            return cls.quantize(dense, scale, zero, dtype=dtype)

    def decode(self) -> Tensor:
        """The numbers, dense: `(values - zero_point) * scale`."""
        steps = self.values.to(self.dtype)
        if self.zero_point is not None:
            steps = steps - self.zero_point.to(self.dtype)
        return steps * self.scale

    def _encode(self, value: Tensor) -> None:
        self.values.copy_(_quantized(value, self.scale, self.zero_point, self.values.dtype))

    def _viewed(self, view: View, rest: tuple[object, ...]) -> object:
        op: Any = view.op  # type: ignore[attr-defined]
        if getattr(op, "recasts", False) or (op.name == "as_strided" and self.scale.dim()):
            return NotImplemented

        def along(part: Tensor | None) -> Tensor | None:
            if part is None or not part.dim():
                return part
            return view(part.expand(self.shape), *rest)

        return type(self)(view(self.values, *rest), along(self.scale), along(self.zero_point))  # type: ignore[arg-type]

    @classmethod
    def __tensor_dispatch__(
        cls, func: View, types: object, args: tuple[object, ...], kwargs: dict[str, object]
    ) -> Any:
        x = args[0]
        if func.__name__ == "clone" and isinstance(x, QuantizedTensor):
            zero = None if x.zero_point is None else x.zero_point.clone()
            return type(x)(x.values.clone(), x.scale.clone(), zero)
        return super().__tensor_dispatch__(func, types, args, kwargs)


_KNOWN = "int8, float8_e4m3fn or float8_e5m2"


def _quantized(value: Tensor, scale: Tensor, zero_point: Tensor | None, dtype: DType) -> Tensor:
    steps = value.to(scale.dtype) / scale
    if dtype is int8:
        steps = steps.round()
    if zero_point is not None:
        steps = steps + zero_point.to(scale.dtype)
    return steps.clamp(*RANGES[dtype]).to(dtype)


def _extent(dense: Tensor, axis: int | None, reduce: str) -> Tensor:
    """The greatest or least number, for each position of the axis; 0 for none."""
    others = [i for i in range(dense.dim()) if axis is None or i != axis % dense.dim()]
    if not dense.numel():
        whole = range(dense.dim()) if axis is not None else ()
        return dense.new_zeros([1 if i in others else dense.shape[i] for i in whole])
    if axis is None:
        return getattr(dense, reduce)()
    return getattr(dense, reduce)(others, True) if others else dense.clone()


def _not_zero(scale: Tensor) -> Tensor:
    return scale.masked_fill(scale == 0, 1.0)


def _span(dense: Tensor, axis: int | None, dtype: DType) -> Tensor:
    return _not_zero(_extent(dense.abs(), axis, "amax") / RANGES[dtype][1])


def _affine(dense: Tensor, axis: int | None) -> tuple[Tensor, Tensor]:
    least = _extent(dense, axis, "amin").clamp(max=0.0)
    scale = _not_zero((_extent(dense, axis, "amax").clamp(min=0.0) - least) / 255.0)
    return scale, (-128.0 - least / scale).round().clamp(*RANGES[int8]).to(int8)


def _check(cls: type[Tensor], values: Tensor, scale: Tensor, zero_point: Tensor | None) -> None:
    for name, part in {"values": values, "scale": scale, "zero_point": zero_point}.items():
        if not isinstance(part, Tensor) and not (part is None and name == "zero_point"):
            raise wrong(cls, name, f"a {type(part).__name__}", "a tensor")
    if values.dtype not in RANGES:
        raise wrong(cls, "values", values.meta, f"a tensor of {_KNOWN}")
    if not scale.dtype.is_floating_point or scale.dtype in RANGES:
        raise wrong(cls, "scale", scale.meta, "a tensor of floats of 16 bits or more")
    fits = [n in (1, size) for n, size in zip(scale.shape, values.shape, strict=False)]
    if scale.dim() not in (0, values.dim()) or not all(fits):
        shapes = f"no dimensions, or those of values, {tuple(values.shape)}, each of that size or 1"
        raise wrong(cls, "scale", scale.meta, shapes)
    if zero_point is not None and (
        values.dtype is not int8 or zero_point.dtype is not int8 or zero_point.shape != scale.shape
    ):
        expected = f"int8 of shape {tuple(scale.shape)}, beside int8 values"
        raise wrong(cls, "zero_point", zero_point.meta, expected)
