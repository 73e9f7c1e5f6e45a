"""Running StableHLO text by XLA's client for CPUs, and XLA as a backend of `compile`.

Everything that depends on the version of jax is here and in `bindings`. Spec: `specs/stablehlo.md`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from aotlite.interchange.arrays.convention import called, checked
from aotlite.interchange.stablehlo.bindings import MlirBindings
from aotlite.interchange.stablehlo.module import MARK, to_stablehlo
from aotlite.ir.arrays import Array
from aotlite.ir.errors import ArgumentError, MissingExtraError
from aotlite.ir.graph import Graph


class StableHloProgram:
    """The text that `to_stablehlo` made, compiled by XLA: a function of arrays by name.

    >>> import aotlite as al
    >>> f = al.compile(lambda x: x.mul_(2.0).sum(), backend="reference")
    >>> _ = f(al.ones(3))
    >>> program = StableHloProgram(to_stablehlo(f.forward_graph))
    >>> {name: value.tolist() for name, value in program({"primals_0": np.ones(3, "f4")}).items()}
    {'updated_primals_0': [2.0, 2.0, 2.0], 'output_0': 6.0}
    """

    def __init__(self, text: str) -> None:
        if not isinstance(text, str):
            raise ArgumentError(
                f"stablehlo: the text is a {type(text).__name__}, expected a str that to_stablehlo "
                "made"
            )
        first = text.split("\n", 1)[0]
        if not first.startswith(MARK):
            raise ArgumentError(
                f"stablehlo: the text begins with {first[:40]!r}, expected {MARK!r}: a text that "
                "to_stablehlo made"
            )
        self.convention: dict[str, Any] = json.loads(first.removeprefix(MARK))
        """`ProgramConvention` as JSON: inputs, outputs, updates, parameters, gradients."""
        self._run = _compiled(text)

    def __call__(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """The outputs by name; raises ArgumentError for inputs of other names."""
        wanted = checked("stablehlo", self.convention, inputs)
        names = [name for name in self.convention["outputs"] if name is not None]
        names += self.convention["copies"]
        return dict(zip(names, self._run([inputs[name] for name in wanted]), strict=True))

    def step(self, inputs: Mapping[str, Array]) -> tuple[dict[str, Array], dict[str, Array]]:
        """The outputs, and the inputs of the next step: with the new values of those that the
        program updates."""
        outputs = self(inputs)
        new = {target: outputs[name] for name, target in self.convention["updates"].items()}
        return outputs, {**inputs, **new}


def xla_backend(graph: Graph) -> Callable[[list[Any]], list[Any]]:
    """A backend of `compile`: each graph is exported as StableHLO and run by XLA on the CPU.

    >>> import aotlite as al
    >>> f = al.compile(lambda x: (x * x).sum(), backend=xla_backend)
    >>> x = al.arange(3.0).requires_grad_()
    >>> f(x).backward()
    >>> x.grad.tolist()
    [0.0, 2.0, 4.0]
    """
    program = StableHloProgram(to_stablehlo(graph))

    def run(arrays: list[Any]) -> list[Any]:
        return called(program, program.convention, arrays)

    run._boxed_call = True  # type: ignore[attr-defined]
    return run


def _compiled(text: str) -> Callable[[list[Array]], list[Array]]:
    try:
        import jax
        from jaxlib import xla_client
    except ImportError as error:
        raise MissingExtraError(
            "stablehlo: jax is not installed, expected it; install aotlite[stablehlo]"
        ) from error
    device = jax.devices("cpu")[0]
    mlir = MlirBindings()
    with mlir.entered():
        module = mlir.ir.Module.parse(text)
        devices: Any = xla_client.DeviceList((device,))
        options = xla_client.CompileOptions()
        loaded = device.client.compile_and_load(module, devices, options)

    def run(arrays: list[Array]) -> list[Array]:
        with jax.enable_x64(True):
            given = [
                jax.device_put(np.ascontiguousarray(a).reshape(a.shape), device) for a in arrays
            ]
        results = loaded.execute_sharded(given).disassemble_into_single_device_arrays()
        return [np.array(each[0]) for each in results]

    return run
