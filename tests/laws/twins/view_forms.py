"""How PyTorch is called for the composites of views, and where they differ."""

from __future__ import annotations

from typing import Any

from aotlite.ir.geometry.overlap import has_internal_overlap
from tests.laws.twins.torch_twins import Difference, differences, twins


def _squeeze_copy(torch: Any, x: Any, dim: Any = None) -> Any:
    return torch.squeeze_copy(x) if dim is None else torch.squeeze_copy(x, dim)


def _is_complex(sample: Any) -> bool:
    return bool(sample.args[0].dtype.kind == "c")


twins(
    **{
        "view()": lambda torch, x, *args, **kwargs: x.view(*args, **kwargs),
        "permute()": lambda torch, x, *args, **kwargs: x.permute(*args, **kwargs),
        "expand()": lambda torch, x, *args, **kwargs: x.expand(*args, **kwargs),
        "split()": lambda torch, x, *args, **kwargs: x.split(*args, **kwargs),
        "squeeze_copy": _squeeze_copy,
        "reshape_copy": lambda torch, x, size: torch.ops.aten._reshape_copy(x, size),
    }
)


def _overlaps(sample: Any) -> bool:
    """Whether elements of the first operand overlap, other than by strides of 0."""
    array = sample.args[0]
    steps = tuple(step // array.itemsize for step in array.strides)
    return 0 not in steps and has_internal_overlap(array.shape, steps)


_SCATTERS = ("select_scatter", "slice_scatter", "diagonal_scatter")
_ONE_PLACE = "PyTorch's copy overlaps itself as the operand does; ours has a place for each element"
differences(
    Difference(
        ("narrow_copy",),
        "gradient",
        "PyTorch's fails for a start that counts from the end",
        lambda sample: sample.args[2] < 0,
    ),
    Difference(_SCATTERS, "strides", _ONE_PLACE, _overlaps),
    Difference(("select_scatter", "copy"), "values", _ONE_PLACE, _overlaps),
    Difference(
        ("as_strided_scatter",),
        "call",
        "the window leaves the operand's own elements; PyTorch writes between them",
        _overlaps,
    ),
    Difference(
        ("H", "mH", "adjoint"),
        "strides",
        "TEN-35: the conjugate is a copy, which has no gaps; PyTorch's is a view",
        _is_complex,
    ),
    Difference(
        ("hidden_alias",), "aliasing", "TEN-5: the memory is shared; a storage object counts writes"
    ),
    Difference(
        ("detach_copy",), "gradient", "PyTorch's requires grad, and its backward always raises"
    ),
    Difference(
        ("H", "mH", "adjoint"),
        "aliasing",
        "TEN-35: the conjugate is a copy, PyTorch's a view with a bit set",
        _is_complex,
    ),
)
