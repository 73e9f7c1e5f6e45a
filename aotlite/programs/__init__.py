"""`aotlite.programs`: captured programs as values: called, printed, saved, loaded.

`program(fn, *args)` captures one; `al.export` has it under its name for users.
Spec: `specs/programs.md`. Rules: PRG-1 to PRG-9.
"""

from aotlite.programs.calls import ExportedProgram, load, program

__all__ = ["ExportedProgram", "load", "program"]
