"""`aotlite.inspect`: looking at a compilation, stage by stage.

`stages_of` compiles once, without running, and keeps what every stage made; `dump_to` writes the
same as files while something compiles; `explain_meta` and its siblings say records as sentences.
`stages_of(f, x)["joint"].sequence_table()` says which op and Module each node belongs to, and
`counting` counts what runs. Reads what `pipeline` shows to observers and changes nothing. Spec:
`specs/pipeline.md`.
"""

from aotlite.inspect.run_counts import Ran, counting
from aotlite.inspect.stage_records import Stages, stages_of
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
    "counting",
    "dump_to",
    "explain_convention",
    "explain_copies",
    "explain_meta",
    "explain_partition",
    "saved_bytes",
    "stages_of",
]
