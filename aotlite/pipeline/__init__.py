"""The pipeline: takes a function through the ten stages; `journey` is the file to read first.

`compile_once(request, options)` gives an entry and what it was made of; `STAGES` are the stages in
order, under the names by which `stages=` replaces them. Spec: `specs/pipeline.md`.
"""

from aotlite.pipeline.journey import STAGES, compile_once
from aotlite.pipeline.request import Compiled, Request

__all__ = ["STAGES", "Compiled", "Request", "compile_once"]
