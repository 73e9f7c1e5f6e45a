"""From the name of a library to its adapter. Nothing is imported before it is asked."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from aotlite.ir.errors import ArgumentError, MissingExtraError
from aotlite.testing.conformance.adapter import Adapter
from aotlite.testing.conformance.signatures import checked

_ADAPTERS = "aotlite.testing.conformance.adapters"
LIBRARIES: dict[str, str] = {
    "numpy": f"{_ADAPTERS}.numpy:NumPy",
    "array-api-strict": f"{_ADAPTERS}.array_api_strict:ArrayAPIStrict",
    "jax": f"{_ADAPTERS}.jax:JAX",
    "cupy": f"{_ADAPTERS}.cupy:CuPy",
    "torch": f"{_ADAPTERS}.torch:Torch",
    "torch-aot-function": f"{_ADAPTERS}.torch:AOTFunction",
    "aotlite": f"{_ADAPTERS}.aotlite:Aotlite",
}
"""Name of a shipped adapter -> where its class is."""


def required(module: str, install: str) -> Any:
    """The module of a library. *Err* `MissingExtraError`, which says what to install."""
    try:
        return import_module(module)
    except ImportError as error:
        raise MissingExtraError(
            f"conformance: {module} is not installed, expected it for this adapter: "
            f"pip install {install}"
        ) from error


def adapter_of(library: str) -> Adapter:
    """The adapter of a shipped library, or of a `module:Class` of the user's own.

    *Err* `ArgumentError` for what is neither; `MissingExtraError` and `DeviceError` where the
    library cannot run here.
    """
    module, _, name = LIBRARIES.get(library, library).partition(":")
    if not (module and name):
        known = ", ".join(LIBRARIES)
        raise ArgumentError(
            f"conformance: library is {library!r}, expected one of {known}, or module:Class"
        )
    try:
        found = getattr(import_module(module), name, None)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise
        raise ArgumentError(
            f"conformance: module {module!r} is not found, expected one that Python can import"
        ) from error
    if not (isinstance(found, type) and issubclass(found, Adapter)):
        raise ArgumentError(
            f"conformance: {library!r} is {found!r}, expected a subclass of conformance.Adapter"
        )
    return checked(found())
