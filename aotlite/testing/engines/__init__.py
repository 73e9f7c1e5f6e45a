"""The libraries that programs run on: `engine(name)`, and `Engine` to derive one's own from."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module

from aotlite.ir.errors import ArgumentError, MissingExtraError
from aotlite.testing.engines.base import Engine as Engine


def _aotlite() -> Engine:
    from aotlite.testing.engines.own import Aotlite

    return Aotlite()


def _torch() -> Engine:
    from aotlite.testing.engines.pytorch import PyTorch

    try:
        torch = import_module("torch")
    except ImportError as error:
        raise MissingExtraError(
            "engine: PyTorch is not installed, expected the extra: pip install 'aotlite[torch]'"
        ) from error
    return PyTorch(torch)


def _numpy() -> Engine:
    from aotlite.testing.engines.ndarray import NumPyEngine

    return NumPyEngine()


ENGINES: dict[str, Callable[[], Engine]] = {
    "aotlite": _aotlite,
    "numpy": _numpy,
    "torch": _torch,
}
"""What makes each engine that is shipped."""


@cache
def _shipped(name: str) -> Engine:
    return ENGINES[name]()


def engine(name: str | Engine = "aotlite") -> Engine:
    """The engine of this name; an engine itself is given back.

    Raises `ArgumentError` for an unknown name, `MissingExtraError` where its library is not
    installed.

    >>> engine("aotlite").name
    'aotlite'
    """
    if isinstance(name, Engine):
        return name
    if name not in ENGINES:
        known = ", ".join(map(repr, ENGINES))
        raise ArgumentError(f"engine: the name is {name!r}, expected one of {known}")
    return _shipped(name)
