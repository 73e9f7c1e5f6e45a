"""`aotlite.inspect`: the result of each stage of a compilation, as objects, files or sentences.

`stages_of` compiles once, without running, and returns the result of every stage; `dump_to` writes
them into files at each compilation; `explain_meta` and its siblings print records as sentences.
`stages_of(f, x)["joint"].sequence_table()` lists the op and the Module of each node; `counting`
counts captures, eager ops and graph runs; `chrome_trace` times compilations and calls for a viewer.
Spec: `specs/pipeline.md`.
"""

from aotlite.inspect.run_counts import Ran, counting
from aotlite.inspect.stage_records import Stages, stages_of
from aotlite.pipeline.logs.chrome_traces import chrome_trace
from aotlite.pipeline.observers import StageRecord, dump_to
from aotlite.stages.records.metadata.explain_text import (
    explain_convention,
    explain_copies,
    explain_meta,
    explain_partition,
    saved_bytes,
)

__all__ = [
    "Ran",
    "StageRecord",
    "Stages",
    "chrome_trace",
    "counting",
    "dump_to",
    "explain_convention",
    "explain_copies",
    "explain_meta",
    "explain_partition",
    "saved_bytes",
    "stages_of",
]
