"""The pipeline runs the ten stages on one function; `journey` is the file to read first.

`compile_once(request, options)` returns a `CompiledEntry`: guards, call, metadata and partition.
`STAGES` maps the names that `stages=` accepts to the stage functions, in order.
Spec: `specs/pipeline.md`.
"""

from aotlite.pipeline.journey import STAGES, compile_once
from aotlite.pipeline.request import CompiledEntry, Request

__all__ = ["STAGES", "CompiledEntry", "Request", "compile_once"]
