"""`Parameter` and `Buffer`: the tensors of a module, distinguished by their class.

A wrapper subclass keeps its own class; an attribute marks it as a parameter or buffer, and
`isinstance` checks that (SUB-1).
"""

from __future__ import annotations

from typing import Any

from aotlite.eager.base.tensor import Tensor
from aotlite.eager.creation.from_data import tensor
from aotlite.eager.subclass.protocol import alias_of, is_wrapper


class _Member(type(Tensor)):  # type: ignore[misc]
    """The metaclass that makes `isinstance` true for wrappers marked as parameters or buffers."""

    def __instancecheck__(cls, instance: object) -> bool:
        if super().__instancecheck__(instance):
            return True
        return is_wrapper(instance) and issubclass(getattr(instance, "_member", Tensor), cls)


class Parameter(Tensor, metaclass=_Member):
    """A tensor that a module trains: a leaf on the memory of `data` that requires grad by default.

    >>> import aotlite as al
    >>> Parameter(al.zeros(2)).requires_grad
    True

    For a wrapper it is another instance of the wrapper's class, on the same memory:

    >>> from aotlite.subclasses import TwoTensor
    >>> pair = Parameter(TwoTensor(al.zeros(2), al.ones(2)))
    >>> type(pair).__name__, isinstance(pair, Parameter), pair.requires_grad
    ('TwoTensor', True, True)
    """

    __slots__ = ()
    _copies_grad = False

    def __new__(cls, data: object = None, requires_grad: bool = True) -> Any:
        if is_wrapper(data):
            made = _wrapper_as(cls, data)
            return made.requires_grad_() if requires_grad else made
        return super().__new__(cls)

    def __init__(self, data: Any, requires_grad: bool = True) -> None:
        _share(self, data)
        if requires_grad:
            self.requires_grad_()

    def __repr__(self) -> str:
        return f"Parameter containing:\n{super().__repr__()}"


class Buffer(Tensor, metaclass=_Member):
    """A tensor that a module keeps and does not train, on the memory of `data`.

    `persistent=False` keeps it out of `state_dict`; the object is then a `TransientBuffer`.
    """

    __slots__ = ()
    persistent = True

    def __new__(cls, data: object = None, *, persistent: bool = True) -> Any:
        kind = cls if persistent else TransientBuffer
        return _wrapper_as(kind, data) if is_wrapper(data) else super().__new__(kind)

    def __init__(self, data: Any, *, persistent: bool = True) -> None:
        _share(self, data)

    def __repr__(self) -> str:
        return f"{type(self).__name__} containing:\n{super().__repr__()}"


class TransientBuffer(Buffer):
    """A buffer that `state_dict` leaves out."""

    # A class and not a flag: all tensors have the same slots, which `deepcopy` relies on.
    __slots__ = ()
    persistent = False


def _wrapper_as(kind: type[Tensor], data: Any) -> Any:
    """A wrapper of the same parts, marked as a parameter or a buffer."""
    made = alias_of(data)
    made._member = kind
    return made


def _share(made: Tensor, data: object) -> None:
    """Makes `made` a tensor without history on the memory of `data`."""
    source = data.detach() if isinstance(data, Tensor) else tensor(data)
    Tensor.__init__(made, source.storage, source.meta, source.offset)
    made.value = source.value
