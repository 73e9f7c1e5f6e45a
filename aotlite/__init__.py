"""AOTAutograd on its own: eager functions become pure forward and backward graphs.

This module is a table of names. Nothing is imported before it is asked for, so `import aotlite`
costs nothing and needs no extra.
"""

import importlib
import os
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

# In a bare checkout `ir/` and `backends/` are neighbors of this folder, not inside it. Once
# installed they are inside, and these lines do nothing.
if not os.path.isdir(os.path.join(__path__[0], "ir")):
    __path__.append(os.path.dirname(os.path.abspath(__path__[0])))


class _MovedModules:
    """The last finder: an import of a module by the name that it had before says its new name.

    Finders are asked under the lock of all imports, where to import something can wait for ever:
    the answer is a loader that raises the error. Who only asks whether a module exists gets None.
    """

    @classmethod
    def find_spec(cls, name: str, path: object = None, target: object = None) -> object:
        if not name.startswith("aotlite."):
            return None
        asking = sys._getframe(1).f_back
        if asking is None or asking.f_code.co_name != "_find_and_load_unlocked":
            return None
        return type(__spec__)(name, cls)  # type: ignore[arg-type]

    @staticmethod
    def create_module(spec: Any) -> None:
        table = importlib.import_module("aotlite.moved_modules")
        raise table.import_error(spec.name, sys._getframe(1))

    @staticmethod
    def exec_module(module: object) -> None:
        """Not reached: no module is created."""


if not any(getattr(each, "__name__", "") == _MovedModules.__name__ for each in sys.meta_path):
    sys.meta_path.append(_MovedModules)  # type: ignore[arg-type]

