"""`Tensor`: a storage, a geometry and autograd state, with the methods that need only these.

Its ops are methods of `Operand`; methods that read elements are in `HostValues`. Methods that need
higher packages, from `__getitem__` to `backward`, are declared here for type checkers only:
`aotlite/eager/tensor_methods.py` adds them. Rules: TEN-1..TEN-25.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, ClassVar

from aotlite.eager.base.host_values import HostValues
from aotlite.eager.base.modes import STATE
from aotlite.eager.base.storage import Storage, no_data
from aotlite.eager.base.tape.hooks import RemovableHandle
from aotlite.eager.base.tape.node import Edge, TapeNode
from aotlite.eager.base.tape.view_chain import EMPTY_CHAIN, ViewChain
from aotlite.eager.base.tape.view_root import CreationKind, ViewRoot
from aotlite.eager.base.unsupported import forbid_capture
from aotlite.ir.dtypes import DType
from aotlite.ir.errors import ArgumentError, AutogradError
from aotlite.ir.geometry.memory_format import MemoryFormat, preserve_format
from aotlite.ir.meta import TensorMeta
from aotlite.ir.meta.devices import check_device
from aotlite.ir.op import Op
from aotlite.ir.ops.shape.memory_format import suggested_format


class Tensor(HostValues):
    """A strided view of a storage, with autograd state.

    `tensor`, `zeros`, `from_numpy` and ops make them. `requires_grad` starts a history.

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
        "_dynamic_dims",
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
    """Of wrapper subclasses: `(func, types, args, kwargs)` returns the result of an op (SUB-23)."""
    __tensor_function__: ClassVar[Callable[..., Any] | None] = None
    """Optional, of wrapper subclasses: may replace an op by others, in grad mode (SUB-10)."""
    __tensor_coerce_gradient__: ClassVar[Callable[..., Any] | None] = None
    """Optional, of wrapper subclasses: `(self, gradient)` converts a gradient that was passed to
    `backward` to the form of this tensor's gradients (TAN-5)."""
    __tensor_gradient_form__: ClassVar[Callable[..., Any] | None] = None
    """Optional, of wrapper subclasses: `(self)` returns a function that converts any gradient of
    this tensor to the one form of its gradients (SHD-15)."""

    _copies_grad: ClassVar[bool] = True
    """Whether deep copies copy the gradient, too."""

    storage: Storage
    meta: TensorMeta
    offset: int
    value: Any
    facts: Any
    _array: Any
    """The array that `_data` has made; None until then, and after a change of geometry or memory.
    Written code reads it first, which saves most calls of the property."""
    _leaf: bool
    _node: TapeNode | None
    _index: int
    _root: ViewRoot | None
    _chain: ViewChain
    _seen: int
    _kind: CreationKind | None
    _base: Tensor | None
    _grad: Tensor | None
    _dynamic_dims: frozenset[int]
    """Of a compiled function's result: dimensions that are symbols there (DYN-6); else not set."""
    _accumulator: Any
    """The leaf's `AccumulateGrad` node, once it is made; else None."""

    def __init__(self, storage: Storage, meta: TensorMeta, offset: int = 0) -> None:
        self.storage = storage
        self.meta = meta
        self.offset = offset
        self.value = None
        """Under a capture: the graph value of this tensor after its last write."""
        counts = type(storage.version) is int
        plain = type(self) is Tensor and storage.buffer is not None and counts
        self.facts = meta if plain else None
        """What guards compare (`tensor_facts`); None where `facts_of` must compute it."""
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
    """`protocol.make_wrapper_subclass`."""

    if TYPE_CHECKING:  # installed by `tensor_methods`, or of a wrapper subclass

        def __getattr__(self, name: str) -> Any: ...
        # ops
        def _apply(self, /, op: Op, args: tuple[object, ...]) -> Any: ...
        def _filled(
            self, /, size: tuple[int, ...], value: object, dtype: DType, device: object
        ) -> Any: ...

        # history and gradients
        @property
        def grad_fn(self) -> TapeNode | None: ...
        @property
        def retains_grad(self) -> bool: ...
        def requires_grad_(self, /, requires_grad: bool = True) -> Tensor: ...
        def detach_(self, /) -> Tensor: ...
        def retain_grad(self, /) -> None: ...
        def gradient_edge(self, /) -> Edge | None: ...
        def register_hook(self, /, hook: Callable[[Tensor], Tensor | None]) -> RemovableHandle: ...
        def register_post_accumulate_grad_hook(
            self, /, hook: Callable[[Tensor], None]
        ) -> RemovableHandle: ...
        def backward(
            self,
            /,
            gradient: Tensor | None = None,
            retain_graph: bool | None = None,
            create_graph: bool = False,
            inputs: Iterable[Tensor | None] | Tensor | None = None,
        ) -> None: ...

        # elements
        def __getitem__(self, /, index: object) -> Any: ...
        def __setitem__(self, /, index: object, value: object) -> None: ...
        def new_tensor(
            self,
            /,
            data: object,
            *,
            dtype: object = None,
            device: object = None,
            requires_grad: bool = False,
        ) -> Tensor: ...

        def __repr__(self, /) -> str: ...
        def __reduce_ex__(self, /, protocol: object) -> Any: ...
        def __deepcopy__(self, /, memo: dict[int, object]) -> Tensor: ...

        # memory
        def resize_(
            self, /, *size: object, memory_format: MemoryFormat | None = None
        ) -> Tensor: ...
        def set_(self, /, source: object = None, *window: object) -> Tensor: ...
        def __dlpack__(self, **options: object) -> Any: ...
        def __dlpack_device__(self, /) -> tuple[int, int]: ...
        @property
        def __cuda_array_interface__(self) -> dict[str, Any]: ...

    def __init_subclass__(cls, **kwargs: object) -> None:
        """Gives wrapper classes no `__init__`: their `__new__` has arguments of its own."""
        super().__init_subclass__(**kwargs)
        if cls.__tensor_dispatch__ is not None and cls.__init__ is Tensor.__init__:
            cls.__init__ = object.__init__  # type: ignore[method-assign, assignment]

    # --- history and gradients
    def requires_grad_outside(self) -> bool:
        """`requires_grad` of this object itself, also while a fake stands for it."""
        root = self._root
        return self._leaf or self._node is not None or (root is not None and root.requires_grad)

    @property
    def requires_grad(self) -> bool:
        """Whether gradients flow to this tensor (TEN-14)."""
        return here(self).requires_grad_outside()

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        self.requires_grad_(value)

    @property
    def is_leaf(self) -> bool:
        """Whether no tape node made this tensor (TEN-14)."""
        return self.grad_fn is None

    @property
    def grad(self) -> Tensor | None:
        """The gradient accumulated in this leaf, or None."""
        recorder = STATE.recorder
        return self._grad if recorder is None else recorder.grads.read(self)

    @grad.setter
    def grad(self, value: Tensor | None) -> None:
        recorder = STATE.recorder
        if value is not None and not isinstance(value, Tensor):
            raise ArgumentError(f"grad: the value is {value!r}, expected a tensor or None")
        if value is self:
            raise ArgumentError("grad: the value is the tensor itself, expected another")
        if value is not None and value.storage.capture is not None and recorder is None:
            raise no_data("grad", value.storage)
        if value is not None and (value.shape != self.shape or value.dtype is not self.dtype):
            raise AutogradError(
                f"grad: the value is {value.meta}, expected the shape and dtype of {self.meta}"
            )
        if value is not None:
            check_device("grad: the value", value.device, self.device)
        if recorder is not None and recorder.is_outside(self):
            recorder.grads.write(self, value)
        else:
            self._grad = value

    @property
    def base(self) -> Tensor | None:
        """The tensor that this is a differentiable view of, never itself a view (TEN-3)."""
        _forbid_outside(self, "reading the base", "read it before the compiled function")
        return self._base

    @property
    def version(self) -> int:
        """The storage's counter of writes, which views and detached aliases share (TEN-10)."""
        _forbid_outside(self, "reading the version", "read it before the compiled function")
        version = self.storage.version
        if type(version) is not int:
            raise AutogradError(
                "version: the tensor is an inference tensor, expected one that counts its writes"
            )
        return version

    _version = version

    def is_inference(self) -> bool:
        """Whether the tensor was made in `inference_mode` and has no autograd state (TEN-22)."""
        return type(self.storage.version) is not int

    def _is_tracked_leaf(self) -> bool:
        """Whether this is a leaf that requires grad."""
        return self._leaf and self._node is None

    def _leads_nowhere(self) -> bool:
        """Whether its gradient goes nowhere, as that of a view made under no_grad (TEN-21)."""
        of_no_grad = self._node is None and self._kind is CreationKind.NO_GRAD
        return of_no_grad or not self.requires_grad

    # --- data
    @property
    def array(self) -> Any:
        """The array library's array over this tensor's memory. Raises under a capture."""
        forbid_capture(self, "array", "keep the computation in tensors, or return the tensor")
        self.storage.export()
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

    # --- memory
    def untyped_storage(self) -> Storage:
        """The tensor's storage: the same object for all tensors that share it."""
        return here(self).storage

    def data_ptr(self) -> int:
        """The address of the first element."""
        forbid_capture(self, "data_ptr", "ask is_set_to, or for storage_offset")
        return self.storage.data_ptr() + self.offset * self.itemsize

    def is_set_to(self, tensor: Tensor) -> bool:
        """Whether `tensor` has the same geometry on the same memory."""
        same = here(self).storage is here(tensor).storage
        same = same and self.storage_offset() == tensor.storage_offset()
        return same and (self.shape, self.stride()) == (tensor.shape, tensor.stride())

    def resize_as_(
        self, the_template: Tensor, *, memory_format: MemoryFormat | None = None
    ) -> Tensor:
        """`resize_` to the size of another tensor; `preserve_format` also copies its format."""
        if not isinstance(the_template, Tensor):
            raise ArgumentError(
                f"resize_as_: argument 'the_template' is {the_template!r}, expected a tensor"
            )
        if memory_format is preserve_format:
            memory_format = suggested_format(the_template.meta)
        return self.resize_(the_template.shape, memory_format=memory_format)

    def hidden_alias(self) -> Tensor:
        """A leaf on the same memory with a version counter of its own: PyTorch's data (TEN-5)."""
        alias: Tensor = self._do("hidden_alias")
        return alias

    # --- geometry that is not in the meta
    def storage_offset(self) -> int:
        """The offset of the first element in the storage, in elements."""
        recorder = STATE.recorder
        if recorder is not None:
            recorder.note_offset_read(self)
        return self.offset

    def as_strided(self, size: object, stride: object, storage_offset: int | None = None) -> Tensor:
        """A view with this geometry over the same storage; the offset counts from its start."""
        return self._do("as_strided", size, stride, self._relative(storage_offset))

    def as_strided_(
        self, size: object, stride: object, storage_offset: int | None = None
    ) -> Tensor:
        """Gives this tensor another geometry over its storage (TEN-24)."""
        return self._do("as_strided_", size, stride, self._relative(storage_offset))

    def as_strided_scatter(
        self, src: Tensor, size: object, stride: object, storage_offset: int | None = None
    ) -> Tensor:
        """A copy with the same strides, in which this window is replaced by `src`."""
        offset = self._relative(storage_offset)
        return self._do("as_strided_scatter", src, size, stride, offset)

    def _relative(self, storage_offset: int | None) -> int:
        return 0 if storage_offset is None else storage_offset - self.storage_offset()

    def zero_(self) -> Tensor:
        """Fills with zeros in place."""
        return self._do("fill_", 0)

    def copy_(self, src: object) -> Tensor:
        """Copies `src`, broadcast and cast, into this tensor (FUN-5)."""
        if isinstance(src, Tensor) and src.device is not self.device:
            src = src.to(self.device)
        return self._do("copy_", src)


def here(tensor: Tensor) -> Tensor:
    """The tensor itself, or the fake that stands for it while a function is captured."""
    recorder = STATE.recorder
    return tensor if recorder is None else recorder.here(tensor)


def apply_op(op: Op, args: tuple[object, ...]) -> Any:
    """`dispatch(op, args)`, for modules that `dispatch` itself imports."""
    return Tensor._apply(None, op, args)  # type: ignore[arg-type]


def _forbid_outside(tensor: Tensor, what: str, advice: str) -> None:
    """Raises, in a capture, for an operation on a tensor from outside that cannot be recorded."""
    recorder = STATE.recorder
    if recorder is not None and recorder.is_outside(tensor):
        raise recorder.refuse(f"{what} of a tensor from outside", advice)
