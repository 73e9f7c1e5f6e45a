"""Wrapper subclasses: tensors made of tensors, by three methods of their class.

    __tensor_flatten__(self)                  -> (names of the attributes that hold the parts, spec)
    __tensor_unflatten__(inner, spec, outer_size, outer_stride)      static: the instance of parts
    __tensor_dispatch__(cls, func, types, args, kwargs)         class method: the result of an op

A wrapper has geometry and history, and no memory of its own. Rules: SUB-1, SUB-9, SUB-20.
Spec: `specs/subclasses.md`.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from keyword import iskeyword
from operator import is_
from typing import Any, TypeVar

from aotlite.eager.base.modes import STATE, Modes
from aotlite.eager.base.new_tensors import tensor_on
from aotlite.eager.base.storage import NO_COUNT, Storage
from aotlite.eager.base.tensor import Tensor
from aotlite.eager.subclass.checks import check_finite, check_methods, text_of
from aotlite.ir.arrays.device import CPU, Device
from aotlite.ir.dtypes import DType, as_dtype, float32
from aotlite.ir.errors import ProtocolError, SubclassError, UnsupportedError, noted
from aotlite.ir.geometry.sizes import is_symbolic
from aotlite.ir.meta import tensor_meta
from aotlite.ir.op.operand import Operand

WrapperT = TypeVar("WrapperT", bound=Tensor)
Show = Callable[[object], object]
"""What a spec is compared as."""
Flat = tuple[tuple[str, ...], Any]
"""(names of the attributes that hold inner tensors, spec: all other state of an instance)."""


class WrapperStorage(Storage):
    """The storage of a wrapper and its views: a version counter without bytes."""

    __slots__ = ("kind",)

    def __init__(self, kind: type[Tensor]) -> None:
        super().__init__(None, capture=STATE.recorder)
        self.kind = kind

    def __deepcopy__(self, memo: dict[int, object]) -> WrapperStorage:
        memo[id(self)] = twin = WrapperStorage(self.kind)
        return twin

    def no_data(self, what: str) -> Exception:
        name = self.kind.__name__
        return noted(
            UnsupportedError(
                f"{what}: the tensor is a {name}, which has no memory of its own, expected a "
                "tensor with memory"
            ),
            f"Ask the tensors that it is made of: {name}.__tensor_flatten__ names them. (SUB-1)",
        )


def make_wrapper_subclass(
    cls: type[WrapperT],
    size: Sequence[int],
    strides: Sequence[int] | None = None,
    *,
    dtype: DType = float32,
    device: Device = CPU,
    requires_grad: bool = False,
) -> WrapperT:
    """An instance of a wrapper class, for its `__new__`: with outer geometry and no memory.

    `size` and `strides` are in elements; contiguous where no strides are given. Raises
    SubclassError for a class without `__tensor_dispatch__`.
    """
    if cls not in _KNOWN:
        _check_class(cls)
    storage = _new_storage(WrapperStorage)
    storage.buffer = storage.write_observers = None
    storage.version = 0 if STATE.grad_mode is not None else NO_COUNT
    storage.writable = True
    storage.exported = False
    storage.capture = STATE.recorder
    storage.kind = cls
    meta = tensor_meta(size, strides, as_dtype(dtype), device)
    made: Any = tensor_on(storage, meta, 0, cls)
    return made.requires_grad_() if requires_grad else made


_new_storage: Any = object.__new__
_KNOWN: set[type[Tensor]] = set()
"""Wrapper classes that passed the checks."""


def _check_class(cls: object) -> None:
    if not (isinstance(cls, type) and issubclass(cls, Tensor)) or not is_wrapper_class(cls):
        raise noted(
            SubclassError(
                f"_make_wrapper_subclass: the class is {_name(cls)}, expected a subclass of Tensor "
                "with __tensor_dispatch__"
            ),
            "It computes ops on instances. (SUB-1)",
        )
    check_methods(cls)
    Modes.wrappers = True
    if cls.__tensor_function__ is not None:
        Modes.functions = True
    if len(_KNOWN) < _MOST_KNOWN:
        _KNOWN.add(cls)


_MOST_KNOWN = 256


def _name(thing: object) -> str:
    return thing.__name__ if isinstance(thing, type) else repr(thing)


def is_wrapper_class(cls: type[Tensor]) -> bool:
    """Whether the class has a `__tensor_dispatch__`, which computes ops on instances."""
    return cls.__tensor_dispatch__ is not None


def is_wrapper(value: object) -> bool:
    """Whether a value is an instance of a wrapper subclass."""
    return isinstance(value, Tensor) and type(value).__tensor_dispatch__ is not None


def is_traceable_wrapper_subclass(value: Any) -> bool:
    """Whether a value is a wrapper that can be flattened and unflattened (SUB-1)."""
    return is_wrapper(value) and not missing(type(value))


def missing(cls: type[Tensor]) -> list[str]:
    """The methods of the protocol that a wrapper class lacks."""
    wanted = ("__tensor_flatten__", "__tensor_unflatten__")
    return [name for name in wanted if not callable(getattr(cls, name, None))]


def refuse_form(what: str, wrapper: Tensor, advice: str) -> Exception:
    """The error for changing the geometry or the memory of a wrapper (SUB-20)."""
    return noted(
        SubclassError(
            f"{what}: the tensor is a {type(wrapper).__name__}, expected one whose geometry and "
            "memory are its own"
        ),
        f"{advice}. (SUB-20)",
    )


# ----------------------------------------------------------------------- apart and together again
def flatten(wrapper: Tensor) -> Flat:
    """The names of a wrapper's inner tensors in order, and its spec.

    Raises SubclassError, with the class and the attribute, where the class breaks the protocol.
    """
    cls = type(wrapper)
    known = _NAMES.get(cls)
    absent = () if known else missing(cls)
    if absent:
        raise _broken(cls, f"has no {absent[0]}", "a class with it")
    try:
        found = wrapper.__tensor_flatten__()
    except AttributeError as error:
        what = f"has a __tensor_flatten__ that finds no attribute ({error})"
        raise _broken(cls, what, "the names of its parts, and a spec") from error
    if not isinstance(found, tuple) or len(found) != 2:
        raise _broken(cls, f"flattens to {text_of(found)}", "a tuple of attribute names and a spec")
    names, spec = found
    if known is None or type(names) is not type(known) or names != known:
        _check_names(cls, names)
    nested = False
    for name in names:
        inner = getattr(wrapper, name, None)
        if not isinstance(inner, Tensor):
            raise _broken(
                cls, f"names attribute {name!r}, which is {_held(wrapper, name)}", "a tensor"
            )
        nested = nested or inner.__tensor_dispatch__ is not None
    if nested:
        check_finite(wrapper)
    return tuple(names), spec


_NAMES: dict[type[Tensor], list[str] | tuple[str, ...]] = {}
"""Class -> the names to which an instance last flattened, already checked."""
_MOST_NAMES = 256


def _check_names(cls: type[Tensor], names: object) -> None:
    if not isinstance(names, (list, tuple)) or not all(type(name) is str for name in names):
        raise _broken(cls, f"flattens to the names {text_of(names)}", "a list of attribute names")
    if len(set(names)) != len(names) or not names:
        what = f"flattens to the names {text_of(names)}"
        raise _broken(cls, what, "at least one, each of them once")
    for name in names:
        if not name.isidentifier() or iskeyword(name):
            raise _broken(cls, f"flattens to the name {name!r}", "names of attributes")
    if type(names) in (list, tuple):
        if len(_NAMES) >= _MOST_NAMES:  # a bounded cache, as classes may be made at run time
            _NAMES.clear()
        _NAMES[cls] = names[:]


def _held(wrapper: Tensor, name: str) -> str:
    return text_of(getattr(wrapper, name)) if hasattr(wrapper, name) else "absent"


def dense_parts(wrapper: Tensor) -> list[Tensor] | None:
    """The inner tensors, by a fast path for dense ones; None where it does not apply."""
    known = _NAMES.get(type(wrapper))
    if known is None:
        return None
    found = wrapper.__tensor_flatten__()
    if type(found) is not tuple or len(found) != 2 or type(found[0]) is not type(known):
        return None
    if found[0] != known:
        return None
    parts = []
    for name in known:
        part = getattr(wrapper, name, None)
        if type(part) is not Tensor:
            return None
        parts.append(part)
    return parts


def inner_tensors(wrapper: Tensor) -> dict[str, Tensor]:
    """The inner tensors by name, in order; they may be wrappers again."""
    return {name: getattr(wrapper, name) for name in flatten(wrapper)[0]}


def memory_of(part: Tensor) -> Storage:
    """The storage of a tensor; in a capture, that of the fake which stands for it."""
    recorder = STATE.recorder
    if recorder is None or part.storage.capture is recorder:
        return part.storage
    stand_in: Tensor = recorder.here(part)
    return stand_in.storage


def unflatten(
    cls: type[Any],
    inner: Mapping[str, Tensor],
    spec: object,
    outer_size: Sequence[int],
    outer_stride: Sequence[int],
    *,
    shown: Show | None = None,
) -> Any:
    """The instance that the class unflattens from these parts.

    Raises SubclassError for another class, geometry, part or spec (SUB-1). `shown` is what the
    instance's own spec is compared as.
    """
    size, stride = tuple(outer_size), tuple(outer_stride)
    made = cls.__tensor_unflatten__(dict(inner), spec, size, stride)
    if type(made) is not cls:
        raise _broken(cls, f"unflattens to {_kind(made)}", f"an instance of {cls.__name__}")
    if not is_made(made):
        raise _broken(cls, "unflattens to an instance without geometry", MADE)
    if made.meta.shape != size:
        raise _broken(cls, f"unflattens to shape {made.meta.shape}", f"the outer size {size}")
    if made.meta.stride != stride:
        raise _broken(cls, f"unflattens to stride {made.meta.stride}", f"outer stride {stride}")
    check_kept(made, inner, spec, shown)
    return made


MADE = "one that Tensor._make_wrapper_subclass made"


def is_made(tensor: Tensor) -> bool:
    """Whether an instance has geometry: `object.__new__` alone would give it none."""
    return hasattr(tensor, "meta")


def check_kept(
    made: Tensor,
    inner: Mapping[str, Tensor],
    spec: object,
    shown: Show | None = None,
) -> None:
    """Raises SubclassError unless the new wrapper holds these parts and this spec (SUB-1)."""
    names, found = flatten(made)
    found = found if shown is None else shown(found)
    moved = [name for name in inner if getattr(made, name, None) is not inner[name]]
    if moved or list(names) != list(inner):
        other = f", of which {moved[0]!r} is another tensor" if moved else ""
        what = f"unflattens to a wrapper of {', '.join(names)}{other}"
        raise _broken(type(made), what, f"the parts given, {', '.join(inner)}")
    if not same_spec(found, spec):
        raise _broken(
            type(made),
            f"unflattens to the spec {text_of(found)}",
            f"the spec {text_of(spec)}",
        )


def kept_spec(spec: object) -> Any:
    """A copy of the spec, which may be a list or dict that changes; itself if it is hashable."""
    if type(spec) is tuple:
        kept = [kept_spec(item) for item in spec]
        return spec if all(map(is_, kept, spec)) else tuple(kept)
    return copy.deepcopy(spec) if getattr(spec, "__hash__", None) is None else spec


def same_spec(found: Any, expected: Any) -> bool:
    """Whether two specs are equal, with equal types at each level (SUB-21)."""
    if found is expected:
        return True
    if type(found) is not type(expected):  # a symbol may be equal to a number, which is asked
        return is_symbolic((found, expected)) and bool(found == expected)
    if isinstance(expected, (tuple, list)):
        return len(found) == len(expected) and all(map(same_spec, found, expected))
    if isinstance(expected, dict):
        return found.keys() == expected.keys() and all(
            same_spec(found[key], value) for key, value in expected.items()
        )
    if isinstance(expected, (float, complex)) and repr(found) != repr(expected):
        return False  # 0.0 equals -0.0, and is another spec
    return bool(found == expected)


def alias_of(wrapper: WrapperT) -> WrapperT:
    """Another wrapper of the same parts, on the same storage, without history (TEN-4)."""
    names, spec = flatten(wrapper)
    inner = {name: getattr(wrapper, name) for name in names}
    meta = wrapper.meta
    alias = unflatten(type(wrapper), inner, spec, meta.shape, meta.stride)
    alias.storage, alias.meta, alias.offset = wrapper.storage, meta, wrapper.offset
    alias.value = wrapper.value
    return alias


def filled(wrapper: Tensor, value: object, dtype: DType) -> Tensor:
    """A contiguous wrapper of the same class and size, filled with a number."""
    before = STATE.grad_mode
    STATE.grad_mode = None if before is None else False
    try:
        made: Any = wrapper.to(dtype)._do("fill", value)
        stride = made.meta.as_contiguous().stride
        return made if made.meta.stride == stride else made._do("restride", stride)
    finally:
        STATE.grad_mode = before


def filled_as(
    tensor: Tensor, size: tuple[int, ...], value: object, dtype: DType, device: object
) -> Tensor:
    """A new tensor filled with a number: a wrapper if it has this wrapper's size, else dense."""
    if tensor.__tensor_dispatch__ is not None and size == tensor.shape:
        return filled(tensor, value, dtype)
    return Operand._filled(tensor, size, value, dtype, device)


