"""PyTorch's counterpart of each op, and the table of known differences."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import attrs
import numpy as np

from aotlite.ir import dtypes
from aotlite.ir.dtypes import DType
from aotlite.testing.laws.samples.sample import Sample

WITHOUT_TWIN = {
    "restride": "a copy with given strides: PyTorch has no such op",
    "arange_of": "PyTorch computes the count from the end",
    "unfold_scatter": "PyTorch has only unfold_backward",
    "strided_accumulate": "inside PyTorch's as_strided_backward",
    "conv2d_input": "compared in tests/ir/ops/test_nn.py, through convolution_backward",
    "conv2d_weight": "compared in tests/ir/ops/test_nn.py, through convolution_backward",
    "to_device": "PyTorch's `_to_copy` takes dtype and layout as well",
    "cuda": "PyTorch's CPU build has no CUDA device; compared with `to` in tests/cuda",
}
"""Ops that PyTorch has no counterpart of, and why."""


# --------------------------------------------------------------------------------------- the twins
def twin_of(torch: Any, name: str) -> Callable[..., Any]:
    """PyTorch's function for canonical arguments, keyword-only ones by name."""
    special = _SPECIAL.get(name)
    if special is not None:
        return lambda *args, **kwargs: special(torch, *args, **kwargs)
    aten = getattr(torch.ops.aten, name)
    return aten


def special_twin(name: str) -> Callable[..., Any] | None:
    """The twin that was written for this name, if any."""
    return _SPECIAL.get(name)


def _as_strided(torch: Any, x: Any, size: Any, stride: Any, offset: int) -> Any:
    return torch.as_strided(x, size, stride, x.storage_offset() + offset)


def _as_strided_(torch: Any, x: Any, size: Any, stride: Any, offset: int) -> Any:
    return x.as_strided_(size, stride, x.storage_offset() + offset)


def _as_strided_scatter(torch: Any, x: Any, src: Any, size: Any, stride: Any, offset: int) -> Any:
    return torch.as_strided_scatter(x, src, size, stride, x.storage_offset() + offset)


def _cast(torch: Any, x: Any, dtype: Any) -> Any:
    return x.to(dtype, copy=True)


def _pool(torch: Any, *args: Any) -> Any:
    return torch.nn.functional.max_pool2d(*args, return_indices=True)


_SPECIAL: dict[str, Callable[..., Any]] = {
    "as_strided": _as_strided,
    "hidden_alias": lambda torch, x: x.data,
    "as_strided_": _as_strided_,
    "as_strided_scatter": _as_strided_scatter,
    "cast": _cast,
    "max_pool2d_with_indices": _pool,
    "where": lambda torch, c, a, b: torch.where(c, a, b),
    "full": lambda torch, size, value, dtype, device: torch.full(size, value, dtype=dtype),
    "copy": lambda torch, x, src: torch.ops.aten.copy(x, src),
    "clone": lambda torch, x: x.clone(),
    "squeeze": lambda torch, x, dim: x.squeeze() if dim is None else x.squeeze(dim),
    "squeeze_": lambda torch, x, dim: x.squeeze_() if dim is None else x.squeeze_(dim),
    "conj": lambda torch, x: torch.conj_physical(x),
    "real": lambda torch, x: torch.real(x).clone(),
    "conv2d": lambda torch, *args: torch.nn.functional.conv2d(*args),
    "index_add": lambda torch, x, dim, index, source, alpha: torch.index_add(
        x, dim, index, source, alpha=alpha
    ),
    "index_add_": lambda torch, x, dim, index, source, alpha: x.index_add_(
        dim, index, source, alpha=alpha
    ),
    "gelu": lambda torch, x, tanh: torch.nn.functional.gelu(
        x, approximate="tanh" if tanh else "none"
    ),
    "pow": lambda torch, a, b: torch.pow(a, b),
    "relu_backward": lambda torch, g, r: torch.ops.aten.threshold_backward(g, r, 0),
}


def torch_value(torch: Any, value: Any) -> Any:
    """A canonical argument for PyTorch; arrays become tensors on copies in the same layout."""
    if isinstance(value, np.ndarray):
        return torch_tensor(torch, value)
    if isinstance(value, DType):
        return getattr(torch, value.name)
    if isinstance(value, tuple) and value and isinstance(value[0], np.ndarray):
        return [torch_tensor(torch, item) for item in value]
    return value