# Type checkers see this block, programs the table below. tools/front_types.py makes the one from
# the other, and a test compares them.
if TYPE_CHECKING:
    from aotlite import autograd as autograd
    from aotlite import backends as backends
    from aotlite import compiled_autograd as compiled_autograd
    from aotlite import compilers as compilers
    from aotlite import cuda as cuda
    from aotlite import data as data
    from aotlite import decompositions as decompositions
    from aotlite import effects as effects
    from aotlite import export as export
    from aotlite import func as func
    from aotlite import fx as fx
    from aotlite import inspect as inspect
    from aotlite import ir as ir
    from aotlite import linalg as linalg
    from aotlite import nn as nn
    from aotlite import ops as ops
    from aotlite import optim as optim
    from aotlite import partition as partition
    from aotlite import random as random
    from aotlite import sharding as sharding
    from aotlite import stages as stages
    from aotlite import subclasses as subclasses
    from aotlite import testing as testing
    from aotlite.aot import aot_function as aot_function
    from aotlite.aot import aot_module as aot_module
    from aotlite.aot import aot_module_simplified as aot_module_simplified
    from aotlite.aot import freeze as freeze
    from aotlite.aot import load as load
    from aotlite.api import CompiledFunction as CompiledFunction
    from aotlite.api import capture as capture
    from aotlite.api import compile as compile
    from aotlite.backends.threads import get_num_threads as get_num_threads
    from aotlite.backends.threads import set_num_threads as set_num_threads
    from aotlite.eager.base.modes import enable_grad as enable_grad
    from aotlite.eager.base.modes import inference_mode as inference_mode
    from aotlite.eager.base.modes import is_grad_enabled as is_grad_enabled
    from aotlite.eager.base.modes import is_inference_mode_enabled as is_inference_mode_enabled
    from aotlite.eager.base.modes import no_grad as no_grad
    from aotlite.eager.base.modes import set_grad_enabled as set_grad_enabled
    from aotlite.eager.base.tensor import Tensor as Tensor
    from aotlite.eager.creation.dtype_queries import can_cast as can_cast
    from aotlite.eager.creation.dtype_queries import get_default_dtype as get_default_dtype
    from aotlite.eager.creation.dtype_queries import is_complex as is_complex
    from aotlite.eager.creation.dtype_queries import is_floating_point as is_floating_point
    from aotlite.eager.creation.dtype_queries import is_tensor as is_tensor
    from aotlite.eager.creation.dtype_queries import numel as numel
    from aotlite.eager.creation.dtype_queries import promote_types as promote_types
    from aotlite.eager.creation.dtype_queries import result_type as result_type
    from aotlite.eager.creation.factories import arange as arange
    from aotlite.eager.creation.factories import empty as empty
    from aotlite.eager.creation.factories import empty_strided as empty_strided
    from aotlite.eager.creation.factories import eye as eye
    from aotlite.eager.creation.factories import full as full
    from aotlite.eager.creation.factories import linspace as linspace
    from aotlite.eager.creation.factories import logspace as logspace
    from aotlite.eager.creation.factories import ones as ones
    from aotlite.eager.creation.factories import scalar_tensor as scalar_tensor
    from aotlite.eager.creation.factories import zeros as zeros
    from aotlite.eager.creation.from_data import as_tensor as as_tensor
    from aotlite.eager.creation.from_data import asarray as asarray
    from aotlite.eager.creation.from_data import tensor as tensor
    from aotlite.eager.creation.from_data import where as where
    from aotlite.eager.creation.interop import from_dlpack as from_dlpack
    from aotlite.eager.creation.interop import from_numpy as from_numpy
    from aotlite.eager.creation.random_factories import normal as normal
    from aotlite.eager.creation.random_factories import rand as rand
    from aotlite.eager.creation.random_factories import randint as randint
    from aotlite.eager.creation.random_factories import randn as randn
    from aotlite.eager.creation.random_factories import randperm as randperm
    from aotlite.eager.dispatch.dispatch_mode import DispatchMode as DispatchMode
    from aotlite.eager.dispatch.selective_checkpoint import CheckpointPolicy as CheckpointPolicy
    from aotlite.eager.dispatch.selective_checkpoint import (
        create_selective_checkpoint_contexts as create_selective_checkpoint_contexts,
    )
    from aotlite.eager.regions.annotate import annotate as annotate
    from aotlite.eager.regions.checkpoint import checkpoint as checkpoint
    from aotlite.eager.regions.nested_region import nested_compile_region as nested_compile_region
    from aotlite.eager.rng.generator import Generator as Generator
    from aotlite.eager.rng.generator import default_generator as default_generator
    from aotlite.eager.rng.generator import get_rng_state as get_rng_state
    from aotlite.eager.rng.generator import initial_seed as initial_seed
    from aotlite.eager.rng.generator import manual_seed as manual_seed
    from aotlite.eager.rng.generator import set_rng_state as set_rng_state
    from aotlite.ir.arrays.device import Device as Device
    from aotlite.ir.dtypes import bfloat16 as bfloat16
    from aotlite.ir.dtypes import bool_ as bool_
    from aotlite.ir.dtypes import complex64 as complex64
    from aotlite.ir.dtypes import complex128 as complex128
    from aotlite.ir.dtypes import float8_e4m3fn as float8_e4m3fn
    from aotlite.ir.dtypes import float8_e5m2 as float8_e5m2
    from aotlite.ir.dtypes import float16 as float16
    from aotlite.ir.dtypes import float32 as float32
    from aotlite.ir.dtypes import float64 as float64
    from aotlite.ir.dtypes import int8 as int8
    from aotlite.ir.dtypes import int16 as int16
    from aotlite.ir.dtypes import int32 as int32
    from aotlite.ir.dtypes import int64 as int64
    from aotlite.ir.dtypes import uint8 as uint8
    from aotlite.ir.dtypes import uint16 as uint16
    from aotlite.ir.dtypes import uint32 as uint32
    from aotlite.ir.dtypes import uint64 as uint64
    from aotlite.ir.dtypes.limits import finfo as finfo
    from aotlite.ir.dtypes.limits import iinfo as iinfo
    from aotlite.ir.dtypes.names import bool as bool
    from aotlite.ir.dtypes.names import cdouble as cdouble
    from aotlite.ir.dtypes.names import cfloat as cfloat
    from aotlite.ir.dtypes.names import double as double
    from aotlite.ir.dtypes.names import float as float
    from aotlite.ir.dtypes.names import half as half
    from aotlite.ir.dtypes.names import int as int
    from aotlite.ir.dtypes.names import long as long
    from aotlite.ir.dtypes.names import short as short
    from aotlite.ir.errors import AbsentError as AbsentError
    from aotlite.ir.errors import AliasError as AliasError
    from aotlite.ir.errors import AotliteError as AotliteError
    from aotlite.ir.errors import ArgumentError as ArgumentError
    from aotlite.ir.errors import AutogradError as AutogradError
    from aotlite.ir.errors import BackendError as BackendError
    from aotlite.ir.errors import DeviceError as DeviceError
    from aotlite.ir.errors import DTypeError as DTypeError
    from aotlite.ir.errors import ExportError as ExportError
    from aotlite.ir.errors import FormatError as FormatError
    from aotlite.ir.errors import FreezeError as FreezeError
    from aotlite.ir.errors import GraphError as GraphError
    from aotlite.ir.errors import GuardError as GuardError
    from aotlite.ir.errors import IndexOutOfRangeError as IndexOutOfRangeError
    from aotlite.ir.errors import LinAlgError as LinAlgError
    from aotlite.ir.errors import MissingExtraError as MissingExtraError
    from aotlite.ir.errors import OutOfMemoryError as OutOfMemoryError
    from aotlite.ir.errors import ProtocolError as ProtocolError
    from aotlite.ir.errors import RngError as RngError
    from aotlite.ir.errors import ShapeError as ShapeError
    from aotlite.ir.errors import SubclassError as SubclassError
    from aotlite.ir.errors import TangentError as TangentError
    from aotlite.ir.errors import TokenError as TokenError
    from aotlite.ir.errors import UnsupportedError as UnsupportedError
    from aotlite.ir.geometry.memory_format import MemoryFormat as MemoryFormat
    from aotlite.ir.geometry.memory_format import channels_last as channels_last
    from aotlite.ir.geometry.memory_format import channels_last_3d as channels_last_3d
    from aotlite.ir.geometry.memory_format import contiguous_format as contiguous_format
    from aotlite.ir.geometry.memory_format import preserve_format as preserve_format
    from aotlite.library import register_op as register_op
    from aotlite.partition import (
        min_cut_rematerialization_partition as min_cut_rematerialization_partition,
    )
    from aotlite.pipeline.logs.log_options import set_logs as set_logs
    from aotlite.pipeline.size_regions.counts.assertion import check as check
    from aotlite.pipeline.size_regions.counts.assertion import size_hint as size_hint
    from aotlite.pipeline.size_regions.named_dimensions import Dim as Dim
    from aotlite.pipeline.size_regions.tensor_marks import mark_dynamic as mark_dynamic
    from aotlite.pipeline.size_regions.tensor_marks import mark_static as mark_static

