"""`aotlite.export`: programs that leave: functional graphs of Modules, with their signatures.

Rules: EXP-1 to EXP-19. Spec: `specs/export.md`.
"""

from aotlite.export.module_export import aot_export_module
from aotlite.export.signature import BackwardSignature, GraphSignature

__all__ = ["BackwardSignature", "GraphSignature", "aot_export_module"]
