"""Graphs in files: `save` and `load`, and `dumps` and `loads` of their text.

Ground floor. The face that users import; what it gives is `ir/graph/files/__init__.py`'s. A file is
versioned JSON that is data and nothing else. Spec: `specs/serialize.md`.
"""

from aotlite.ir.graph.files import MAX_BYTES, dumps, load, loads, save

__all__ = ["MAX_BYTES", "dumps", "load", "loads", "save"]
