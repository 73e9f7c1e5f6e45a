"""AOTAutograd on its own: eager functions become pure forward and backward graphs.

This module is a table of names. Nothing is imported before it is asked for, so `import aotlite`
costs nothing and needs no extra.
"""

import importlib
import os
from typing import TYPE_CHECKING

__version__ = "0.1.0"

# In a bare checkout `ir/` and `backends/` are neighbours of this folder, not inside it. Once
# installed they are inside, and these lines do nothing.
if not os.path.isdir(os.path.join(__path__[0], "ir")):
    __path__.append(os.path.dirname(os.path.abspath(__path__[0])))

# Type checkers see this block, programs the table below; a test compares the two. Each line reads
# `from aotlite.module import name as name`.
if TYPE_CHECKING:
    pass

# Public name -> module that defines it. No name may equal a submodule's: importing the submodule
# would bind the module over it.
_LAZY: dict[str, str] = {
    **dict.fromkeys(
        ("tensor from_numpy full zeros ones empty zeros_like ones_like rand arange cat stack where").split(),
        "aotlite.eager.functions",
    ),
    **dict.fromkeys(
        "no_grad enable_grad set_grad_enabled is_grad_enabled".split(), "aotlite.eager.state"
    ),
    **dict.fromkeys("manual_seed get_rng_state set_rng_state".split(), "aotlite.eager.random"),
    **dict.fromkeys(
        "float16 float32 float64 bfloat16 int8 int16 int32 int64 uint8 bool_ complex64 complex128".split(),
        "aotlite.ir.dtypes",
    ),
    **dict.fromkeys(
        (
            "AliasError AotliteError ArgumentError AutogradError BackendError DTypeError DeviceError "
            "FormatError GraphError GuardError IndexOutOfRangeError MissingExtraError ShapeError "
            "UnsupportedError"
        ).split(),
        "aotlite.ir.errors",
    ),
    "Tensor": "aotlite.eager.tensor",
    "Device": "aotlite.ir.device",
}

# Subpackages reached as attributes without an import of their own.
_SUBMODULES = frozenset({"autograd", "backends", "data", "ir", "nn", "optim", "stages", "testing"})


def __getattr__(name: str) -> object:
    """The public object `name`, imported on first use and kept."""
    if name in _SUBMODULES:
        return importlib.import_module(f"{__name__}.{name}")
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(importlib.import_module(_LAZY[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({"__version__", *_LAZY, *_SUBMODULES})
