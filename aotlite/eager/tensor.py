"""`Tensor`: storage, geometry and autograd state. Its ops come from `Operand`, its history from
`autograd.history`. Rules: TEN-1..TEN-25.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from aotlite.eager.autograd.chain import EMPTY_CHAIN, Chain
from aotlite.eager.autograd.face import Differentiable, _here
from aotlite.eager.devices import not_on_host, shown
from aotlite.eager.exchanging import Exchanging
from aotlite.eager.refusals import forbid_capture, forbid_number, several
from aotlite.eager.state import STATE
from aotlite.eager.storage import Storage
from aotlite.ir.composite import gathered
from aotlite.ir.dtypes import DType
from aotlite.ir.errors import ArgumentError, AutogradError, DTypeError
from aotlite.ir.memory_format import MemoryFormat, preserve_format
from aotlite.ir.meta import TensorMeta
from aotlite.ir.ops.memory_format import suggested_format

if TYPE_CHECKING:
    from aotlite.eager.autograd.history import CreationKind, Root
    from aotlite.eager.autograd.leaf import AccumulateGrad
    from aotlite.eager.autograd.node import TapeNode


class Tensor(Differentiable, Exchanging):
    """A strided window onto a storage, with autograd state.

    Made by `tensor`, `zeros`, `from_numpy` and by ops. `requires_grad` starts a history.

    >>> import aotlite as al
    >>> x = al.tensor([1.0, 2.0], requires_grad=True)
    >>> (x * x).sum().backward()
    >>> x.grad.tolist()
    [2.0, 4.0]
    """

    __slots__ = (
        "__weakref__",
        "_accumulator",
        "_array",
        "_base",
        "_chain",
        "_grad",
        "_index",
        "_kind",
        "_leaf",
        "_node",
        "_root",
        "_seen",
        "facts",
        "meta",
        "offset",
        "storage",
        "value",
    )

    __tensor_dispatch__: ClassVar[Callable[..., Any] | None] = None
    """Of wrapper subclasses: `(func, types, args, kwargs)` gives what an op gives (SUB-23)."""
    __tensor_function__: ClassVar[Callable[..., Any] | None] = None
    """Of wrapper subclasses that need it: asked before, with history, for other ops (SUB-10)."""
    __tensor_coerce_gradient__: ClassVar[Callable[..., Any] | None] = None
    """Of wrapper subclasses that need it: `(self, gradient)` gives the form that gradients of this
    tensor have of one that a backward is given (TAN-5)."""
    __tensor_gradient_form__: ClassVar[Callable[..., Any] | None] = None
    """Of wrapper subclasses that need it: `(self)` gives a function that brings any gradient that
    arrives at this tensor to the one form that its gradients have (SHD-15)."""

    _copies_grad: ClassVar[bool] = True
    """Whether deep copies have the gradient, too."""

    storage: Storage
    meta: TensorMeta
    offset: int
    value: Any
    facts: Any
    _array: Any
    _leaf: bool
    _node: TapeNode | None
    _index: int
    _root: Root | None
    _chain: Chain
    _seen: int
    _kind: CreationKind | None
    _base: Tensor | None
    _grad: Tensor | None
    _accumulator: AccumulateGrad | None

    def __init__(self, storage: Storage, meta: TensorMeta, offset: int = 0) -> None:
        self.storage = storage
        self.meta = meta
        self.offset = offset
        self.value = None
        """The graph value of this object after its last write, while it is captured."""
        counts = type(storage.version) is int
        plain = type(self) is Tensor and storage.buffer is not None and counts
        self.facts = meta if plain else None
        """What a compiled entry depends on (`eager.facts`); None where it must be asked for."""
        self._array = None
        self._leaf = False
        self._node = None
        self._index = 0
        self._root = None
        self._chain = EMPTY_CHAIN
        self._seen = 0
        self._kind = None
        self._base = None
        self._grad = None
        self._accumulator = None

    _make_wrapper_subclass: ClassVar[Callable[..., Any]]
    """`eager.wrappers.make_wrapper_subclass`, which needs this class."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """What makes instances of a wrapper class is its `__new__`, whose arguments are its own."""
        super().__init_subclass__(**kwargs)
        if cls.__tensor_dispatch__ is not None and cls.__init__ is Tensor.__init__:
            cls.__init__ = object.__init__  # type: ignore[method-assign, assignment]

    def _filled(self, size: tuple[int, ...], value: Any, dtype: DType, device: Any) -> Any:
        if self.__tensor_dispatch__ is not None and size == self.shape:
            return _wrappers().filled(self, value, dtype)
        return super()._filled(size, value, dtype, device)

    # --- data
    @property
    def array(self) -> Any:
        """The device library's array over this tensor's memory; none while it is captured."""
        forbid_capture(self, "array", "keep the computation in tensors, or return the tensor")
        return self._data

    @property
    def _data(self) -> Any:
        array = self._array
        if array is None:
            buffer = self.storage.buffer
            if buffer is None:
                raise self.storage.no_data("array")
            meta = self.meta
            array = self._array = meta.device.arrays.strided(
                buffer, meta.dtype, meta.shape, meta.stride, self.offset
            )
        return array

    def numpy(self) -> np.ndarray:
        """The NumPy array over this tensor's memory; writes are seen both ways.

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

    def new_tensor(
        self, data: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False
    ) -> Tensor:
        """`tensor(data)` of this tensor's dtype and device."""
        from aotlite.eager.functions import tensor

        return tensor(
            data,
            dtype=dtype or self.dtype,
            device=device or self.device,
            requires_grad=requires_grad,
        )

    def tolist(self) -> Any:
        """The values as nested lists of Python numbers."""
        forbid_capture(self, "tolist", "return the tensor and read it outside")
        return self._data.tolist()

    def item(self) -> Any:
        """The only element as a Python number. Raises ArgumentError if there is not exactly one."""
        forbid_number(self, "item", "use a tensor operation such as where")
        if self.numel() != 1:
            raise several(self)
        value = self._data.tolist()
        while isinstance(value, list):
            value = value[0]
        return value

    def __bool__(self) -> bool:
        forbid_number(self, "bool", "choose between values with where")
        return bool(self.item())

    def __int__(self) -> int:
        forbid_number(self, "int", "keep the number in a tensor")
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
        forbid_number(self, "index", "use gather or where")
        return int(self.item())

    def __len__(self) -> int:
        if not self.meta.shape:
            raise ArgumentError("len: the tensor has no dimensions, expected at least 1")
        return self.meta.shape[0]

    def __contains__(self, element: Any) -> bool:
        """Whether some element equals this one, which may be a tensor that is broadcast."""
        return bool(self.eq(element).any())

    def __iter__(self) -> Any:
        return iter(self.unbind(0))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        array = self.numpy()
        if dtype is not None and array.dtype != dtype:
            return array.astype(dtype)
        return array.copy() if copy else array

    __array_priority__ = 1000

    # --- memory
    def untyped_storage(self) -> Storage:
        """The memory that this tensor is a window on: the same object for all that share it."""
        return self.storage

    def data_ptr(self) -> int:
        """The address of the first element."""
        forbid_capture(self, "data_ptr", "ask is_set_to, or for storage_offset")
        return self.storage.data_ptr() + self.offset * self.itemsize

    def is_set_to(self, tensor: Tensor) -> bool:
        """Whether `tensor` is a window of the same geometry on the same memory."""
        same = _here(self).storage is _here(tensor).storage
        same = same and self.storage_offset() == tensor.storage_offset()
        return same and (self.shape, self.stride()) == (tensor.shape, tensor.stride())

    def resize_(self, *size: Any, memory_format: MemoryFormat | None = None) -> Tensor:
        """Gives this tensor another size on its storage, which grows if it must (TEN-25).

        New elements have undefined values. Raises AutogradError if the tensor requires grad.
        """
        from aotlite.eager.memory import resize

        given = gathered((self, *size))[1:]
        return resize(self, given[0] if len(given) == 1 else size, memory_format)

    def resize_as_(
        self, the_template: Tensor, *, memory_format: MemoryFormat | None = None
    ) -> Tensor:
        """`resize_` to the size of another tensor; `preserve_format` takes its format too."""
        if not isinstance(the_template, Tensor):
            raise ArgumentError(
                f"resize_as_: argument 'the_template' is {the_template!r}, expected a tensor"
            )
        if memory_format is preserve_format:
            memory_format = suggested_format(the_template.meta)
        return self.resize_(the_template.shape, memory_format=memory_format)

    def set_(self, source: Any = None, *window: Any) -> Tensor:
        """Puts this tensor onto the memory of another tensor, or onto a window of a storage.

        `set_(tensor)`, `set_(storage, offset, size, stride)`. Views of the old memory keep it
        (TEN-26).
        """
        from aotlite.eager.memory import put_onto

        return put_onto(self, source, window)

    def hidden_alias(self) -> Tensor:
        """A leaf on the same memory whose writes this tensor's versions do not count (TEN-5)."""
        alias: Tensor = self._do("hidden_alias")
        return alias

    # --- geometry that is not in the meta
    def storage_offset(self) -> int:
        """Elements from the start of the storage to the first element."""
        recorder = STATE.recorder
        if recorder is not None:
            recorder.note_offset_read(self)
        return self.offset

    def as_strided(self, size: Any, stride: Any, storage_offset: int | None = None) -> Tensor:
        """A view with this geometry over the same storage; the offset counts from its start."""
        return self._do("as_strided", size, stride, self._relative(storage_offset))

    def as_strided_(self, size: Any, stride: Any, storage_offset: int | None = None) -> Tensor:
        """Gives this tensor another geometry over its storage (TEN-24)."""
        return self._do("as_strided_", size, stride, self._relative(storage_offset))

    def as_strided_scatter(
        self, src: Tensor, size: Any, stride: Any, storage_offset: int | None = None
    ) -> Tensor:
        """A copy with the same strides of which this window is `src`."""
        offset = self._relative(storage_offset)
        return self._do("as_strided_scatter", src, size, stride, offset)

    def _relative(self, storage_offset: int | None) -> int:
        return 0 if storage_offset is None else storage_offset - self.storage_offset()

    # --- item access
    def __getitem__(self, index: Any) -> Any:
        raise TypeError("aotlite.eager.indexing says what an index picks")

    def __setitem__(self, index: Any, value: Any) -> None:
        raise TypeError("aotlite.eager.indexing says what an index picks")

    def zero_(self) -> Tensor:
        """Fills with zeros in place."""
        return self._do("fill_", 0)

    def copy_(self, src: Any) -> Tensor:
        """Copies `src`, broadcast and cast, into this tensor (FUN-5)."""
        if isinstance(src, Tensor) and src.device is not self.device:
            src = src.to(self.device)
        return self._do("copy_", src)

    def __repr__(self) -> str:
        if self.__tensor_dispatch__ is not None:
            return _wrappers().shown(self)
        if self.storage.buffer is None:
            return f"Tensor({self.meta}, captured)"
        array = self._data
        text = shown(array, self.device)
        more = "" if self.dtype.name in ("float32", "int64", "bool") else f", dtype={self.dtype}"
        more += self._history_shown()
        return f"tensor({text}{more})"

    def _history_shown(self) -> str:
        from aotlite.eager.autograd.history import edge_of

        try:
            edge_of(self)
        except AutogradError:  # a part of a base that was written (TEN-19)
            return ", grad_fn=<invalid>"
        if self._node is not None:
            return f", grad_fn=<{self._node.name()}>"
        return ", requires_grad=True" if self.requires_grad_outside() else ""

    def __reduce_ex__(self, protocol: Any) -> Any:
        """What copies and pickles are made of: all but what is this very object's."""
        made: Any = super().__reduce_ex__(max(int(protocol), 2))
        make, args, (own, slots), *rest = made
        slots = {**slots, "facts": None, "_array": None, "_accumulator": None}
        if self.__tensor_dispatch__ is not None:
            return _wrapper_copies().reduced(self, own, slots)
        return make, args, (own, slots), *rest

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        if not self.is_leaf:
            raise AutogradError("deepcopy: the tensor is not a leaf, expected a leaf; use detach()")
        if self.__tensor_dispatch__ is not None:
            twin: Tensor = _wrapper_copies().deeply_copied(self, memo)
        elif self.storage.buffer is None or STATE.recorder is not None:
            twin = self.detach().clone()
        else:  # tensors that share memory share their copies' memory
            twin = Tensor(copy.deepcopy(self.storage, memo), self.meta, self.offset)
        twin.__class__ = type(self)
        twin._leaf = self._leaf
        twin.facts = None
        memo[id(self)] = twin
        if getattr(self, "_member", type(self))._copies_grad and self.grad is not None:
            twin.grad = copy.deepcopy(self.grad, memo)
        return twin