def coerced(tensor: Tensor, gradient: Tensor) -> Tensor:
    """A gradient passed to `backward` for a tensor, converted by its class (TAN-5)."""
    coerce = tensor.__tensor_coerce_gradient__
    return gradient if coerce is None else coerce(gradient)


GradientForm = Callable[[Tensor], Tensor]
"""Converts a gradient to the form of a tensor's gradients."""


def gradient_form(tensor: Tensor) -> GradientForm | None:
    """The conversion of gradients of a tensor to their form: its class's, or dense for a dense one
    (SHD-15). None for a class that declares none.
    """
    if not is_wrapper(tensor):
        return whole
    method = tensor.__tensor_gradient_form__
    return None if method is None else method()


def whole(gradient: Tensor) -> Tensor:
    """A gradient of a dense tensor, made dense if its class can be."""
    if gradient.__tensor_gradient_form__ is None:
        return gradient
    found = gradient.__coerce_same_metadata_as_tangent__(None, Tensor)
    return gradient if found is None else found


def formed(tensor: Tensor, gradient: Tensor) -> Tensor:
    """A gradient of a tensor in the form that its class declares, at every level (SHD-15)."""
    form = gradient_form(tensor)
    if form is not None:
        found: Tensor = form(gradient)
        return found
    if type(gradient) is not type(tensor) or not _formed_parts(tensor, gradient):
        return gradient
    meta = gradient.meta.as_contiguous()
    gradient = gradient if gradient.meta is meta else gradient.restride(meta.stride)
    inner = inner_tensors(gradient) | _formed_parts(tensor, gradient)
    made: Tensor = unflatten(type(gradient), inner, flatten(gradient)[1], meta.shape, meta.stride)
    return made


