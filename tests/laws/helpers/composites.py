"""Running composites on samples, here and in PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np

import aotlite as al
from aotlite.eager.dispatch import _HANDLERS
from aotlite.ir.arrays.device import CPU
from aotlite.ir.dtypes import DType
from aotlite.ir.geometry.memory_format import MemoryFormat
from aotlite.ir.op import OPS, DataOp
from aotlite.ir.op.composite import COMPOSITES
from aotlite.testing.laws.ops.runs import tensor_of, tensors_in
from aotlite.testing.laws.samples.sample import Sample
from tests.laws.twins.torch_twins import special_twin, torch_tensor


def entry(name: str) -> str:
    """The name of a composite in samples, twins and differences: `max()` if an op is `max`."""
    return f"{name}()" if name in OPS else name


def arguments(sample: Sample) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The sample's arguments with a tensor on fresh memory for each array."""
    return tuple(map(_ours, sample.args)), {k: _ours(v) for k, v in sample.kwargs.items()}


def _ours(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return tensor_of(value)
    if isinstance(value, (tuple, list)):
        return type(value)(map(_ours, value))
    return value


def call(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The result of the composite."""
    made = COMPOSITES[name]
    return made.function(args[0]) if made.is_property else made(*args, **kwargs)


def runs_data_op(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether the composite, on these arguments, calls an op that no capture accepts (GEN-8)."""
    found: list[Any] = []
    handler = _HANDLERS[DataOp]

    def note(op: Any, *rest: Any) -> Any:
        found.append(op)
        return handler(op, *rest)

    try:
        _HANDLERS[DataOp] = note
        call(name, args, kwargs)
    finally:
        _HANDLERS[DataOp] = handler
    return bool(found)


def compiled_call(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The result of the compiled composite, as a function of the tensors alone."""
    given = [i for i, value in enumerate(args) if tensors_in(value)]

    def function(*tensors: Any) -> Any:
        rest = dict(zip(given, tensors, strict=True))
        return call(name, tuple(rest.get(i, value) for i, value in enumerate(args)), kwargs)

    return al.compile(function)(*[args[i] for i in given])


# ---------------------------------------------------------------------------------------- PyTorch
def torch_arguments(torch: Any, sample: Sample) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The same arguments for PyTorch."""

    def theirs(value: Any) -> Any:
        if isinstance(value, np.ndarray):
            return torch_tensor(torch, value)
        if isinstance(value, DType):
            return getattr(torch, value.name)
        if isinstance(value, MemoryFormat):
            return getattr(torch, value.name)
        if value is CPU:
            return torch.device("cpu")
        if isinstance(value, (tuple, list)):
            return type(value)(map(theirs, value))
        return value

    return tuple(map(theirs, sample.args)), {k: theirs(v) for k, v in sample.kwargs.items()}


def torch_call_composite(torch: Any, name: str, args: Any, kwargs: Any) -> Any:
    """The result of PyTorch's function of this name: of a twin, the method, or the function."""
    special = special_twin(entry(name))
    if special is not None:
        return special(torch, *args, **kwargs)
    if COMPOSITES[name].is_property:
        return getattr(args[0], name)
    for owner in (torch.Tensor, torch, torch.nn.functional):
        found = getattr(owner, name, None)
        if found is not None and (owner is not torch.Tensor or COMPOSITES[name].is_method):
            return found(*args, **kwargs)
    raise AssertionError(
        f"{name}: PyTorch has nothing of this name; say its twin in tests/laws/twins"
    )


# --------------------------------------------------------------------------------------- aliasing
def aliasing(operands: Any, results: Any, torch: Any = None) -> list[Any]:
    """For each result: which operand it is, else which operand's memory it is in, and where."""
    found = []
    for result in _flat(results, torch):
        same = [k for k, t in enumerate(_flat(operands, torch)) if t is result]
        shared = [k for k, t in enumerate(_flat(operands, torch)) if _shares(t, result, torch)]
        where = _offset(result, torch) if shared else None
        found.append(("is", same[0]) if same else ("in", shared, where))
    return found


def _flat(value: Any, torch: Any) -> list[Any]:
    if torch is None:
        return tensors_in(value)
    if isinstance(value, torch.Tensor):
        return [value]
    items = value if isinstance(value, (tuple, list)) else ()
    return [tensor for item in items for tensor in _flat(item, torch)]


def _shares(a: Any, b: Any, torch: Any) -> bool:
    if torch is None:
        return a.storage is b.storage
    return a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr() != 0


def _offset(tensor: Any, torch: Any) -> int:
    return tensor.offset if torch is None else tensor.storage_offset()
