"""How PyTorch is called for the composites of views, and where they differ."""

from __future__ import annotations

from typing import Any

from tests.laws.torch_twins import Difference, differences, twins


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
differences(
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