def _formed_parts(tensor: Tensor, gradient: Tensor) -> dict[str, Tensor]:
    """The parts of a gradient that have to change their form, converted, by name."""
    if dense_parts(tensor) is not None and dense_parts(gradient) is not None:
        return {}
    of, parts = inner_tensors(tensor), inner_tensors(gradient)
    new = {name: formed(of[name], part) for name, part in parts.items() if name in of}
    return {name: part for name, part in new.items() if part is not parts[name]}


def tangent_form(tensor: Tensor) -> Tensor:
    """A tensor with the class and layout of its own gradients (TAN-6)."""
    method = getattr(tensor, "__coerce_tangent_metadata__", None)
    return tensor if method is None else method()


def has_function(tensor: Tensor) -> bool:
    """Whether the class of a tensor, or of a part of it, has a `__tensor_function__`."""
    if tensor.__tensor_dispatch__ is None:
        return False
    return tensor.__tensor_function__ is not None or inner_function_class(tensor) is not None


def inner_function_class(wrapper: Tensor) -> type[Tensor] | None:
    """A class with a `__tensor_function__` among the parts of a wrapper, at any depth."""
    for part in inner_tensors(wrapper).values():
        if part.__tensor_dispatch__ is not None:
            if part.__tensor_function__ is not None:
                return type(part)
            found = inner_function_class(part)
            if found is not None:
                return found
    return None


