"""Running a model by onnxruntime, and onnxruntime as a backend of `compile`.

Tests run exported steps so; users may take it as an example, or as their runner.
Spec: `specs/onnx.md`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from os import PathLike
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from aotlite.interchange.arrays.convention import called, checked
from aotlite.interchange.onnx.model import KEY, loaded, to_onnx
from aotlite.interchange.sizes.program_sizes import value_of, values_in
from aotlite.ir.arrays import Array
from aotlite.ir.errors import ArgumentError, MissingExtraError
from aotlite.ir.graph import Graph

if TYPE_CHECKING:
    from onnx import ModelProto


class OnnxProgram:
    """A model that `to_onnx` made, or the file of one, as a function of arrays by name.

    >>> import aotlite as al
    >>> f = al.compile(lambda x: x.mul_(2.0).sum(), backend="reference")
    >>> _ = f(al.ones(3))
    >>> program = OnnxProgram(to_onnx(f.forward_graph))
    >>> {name: value.tolist() for name, value in program({"primals_0": np.ones(3, "f4")}).items()}
    {'updated_primals_0': [2.0, 2.0, 2.0], 'output_0': 6.0}
    """

    def __init__(self, model: ModelProto | str | PathLike[str]) -> None:
        if isinstance(model, (str, PathLike)):
            model = loaded(model)
        if not hasattr(model, "metadata_props"):
            raise ArgumentError(
                f"onnx: the model is {model!r}, expected a model that to_onnx made, or its path"
            )
        found = {each.key: each.value for each in model.metadata_props}
        if KEY not in found:
            raise ArgumentError(
                f"onnx: the model's metadata has the keys {list(found)}, expected {KEY!r}: a model "
                "that to_onnx made"
            )
        self.convention: dict[str, Any] = json.loads(found[KEY])
        """`ProgramConvention` as JSON: inputs, outputs, updates, parameters, gradients."""
        # onnxruntime takes no model without values.
        self._session = _session(model) if model.graph.output else None

    def __call__(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """The outputs by name; raises ArgumentError for inputs of other names."""
        checked("onnx", self.convention, inputs)
        if self._session is None:
            return {}
        names = [each.name for each in self._session.get_outputs()]
        sizes = values_in("onnx", self.convention, inputs)
        return dict(zip(names, _ran(self._session, inputs, names, sizes), strict=True))

    def step(self, inputs: Mapping[str, Array]) -> tuple[dict[str, Array], dict[str, Array]]:
        """The outputs, and the inputs of the next step: with the new values of those that the
        program updates."""
        outputs = self(inputs)
        new = {target: outputs[name] for name, target in self.convention["updates"].items()}
        return outputs, {**inputs, **new}


def onnxruntime_backend(graph: Graph) -> Callable[[list[Any]], list[Any]]:
    """A backend of `compile`: each graph is exported and run by onnxruntime on the CPU.

    >>> import aotlite as al
    >>> f = al.compile(lambda x: (x * x).sum(), backend=onnxruntime_backend)
    >>> x = al.arange(3.0).requires_grad_()
    >>> f(x).backward()
    >>> x.grad.tolist()
    [0.0, 2.0, 4.0]
    """
    program = OnnxProgram(to_onnx(graph))

    def run(arrays: list[Any]) -> list[Any]:
        return called(program, program.convention, arrays)

    run._boxed_call = True  # type: ignore[attr-defined]
    return run


def _session(model: ModelProto) -> Any:
    try:
        import onnxruntime
    except ImportError as error:
        raise MissingExtraError(
            "onnx: onnxruntime is not installed, expected it; install aotlite[onnx]"
        ) from error
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


def _ran(
    session: Any, inputs: Mapping[str, Array], names: list[str], sizes: Mapping[str, int]
) -> list[Array]:
    """Runs a session; arrays of 16- and 8-bit floats that NumPy lacks go in as their bits."""
    import onnxruntime

    binding = session.io_binding()
    kept = []
    for name, array in inputs.items():
        dense = np.ascontiguousarray(array).reshape(np.shape(array))
        kind = _KINDS.get(dense.dtype.name)
        if kind is None:
            value = onnxruntime.OrtValue.ortvalue_from_numpy(dense)
        else:
            bits = dense.view(f"u{dense.itemsize}")
            value = onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(bits, kind)
        kept.append((dense, value))
        binding.bind_ortvalue_input(name, value)
    made = {}
    for each in session.get_outputs():
        made[each.name] = _bound(binding, each, sizes)
    session.run_with_iobinding(binding)
    values = dict(zip(names, binding.get_outputs(), strict=True))
    found = [made[name] for name in names]
    return [
        values[name].numpy() if array is None else array
        for name, array in zip(names, found, strict=True)
    ]


_KINDS = {"bfloat16": 16, "float8_e4m3fn": 17, "float8_e5m2": 19}
"""NumPy's name of an extension dtype -> the number of ONNX's type."""


def _bound(binding: Any, output: Any, sizes: Mapping[str, int]) -> Array | None:
    """Binds an output; to memory of its own where NumPy lacks the dtype."""
    name = output.type.removeprefix("tensor(").removesuffix(")")
    known = {"bfloat16": "bfloat16", "float8e4m3fn": "float8_e4m3fn", "float8e5m2": "float8_e5m2"}
    if name not in known:
        binding.bind_output(output.name)
        return None
    shape = [value_of(size, sizes) if isinstance(size, str) else size for size in output.shape]
    made = np.zeros(shape, getattr(ml_dtypes, known[name]))
    kind = _KINDS[known[name]]
    binding.bind_output(output.name, "cpu", 0, kind, made.shape, made.ctypes.data)
    return made
