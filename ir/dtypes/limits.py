"""`finfo` and `iinfo`: the numerical limits of dtypes, as in PyTorch.

Ground floor: imports dtypes and errors only.
"""

from __future__ import annotations

from functools import cache

import attrs
import ml_dtypes
import numpy as np

from aotlite.ir.dtypes import BOOL, DType, as_dtype, default_dtype
from aotlite.ir.errors import DTypeError

__all__ = ["finfo", "iinfo"]


@attrs.frozen(init=False)
class finfo:
    """The limits of a floating dtype; for a complex one, those of its parts.

    >>> from aotlite.ir.dtypes import float16
    >>> finfo(float16).max, finfo(float16).eps
    (65504.0, 0.0009765625)
    """

    bits: int
    eps: float
    max: float
    min: float
    tiny: float
    """The smallest positive normal number."""
    smallest_normal: float
    resolution: float
    """The decimal digits that are exact, as a power of ten."""
    dtype: str

    def __init__(self, dtype: DType | type = default_dtype) -> None:
        dtype = as_dtype(dtype)
        if not isinstance(dtype, DType) or not dtype.is_differentiable:
            raise DTypeError(f"finfo: dtype is {dtype}, expected a floating or complex one")
        found = _float_limits(dtype.to_real())
        tiny = float(found.smallest_normal)
        self.__attrs_init__(
            int(found.bits),
            float(found.eps),
            float(found.max),
            float(found.min),
            tiny,
            tiny,
            float(f"1e-{found.precision}"),  # from decimal text: exactly PyTorch's number
            dtype.to_real().name,
        )


@cache
def _float_limits(dtype: DType) -> np.finfo:
    native = dtype.numpy.type.__module__ == "numpy"
    found: np.finfo = (np if native else ml_dtypes).finfo(dtype.numpy)
    return found


@attrs.frozen(init=False)
class iinfo:
    """The limits of an integer dtype.

    >>> from aotlite.ir.dtypes import uint8
    >>> iinfo(uint8).min, iinfo(uint8).max
    (0, 255)
    """

    bits: int
    min: int
    max: int
    dtype: str

    def __init__(self, dtype: DType | type) -> None:
        dtype = as_dtype(dtype)
        if not isinstance(dtype, DType) or dtype.is_differentiable or dtype.kind == BOOL:
            raise DTypeError(f"iinfo: dtype is {dtype}, expected an integer one")
        found = np.iinfo(dtype.numpy)  # type: ignore[type-var]
        self.__attrs_init__(int(found.bits), int(found.min), int(found.max), dtype.name)
