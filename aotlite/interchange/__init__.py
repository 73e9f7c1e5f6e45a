"""`aotlite.interchange`: programs for other runtimes: ONNX models, and StableHLO text.

Spec: `specs/onnx.md`, `specs/stablehlo.md`.
"""

from aotlite.interchange.onnx import OnnxProgram, onnxruntime_backend, to_onnx
from aotlite.interchange.stablehlo import StableHloProgram, to_stablehlo, xla_backend

__all__ = [
    "OnnxProgram",
    "StableHloProgram",
    "onnxruntime_backend",
    "to_onnx",
    "to_stablehlo",
    "xla_backend",
]