def torch_tensor(torch: Any, array: np.ndarray) -> Any:
    steps = tuple(step // array.itemsize for step in array.strides)
    span = 1 + sum((n - 1) * step for n, step in zip(array.shape, steps, strict=True))
    dtype = getattr(torch, str(array.dtype))
    # Two elements before and behind, as our samples have them: windows may look there.
    memory = torch.ones(max(span, 0) + 4, dtype=torch.float32).to(dtype)
    tensor = memory.as_strided(array.shape, steps, 2)
    if array.size:
        source = torch_copy(torch, array)
        if 0 in steps:  # one value an element of memory, and PyTorch writes no repeated ones
            where = tuple(0 if s == 0 else slice(None) for s in steps)
            tensor[where].copy_(source[where])
        else:
            tensor.copy_(source)
    return tensor


def torch_copy(torch: Any, array: np.ndarray) -> Any:
    """A contiguous tensor with the array's values; dtypes that NumPy lacks go by their bits."""
    flat = np.array(array, order="C")  # samples are read-only, and PyTorch warns of that
    if array.dtype.type.__module__ == "numpy":
        return torch.from_numpy(flat)
    bits = torch.from_numpy(flat.view(f"uint{8 * array.itemsize}"))
    return bits.view(getattr(torch, str(array.dtype)))


def numpy_copy(torch: Any, tensor: Any) -> np.ndarray:
    """The values of a PyTorch tensor as an array of the same dtype."""
    tensor = tensor.detach().resolve_conj().resolve_neg().contiguous()
    tensor = tensor.clone() if tensor._is_zerotensor() else tensor
    name = str(tensor.dtype).removeprefix("torch.")
    target = dtypes.by_name(name).numpy
    if target.type.__module__ == "numpy":
        return np.array(tensor.numpy())
    bits = tensor.view(getattr(torch, f"uint{8 * tensor.dtype.itemsize}"))
    return np.array(bits.numpy()).view(target)


# --------------------------------------------------------------------------- known differences
@attrs.frozen
class Difference:
    """Samples of some ops on which we differ from PyTorch in one aspect, and why."""

    ops: tuple[str, ...]
    aspect: str
    """values, dtype, strides, gradient, saves, or call: PyTorch refuses the call."""
    reason: str
    when: Callable[[Sample], bool] = lambda sample: True
    at: Callable[[Sample, np.ndarray, np.ndarray], np.ndarray] | None = None
    """Which elements of our values and PyTorch's may differ; None: every one."""
    everywhere: bool = True
    """Whether it shows on every CPU; PyTorch's results depend on what its vector units can do."""


def _dtype_of(sample: Sample, position: int = 0) -> str:
    return str(getattr(sample.args[position], "dtype", ""))


def _is_complex(sample: Sample) -> bool:
    return _dtype_of(sample).startswith("complex")


DIFFERENCES: list[Difference] = [
    Difference(
        ("copy",),
        "strides",
        "it is the functional form of copy_, which users do not call: dense where PyTorch has gaps",
    ),
    Difference(
        ("copy",), "gradient", "PyTorch's functional form has no derivative; copy_ is compared"
    ),
    Difference(
        ("conj", "real"),
        "strides",
        "PyTorch gives a real tensor back as it is, an op of ours never an operand",
    ),
    Difference(
        ("conj",),
        "aliasing",
        "PyTorch gives a real tensor back as it is, an op of ours never an operand",
    ),
    Difference(
        ("abs_",),
        "call",
        "PyTorch refuses what would leave a complex tensor with no imaginary part",
        _is_complex,
    ),
    Difference(
        ("scatter_add", "scatter_add_"),
        "gradient",
        "PyTorch's fails where the index spans less than src; ours has zeros there",
        lambda sample: sample.args[2].shape != sample.args[3].shape,
    ),
    Difference(
        ("as_strided_scatter",),
        "gradient",
        "PyTorch's counts the offset from the start of the gradient's memory, not the operand's",
    ),
]


def twins(**special: Callable[..., Any]) -> None:
    """Says how PyTorch is called for these ops and composites: `special(torch, *args)`."""
    _SPECIAL.update(special)


def differences(*found: Difference) -> None:
    """Adds lines to the table of known differences."""
    DIFFERENCES.extend(found)


def known(name: str, aspect: str, sample: Sample) -> bool:
    """Whether the table says that this differs."""
    return any(d.at is None for d in _known(name, aspect, sample))


def without_known(name: str, sample: Sample, expected: np.ndarray, got: np.ndarray) -> np.ndarray:
    """PyTorch's values with ours where the table says of single elements that they may differ."""
    for difference in _known(name, "values", sample):
        if difference.at is not None and expected.shape == got.shape:
            with np.errstate(all="ignore"):
                excused = difference.at(sample, got, expected)
            expected = np.where(excused, got, expected)
    return expected


def neither_is_finite(sample: Sample, ours: np.ndarray, theirs: np.ndarray) -> np.ndarray:
    """Elements that are infinite or nan here and in PyTorch."""
    return ~(np.isfinite(ours) | np.isfinite(theirs))


def _known(name: str, aspect: str, sample: Sample) -> list[Difference]:
    return [d for d in DIFFERENCES if name in d.ops and d.aspect == aspect and d.when(sample)]


# The ops by subject; imported last, since they register here.
for _path in sorted(Path(__file__).parent.glob("*.py")):
    import_module(f"tests.laws.twins.{_path.stem}")
