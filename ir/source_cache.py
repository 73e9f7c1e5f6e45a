"""The code of generated texts is kept: functions that differ in their constants have one text.

To compile a text takes a hundred times as long as to find it. Stage 10 and the reference backend
use it. Spec: `specs/s10_runtime.md`.
"""

from __future__ import annotations

from functools import lru_cache
from types import CodeType

LONGEST = 20_000
"""Characters: longer texts are of one graph alone, and their code is not kept."""


def compiled(text: str, file: str) -> CodeType:
    """The code of a text; tracebacks show that it stands in this file."""
    if len(text) > LONGEST:
        return compile(text, file, "exec")
    return _in_file(_compiled(text), file)


@lru_cache(maxsize=256)
def _compiled(text: str) -> CodeType:
    return compile(text, "<aotlite>", "exec")


def _in_file(code: CodeType, file: str) -> CodeType:
    """The code, and that of functions in it, with this name of its file."""
    inner = (_in_file(each, file) if type(each) is CodeType else each for each in code.co_consts)
    return code.replace(co_filename=file, co_consts=tuple(inner))
