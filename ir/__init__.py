"""The ground floor: graphs, ops and their rules. Data without policy; imports nothing of the rest.

Always imported as `aotlite.ir`: under the folder's own name every class would exist twice.

Its own floors, from the bottom. A room imports those above it in this list, and nothing else:

    errors      the errors of aotlite, and notes on them
    forks       locks in a process that forks; collector: the garbage collector, paused
    filesystem  files and folders that other users may reach
    provenance  where in the user's program a node comes from
    dtypes      dtypes, their names and limits
    symbols     symbolic integers, what is known of them and what was assumed
    arrays      array libraries behind one protocol, and the devices that they reach
    geometry    sizes, strides, layouts, overlap
    meta        shape, stride, dtype and device of a tensor, interned
    scalar      expressions of one element
    op          what an op is: schema, binding, formulas, composites, operand methods
    effects     ops with effects, and the ledger of those that happen
    ops         every op, declared once, in families
    graph       the program: nodes, roles, checks, edits; its text; its files
    run         the interpreter, and passes written as one
    serialize   the face of a graph's files

Inside `graph` the modules stand on `graph.graph`; its `__init__`, which `methods` completes, stands
on all of them and installs the methods of `Graph` that do.
"""

from __future__ import annotations

import importlib
from typing import Any

_MODULES = frozenset(
    """
    arrays collector dtypes effects errors filesystem forks geometry graph meta op ops provenance
    run scalar serialize symbols
    """.split()
)


def __getattr__(name: str) -> Any:
    """The module of this name, imported on first use."""
    if name in _MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
