"""`aotlite.export`: programs that leave: functional graphs of Modules, with their signatures.

`program` and `load` are of `aotlite.programs`.

Rules: EXP-1 to EXP-19. Spec: `specs/export.md`.
"""

from aotlite.export.fake_mode import FakeMode, FakeTensorMode
from aotlite.export.joint_export import (
    JointWithDescriptors,
    aot_compile_joint_with_descriptors,
    aot_export_joint_simple,
    aot_export_joint_with_descriptors,
)
from aotlite.export.module_export import aot_export_module
from aotlite.export.pre_dispatch import with_gradients
from aotlite.export.python_file import to_python
from aotlite.export.signature import BackwardSignature, GraphSignature
from aotlite.programs import ExportedProgram, load, program

__all__ = [
    "BackwardSignature",
    "ExportedProgram",
    "FakeMode",
    "FakeTensorMode",
    "GraphSignature",
    "JointWithDescriptors",
    "aot_compile_joint_with_descriptors",
    "aot_export_joint_simple",
    "aot_export_joint_with_descriptors",
    "aot_export_module",
    "load",
    "program",
    "to_python",
    "with_gradients",
]
