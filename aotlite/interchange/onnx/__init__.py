"""`aotlite.interchange.onnx`: models for ONNX runtimes. Spec: `specs/onnx.md`."""

from aotlite.interchange.onnx.model import to_onnx
from aotlite.interchange.onnx.session import OnnxProgram, onnxruntime_backend

__all__ = ["OnnxProgram", "onnxruntime_backend", "to_onnx"]
