"""The adapters by the names of libraries. An adapter is imported when its library is asked for."""

from __future__ import annotations

import difflib
import os
import sys
from importlib import import_module
from types import ModuleType

from aotlite.conformance.adapter import Adapter
from aotlite.conformance.signatures import checked
from aotlite.ir.errors import ArgumentError, MissingExtraError, noted

_ADAPTERS = "aotlite.conformance.adapters"
LIBRARIES: dict[str, str] = {
    "numpy": f"{_ADAPTERS}.numpy:NumPy",
    "array-api-strict": f"{_ADAPTERS}.array_api_strict:ArrayAPIStrict",
    "jax": f"{_ADAPTERS}.jax:JAX",
    "cupy": f"{_ADAPTERS}.cupy:CuPy",
    "torch": f"{_ADAPTERS}.torch:Torch",
    "torch-aot-function": f"{_ADAPTERS}.torch:AOTFunction",
    "aotlite": f"{_ADAPTERS}.aotlite:Aotlite",
}
"""Name of a shipped library -> `module:Class` of its adapter."""


def required(module: str, install: str) -> ModuleType:
    """Returns the module of a library. *Err* `MissingExtraError`, with the install command."""
    try:
        return import_module(module)
    except ImportError as error:
        raise MissingExtraError(
            f"conformance: {module} is not installed, expected it for this adapter: "
            f"pip install {install}"
        ) from error


def adapter_of(library: str) -> Adapter:
    """Returns the adapter of a shipped library, or of a `module:Class` of the user's own.

    *Err* `ArgumentError` for another text; `MissingExtraError` and `DeviceError` if the library
    cannot run here.
    """
    module, _, name = LIBRARIES.get(library, library).partition(":")
    if not (module and name):
        known = ", ".join(LIBRARIES)
        text = f"conformance: library is {library!r}, expected one of {known}, or module:Class"
        near = difflib.get_close_matches(library, LIBRARIES, 1)
        raise noted(ArgumentError(text), *(f"Did you mean {each}?" for each in near))
    try:
        found = getattr(import_module(module), name, None)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise
        text = f"conformance: module {module!r} is not found, expected one that Python can import"
        folders = ", ".join(path or os.getcwd() for path in dict.fromkeys(sys.path))
        raise noted(ArgumentError(text), f"looked for in {folders}") from error
    if found is None:
        text = f"conformance: module {module!r} has no {name!r}, expected a class of adapters"
        raise noted(ArgumentError(text), f"the module is {_file_of(module)}")
    if not (isinstance(found, type) and issubclass(found, Adapter)):
        raise ArgumentError(
            f"conformance: {library!r} is {found!r}, expected a subclass of conformance.Adapter"
        )
    return checked(found())


def _file_of(module: str) -> str:
    return getattr(sys.modules[module], "__file__", None) or "not of a file"
