"""Keys of graphs in the disk cache: a hash of all that lowering, fusion and printing depend on.

That is the graph, the number of threads, and aotlite's own sources: a key changes with any file of
ops, loops or printer. Sizes and times stand for a file's contents (`file_states`).
Spec: `specs/cpu_backend.md` (CPU-9).
"""

from __future__ import annotations

import sys
from functools import cache

import numpy as np

import aotlite.backends
import aotlite.ir
from aotlite.backends.native.cache.disk_cache import key_of
from aotlite.ir.graph import Graph
from aotlite.ir.graph.compare import digest_of
from aotlite.ir.provenance.library_files import file_states


def graph_key(graph: Graph, threads: int) -> str | None:
    """Returns the key of a graph; None for one that is not cached.

    Those are graphs with ops of the user's own, symbolic sizes or large constants.
    """
    sources, digest = _sources(), digest_of(graph)
    if not sources or digest is None:
        return None
    return key_of("graph", sources, str(threads), graph.name, digest)


# ---------------------------------------------------------------------------------------- sources
@cache
def _sources() -> str:
    """Returns sizes and times of all files of ops and backends, with the versions of Python and
    NumPy; empty where there are no files, as in a zip archive."""
    try:
        files = [*file_states(aotlite.ir.__path__[0]), *file_states(aotlite.backends.__path__[0])]
    except OSError:
        return ""
    return "\n".join([sys.version, np.__version__, *files])