# Public name -> module that defines it. No name may equal a submodule's: importing the submodule
# would bind the module over it.
_LAZY: dict[str, str] = {
    name: module
    for module, names in {
        "aotlite.aot": "aot_function aot_module aot_module_simplified freeze load",
        "aotlite.api": "CompiledFunction capture compile",
        "aotlite.backends.threads": "get_num_threads set_num_threads",
        "aotlite.eager.dispatch.dispatch_mode": "DispatchMode",
        "aotlite.eager.dispatch.selective_checkpoint": """
            CheckpointPolicy create_selective_checkpoint_contexts
        """,
        "aotlite.eager.regions.annotate": "annotate",
        "aotlite.eager.regions.checkpoint": "checkpoint",
        "aotlite.eager.regions.nested_region": "nested_compile_region",
        "aotlite.eager.creation.random_factories": "normal rand randint randn randperm",
        "aotlite.eager.creation.interop": "from_dlpack from_numpy",
        "aotlite.eager.creation.factories": """
            arange empty empty_strided eye full linspace logspace ones scalar_tensor zeros
        """,
        "aotlite.eager.creation.from_data": "as_tensor asarray tensor where",
        "aotlite.eager.creation.dtype_queries": """
            can_cast get_default_dtype is_complex is_floating_point is_tensor numel promote_types
            result_type
        """,
        "aotlite.eager.rng.generator": """
            Generator default_generator get_rng_state initial_seed manual_seed set_rng_state
        """,
        "aotlite.eager.base.modes": """
            enable_grad inference_mode is_grad_enabled is_inference_mode_enabled no_grad
            set_grad_enabled
        """,
        "aotlite.eager.base.tensor": "Tensor",
        "aotlite.ir.arrays.device": "Device",
        "aotlite.ir.dtypes.names": "bool cdouble cfloat double float half int long short",
        "aotlite.ir.dtypes": """
            bfloat16 bool_ complex64 complex128 float8_e4m3fn float8_e5m2 float16 float32 float64
            int8 int16 int32 int64 uint8 uint16 uint32 uint64
        """,
        "aotlite.ir.errors": """
            AbsentError AliasError AotliteError ArgumentError AutogradError BackendError DTypeError
            DeviceError ExportError FormatError FreezeError
            GraphError GuardError IndexOutOfRangeError LinAlgError MissingExtraError
            OutOfMemoryError ProtocolError RngError ShapeError SubclassError TangentError TokenError
            UnsupportedError
        """,
        "aotlite.ir.dtypes.limits": "finfo iinfo",
        "aotlite.ir.geometry.memory_format": """
            MemoryFormat channels_last channels_last_3d contiguous_format preserve_format
        """,
        "aotlite.library": "register_op",
        "aotlite.pipeline.logs.log_options": "set_logs",
        "aotlite.pipeline.size_regions.counts.assertion": "check size_hint",
        "aotlite.pipeline.size_regions.named_dimensions": "Dim",
        "aotlite.pipeline.size_regions.tensor_marks": "mark_dynamic mark_static",
        "aotlite.partition": "min_cut_rematerialization_partition",
    }.items()
    for name in names.split()
}