def tensor_over(buffer: Any, meta: TensorMeta, offset: int = 0) -> Tensor:
    """A plain tensor on a new storage over `buffer`: `Tensor(Storage(buffer), meta, offset)`.

    Written out, since two constructors are a fourth of what a small compiled call costs.
    """
    storage = _new_storage(Storage)
    storage.buffer = buffer
    storage.version = 0
    storage.writable = True
    storage.exported = False
    storage.capture = storage.loans = None
    made = _new_tensor(Tensor)
    made.storage = storage
    made.meta = made.facts = meta
    made.offset = offset
    made.value = None
    made._array = None
    made._leaf = False
    made._node = None
    made._index = 0
    made._root = None
    made._chain = EMPTY_CHAIN
    made._seen = 0
    made._kind = None
    made._base = None
    made._grad = None
    made._accumulator = None
    return made


def tensor_on(
    storage: Storage, meta: TensorMeta, offset: int, kind: type[Tensor] | None = None
) -> Tensor:
    """A tensor on a storage that others are on: its facts must be asked for."""
    made = _new_tensor(kind or Tensor)
    made.storage = storage
    made.meta = meta
    made.offset = offset
    made.value = made.facts = None
    made._array = None
    made._leaf = False
    made._node = None
    made._index = 0
    made._root = None
    made._chain = EMPTY_CHAIN
    made._seen = 0
    made._kind = None
    made._base = None
    made._grad = None
    made._accumulator = None
    return made


