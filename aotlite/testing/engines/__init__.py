"""The libraries that programs run on: `engine(name)`, and `Engine`, the base of your own.

    base          `Engine`, `engine`, and the ops that are no methods of tensors
    eager         aotlite; `pytorch`, `ndarray`: PyTorch and NumPy
    interpreter   runs the steps of programs on an engine

Place: above the steps and the text of programs, below `observe`.
"""

from __future__ import annotations

from importlib import import_module

from aotlite.ir.errors import MissingExtraError
from aotlite.testing.engines.base import ENGINES as ENGINES
from aotlite.testing.engines.base import Engine as Engine
from aotlite.testing.engines.base import engine as engine
from aotlite.testing.engines.eager import AotliteEngine
from aotlite.testing.engines.ndarray import NumPyEngine
from aotlite.testing.engines.pytorch import TorchEngine


def _torch() -> Engine:
    try:
        torch = import_module("torch")
    except ImportError as error:
        raise MissingExtraError(
            "engine: PyTorch is not installed, expected the extra: pip install 'aotlite[torch]'"
        ) from error
    return TorchEngine(torch)


ENGINES.update({"aotlite": AotliteEngine, "numpy": NumPyEngine, "torch": _torch})
