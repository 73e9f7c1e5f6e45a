"""The code of long generated texts on disk: Python takes 5 ms for the call of 600 arrays.

Beside libraries, and under the same checks: code is executed, as they are. Its key has the text and
all that tells one Python from another. Spec: `specs/cpu_backend.md` (CPU-9).
"""

from __future__ import annotations

import marshal
import sys
from contextlib import suppress
from types import CodeType

from aotlite.backends.native.cache import artifact_cache
from aotlite.backends.native.cache.disk_cache import key_of
from aotlite.ir.errors import BackendError
from aotlite.ir.source_cache import compiled

LONG = 10_000
"""Characters: a shorter text is compiled in less time than its file is read."""
_PYTHON = f"{sys.version} {sys.implementation.cache_tag} {sys.flags.optimize}"


def kept_code(text: str, file: str) -> CodeType:
    """Returns the code of a text; tracebacks show that it stands in this file."""
    if len(text) < LONG:
        return compiled(text, file)
    key = key_of("code", _PYTHON, file, text)
    code = _read(key)
    if code is None:
        code = compile(text, file, "exec")
        with suppress(BackendError):  # a cache that cannot be written was reported
            artifact_cache.kept(key, "code", ".bin", marshal.dumps(code))
    return code


def _read(key: str) -> CodeType | None:
    """Returns the code of a key, its bytes checked; None if there is none."""
    data = artifact_cache.contents(key)
    if data is None:
        return None
    try:
        code = marshal.loads(data)
    except (ValueError, EOFError, TypeError):
        code = None
    if type(code) is not CodeType:
        artifact_cache.removed(key)
        return None
    return code
