"""Graphs in files: `save` and `load` work on files, `dumps` and `loads` on text.

Ground floor. The public module; the code is in `ir/graph/files/__init__.py`. A file is versioned
JSON: data, and no code. Spec: `specs/serialize.md`.
"""

from aotlite.ir.graph.files import MAX_BYTES, dumps, load, loads, save

__all__ = ["MAX_BYTES", "dumps", "load", "loads", "save"]
