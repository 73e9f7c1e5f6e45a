"""Methods that read a tensor's elements: Python numbers, lists and NumPy arrays.

A base class of `Tensor`. Under a capture tensors have no elements, so these methods raise. Rule:
CAP-13. Spec: `specs/s1_capture.md`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from aotlite.eager.base.devices import not_on_host
from aotlite.eager.base.modes import STATE
from aotlite.eager.base.storage import Storage
from aotlite.eager.base.unsupported import forbid_capture, forbid_number, known_value, several
from aotlite.ir.dtypes import INTEGER
from aotlite.ir.errors import ArgumentError, AutogradError, DTypeError
from aotlite.ir.op.operand import Operand


class HostValues(Operand):
    """The methods of a tensor that return its elements to Python."""

    __slots__ = ()

    if TYPE_CHECKING:  # of `Tensor`
        __tensor_dispatch__: ClassVar[Callable[..., object] | None]
        storage: Storage

        @property
        def requires_grad(self) -> bool: ...
        @property
        def _data(self) -> Any: ...

    def numpy(self) -> np.ndarray:
        """The NumPy array over this tensor's memory; each sees the other's writes.

        Raises AutogradError if the tensor requires grad, DeviceError if it is not NumPy's memory.
        """
        if self.requires_grad and not self.__tensor_dispatch__:
            raise AutogradError(
                "numpy: the tensor requires grad, expected one that does not; use detach().numpy()"
            )
        forbid_capture(self, "numpy", "keep the computation in tensors, or return the tensor")
        array = self._data
        if not isinstance(array, np.ndarray):
            raise not_on_host(self.device)
        self.storage.export()
        return array

    def tolist(self) -> Any:
        """The values as nested lists of Python numbers."""
        forbid_capture(self, "tolist", "return the tensor and read it outside")
        known = known_value(self)
        return self._data.tolist() if known is None else known.tolist()

    def item(self) -> Any:
        """The only element as a Python number. Raises ArgumentError if there is not exactly one."""
        recorder = STATE.recorder
        if recorder is not None and self.dtype.kind == INTEGER and not self.__tensor_dispatch__:
            if self.numel() == 1:
                return recorder.data.number(self)
        forbid_number(self, "item", "use a tensor operation such as where")
        if self.numel() != 1:
            raise several(self)
        value = known_value(self)
        value = self._data.tolist() if value is None else value.tolist()
        while isinstance(value, list):
            value = value[0]
        return value

    def __bool__(self) -> bool:
        forbid_number(self, "bool", "choose between values with where")
        return bool(self.item())

    def __int__(self) -> int:
        forbid_number(self, "int", _as_number(self, "keep the number in a tensor"))
        return int(self._real_item("int"))

    def __float__(self) -> float:
        forbid_number(self, "float", "keep the number in a tensor")
        return float(self._real_item("float"))

    def _real_item(self, name: str) -> Any:
        value = self.item()
        if self.dtype.is_complex:
            if value.imag:
                raise ArgumentError(f"{name}: the element is {value}, expected a real one")
            return value.real
        return value

    def __complex__(self) -> complex:
        forbid_number(self, "complex", "keep the number in a tensor")
        return complex(self.item())

    def __index__(self) -> int:
        if self.dtype.is_differentiable and not self.__tensor_dispatch__:
            raise DTypeError(f"index: the tensor has dtype {self.dtype}, expected an integer one")
        forbid_number(self, "index", _as_number(self, "use gather or where"))
        return int(self.item())

    def __len__(self) -> int:
        if not self.meta.shape:
            raise ArgumentError("len: the tensor has no dimensions, expected at least 1")
        return self.meta.shape[0]

    def __contains__(self, element: object) -> bool:
        """Whether any element equals `element`, a number or a tensor to broadcast."""
        return bool(self.eq(element).any())

    def __iter__(self) -> Any:
        return iter(self.unbind(0))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        array = self.numpy()
        if dtype is not None and array.dtype != dtype:
            return array.astype(dtype)
        return array.copy() if copy else array

    __array_priority__ = 1000


def _as_number(tensor: HostValues, advice: str) -> str:
    """What to write for a tensor that Python wants as an int: an integer one has `item()`."""
    if tensor.dtype.kind == INTEGER:
        return "call item(), whose number may be a size, a bound of a slice or an index"
    return advice
