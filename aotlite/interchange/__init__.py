"""`aotlite.interchange`: programs for other runtimes, and graphs of other libraries.

ONNX models, StableHLO text, graphs of torch.fx in both directions, and jaxprs as graphs.
Spec: `specs/onnx.md`, `specs/stablehlo.md`, `specs/torch_fx.md`, `specs/jaxpr.md`.
"""

from aotlite.interchange.jaxpr import from_jaxpr
from aotlite.interchange.onnx import OnnxProgram, onnxruntime_backend, to_onnx
from aotlite.interchange.stablehlo import StableHloProgram, to_stablehlo, xla_backend
from aotlite.interchange.torch_fx import from_fx, to_fx

__all__ = [
    "OnnxProgram",
    "StableHloProgram",
    "from_fx",
    "from_jaxpr",
    "onnxruntime_backend",
    "to_fx",
    "to_onnx",
    "to_stablehlo",
    "xla_backend",
]