def tensors_over(
    windows: Sequence[tuple[Any, int] | None], metas: Sequence[TensorMeta | None]
) -> list[Tensor | None]:
    """A plain tensor for each (buffer, offset) that has a meta; one storage for each buffer.

    Written out like `tensor_over`: the gradients of a step are hundreds.
    """
    made: list[Tensor | None] = []
    storages: dict[int, Storage] = {}
    last = storage = None
    new, empty, add = _new_tensor, EMPTY_CHAIN, made.append
    for window, meta in zip(windows, metas, strict=True):
        if window is None or meta is None:
            add(None)
            continue
        buffer, offset = window
        if buffer is not last or storage is None:
            last, storage = buffer, storages.get(id(buffer))
            if storage is None:
                storage = storages[id(buffer)] = Storage(buffer)
        tensor = new(Tensor)
        tensor.storage = storage
        tensor.meta = meta
        tensor.facts = meta
        tensor.offset = offset
        tensor.value = None
        tensor._array = None
        tensor._leaf = False
        tensor._node = None
        tensor._index = 0
        tensor._root = None
        tensor._chain = empty
        tensor._seen = 0
        tensor._kind = None
        tensor._base = None
        tensor._grad = None
        tensor._accumulator = None
        add(tensor)
    return made


def _wrappers() -> Any:
    from aotlite.eager import wrappers

    return wrappers


def _wrapper_copies() -> Any:
    from aotlite.eager import wrapper_copies

    return wrapper_copies


_new_tensor: Callable[[type[Tensor]], Tensor] = object.__new__
_new_storage: Callable[[type[Storage]], Storage] = object.__new__