# Subpackages reached as attributes without an import of their own.
_SUBMODULES = frozenset(
    """
    autograd backends compiled_autograd compilers cuda data decompositions effects export func fx
    inspect ir linalg nn ops optim partition random sharding stages subclasses testing
    """.split()
)


_ABSENT = dict.fromkeys(
    ("complex32", "chalf"),
    ": there is no complex dtype of 16-bit parts (TEN-6); use complex64, or two float16 tensors",
)
"""Advice for names of PyTorch that do not exist here."""


def __getattr__(name: str) -> Any:
    """The public object `name`, imported on first use and kept.

    A name that is in neither table is the function of an op or composite.
    """
    if name in _SUBMODULES:
        return _imported(f"{__name__}.{name}")
    value: object = None
    if name in _LAZY:
        value = getattr(_imported(_LAZY[name]), name)
    elif not name.startswith("_"):
        value = _imported("aotlite.eager.creation.namespace").function(name)
    if value is None:
        raise AttributeError(
            f"module {__name__!r} has no attribute {name!r}{_ABSENT.get(name, '')}"
        )
    globals()[name] = value
    return value


def _imported(name: str) -> ModuleType:
    """The module `name`. Of all that an import makes nothing is garbage, so none is looked for."""
    with importlib.import_module("aotlite.ir.collector").collector_paused():
        return importlib.import_module(name)


def __dir__() -> list[str]:
    derived = importlib.import_module("aotlite.eager.creation.namespace").names()
    return sorted({"__version__", *_LAZY, *_SUBMODULES, *derived})
