"""The pipeline runs the ten stages on one function; `journey` is the file to read first.

`compile_once(request, options)` returns a `Compiled`: the entry, its metadata and its partition.
`STAGES` maps the names that `stages=` accepts to the stage functions, in order.
Spec: `specs/pipeline.md`.
"""

from aotlite.pipeline.journey import STAGES, compile_once
from aotlite.pipeline.request import Compiled, Request

__all__ = ["STAGES", "Compiled", "Request", "compile_once"]