def refuse_inner_function(
    name: str, what: str, tensor: Tensor, *, of_gradients: bool = False
) -> None:
    """Raises for a part with a `__tensor_function__` in a wrapper that needs gradients."""
    asked = is_wrapper(tensor) and (of_gradients or tensor.requires_grad)
    part = inner_function_class(tensor) if asked else None
    if part is not None:
        raise noted(
            SubclassError(
                f"{name}: {what} is a {type(tensor).__name__} with a {part.__name__} "
                f"inside, expected the {part.__name__} outside where gradients are asked for"
            ),
            f"Gradients of a {part.__name__} are not those of the op, which its "
            "__tensor_function__ says, and that is not asked for a part. (SUB-10)",
        )


def leaves_of(tensor: Tensor) -> Iterator[Tensor]:
    """The dense tensors inside a tensor, depth first; a dense tensor itself."""
    if not is_wrapper(tensor):
        yield tensor
        return
    for inner in inner_tensors(tensor).values():
        yield from leaves_of(inner)


def captured_part(tensor: Tensor) -> str | None:
    """The path, such as `a.b`, to a captured tensor inside; empty for itself; None for none."""
    if tensor.storage.capture is not None:
        return ""
    if tensor.__tensor_dispatch__ is None:
        return None
    parts = dense_parts(tensor)
    if parts is not None and all(part.storage.capture is None for part in parts):
        return None
    for name, part in inner_tensors(tensor).items():
        path = captured_part(part)
        if path is not None:
            return f"{name}.{path}" if path else name
    return None


def nesting(tensor: Tensor) -> int:
    """The nesting depth of a wrapper; 0 for a dense tensor."""
    if not is_wrapper(tensor):
        return 0
    return 1 + max(map(nesting, inner_tensors(tensor).values()))


def _kind(value: object) -> str:
    return f"a {type(value).__name__}"


def _broken(cls: type[Tensor], what: str, expected: str) -> Exception:
    return noted(
        ProtocolError(f"{cls.__name__}: it {what}, expected {expected}"),
        "A class is rebuilt from its parts: "
        "__tensor_unflatten__(inner, spec, outer_size, outer_stride) gives what "
        "__tensor_flatten__() took apart. (SUB-1)",
    )
