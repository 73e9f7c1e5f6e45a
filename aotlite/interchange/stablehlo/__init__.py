"""`aotlite.interchange.stablehlo`: programs for XLA. Spec: `specs/stablehlo.md`."""

from aotlite.interchange.stablehlo.module import to_stablehlo
from aotlite.interchange.stablehlo.runner import StableHloProgram, xla_backend

__all__ = ["StableHloProgram", "to_stablehlo", "xla_backend"]
