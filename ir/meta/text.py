"""The text of metas, dtypes and devices (`f32[4, 3]`, `float32`, `cuda:0`), and its parser.

Ground floor. Printed graphs (`ir/graph/text/printer.py`) annotate values with it, and ops with
effects take the metas of their results in this form. Spec: `specs/graph.md`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from types import MappingProxyType

from aotlite.ir import dtypes
from aotlite.ir.arrays.cuda_devices import device_named
from aotlite.ir.arrays.device import CPU, Device, is_cuda
from aotlite.ir.dtypes import DType
from aotlite.ir.errors import ArgumentError, FormatError
from aotlite.ir.geometry import layout
from aotlite.ir.geometry.sizes import always_same
from aotlite.ir.meta import TensorMeta, tensor_meta

__all__ = ["HOST", "device_from_text", "dtype_text", "meta_from_text", "meta_text"]

HOST: Mapping[str, Device] = {CPU.name: CPU}


def dtype_text(dtype: DType) -> str:
    """The name of a dtype in printed text: PyTorch's, but `bool_`, which does not shadow `bool`."""
    return "bool_" if dtype is dtypes.bool_ else dtype.name


def meta_text(meta: object) -> str:
    """`f32[4, 3]`; then the strides if they are not row-major, and the device if not the CPU.

    >>> from aotlite.ir.meta import tensor_meta
    >>> meta_text(tensor_meta((2, 3), (1, 2)))
    'f32[2, 3][1, 2]'
    """
    if type(meta) is tuple:
        return f"({', '.join(map(meta_text, meta))})"
    if type(meta) is not TensorMeta:
        return repr(meta)
    text = f"{meta.dtype.short}[{', '.join(map(str, meta.shape))}]"
    if not always_same(meta.stride, layout.contiguous_strides(meta.shape)):
        text += f"[{', '.join(map(str, meta.stride))}]"
    return text if meta.device is CPU else f"{text}@{meta.device.name}"


_META = re.compile(r"(\w+)\[([\d, ]*)\](?:\[([\d, ]*)\])?(?:@(\S+))?")
_SIZED = re.compile(r"(\w+)\[([^][]*)\](?:\[([^][]*)\])?(?:@(\S+))?")
_NUMBERS: Mapping[str, int] = MappingProxyType({})


def meta_from_text(
    text: str, *, devices: Mapping[str, Device] = HOST, sizes: Mapping[str, int] = _NUMBERS
) -> TensorMeta:
    """The meta that `meta_text` prints. Raises FormatError for another text.

    `sizes` are numbers for the symbols in it, whose expressions are evaluated as Python.

    >>> meta_from_text("i64[2, 3][1, 2]"), meta_from_text("f32[s0//2, 3]", sizes={"s0": 8})
    (i64[2, 3][1, 2], f32[4, 3])
    """
    match = _META.fullmatch(text)
    if match is None and sizes:
        match = _META.fullmatch(_SIZED.sub(partial(_in_numbers, sizes), text))
    if match is None:
        raise FormatError(f"source: the meta is {text!r}, expected one such as 'f32[2, 3][1, 2]'")
    dtype, shape, stride, device = match.groups()
    return tensor_meta(
        _sizes(shape),
        None if stride is None else _sizes(stride),
        dtypes.by_name(dtype),
        device_from_text(device or CPU.name, devices),
    )


def _in_numbers(sizes: Mapping[str, int], found: re.Match[str]) -> str:
    """The text of a meta with numbers for its sizes."""
    kind, shape, stride, device = found.groups()
    try:
        texts = [_evaluated(each, sizes) for each in (shape, stride) if each is not None]
    except (NameError, SyntaxError, TypeError):
        return found[0]
    return f"{kind}{''.join(texts)}" + (f"@{device}" if device else "")


def _evaluated(text: str, sizes: Mapping[str, int]) -> str:
    """`[4, 3]`, of sizes between commas: those inside of a call are not between sizes."""
    found: object = eval(f"[{text}]", {"__builtins__": {}, "max": max, "min": min, **sizes})
    return str(found)


def _sizes(text: str) -> tuple[int, ...]:
    return tuple([int(part) for part in text.split(",") if part.strip()])


def device_from_text(name: str, devices: Mapping[str, Device]) -> Device:
    """The device of this name among `devices`; also any CUDA device where these are `HOST`."""
    if devices is HOST and is_cuda(name):
        return device_named(name)
    if name not in devices:
        known = ", ".join(devices)
        raise ArgumentError(f"device: name is {name!r}, expected one of those given: {known}")
    return devices[name]
