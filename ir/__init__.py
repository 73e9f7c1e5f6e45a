"""The intermediate representation: graphs, ops and their rules. The ground floor.

It is data without policy: it imports nothing of the rest of aotlite, and the stages decide what to
do with a graph. Always import it as `aotlite.ir`; under the folder's own name every class would
exist twice.

The packages of this floor, lowest first. Each imports only packages that stand before it here:

    errors      the errors of aotlite, and notes on them
    forks       locks that survive a fork; collector: pauses the garbage collector
    filesystem  files and folders that other users of the machine may reach
    provenance  where in the user's program a node comes from
    dtypes      dtypes, their names and limits
    symbols     symbolic integers, their known bounds, and the assumptions made about them
    arrays      array libraries (NumPy, CuPy) behind one protocol, and their devices
    geometry    sizes, strides, layouts, overlap
    meta        `TensorMeta`: shape, stride, dtype and device of a tensor, interned
    scalar      expression trees of one element, for pointwise ops
    op          what an op is: schema, binding, formulas, composites, operand methods
    effects     ops with side effects, and the ledger that counts them at run time
    ops         every op, declared once, in families
    graph       `Graph` and `Node`; roles, verifier, edits, printed text, files
    run         the interpreter, and passes written as interpreters
    serialize   `save` and `load`, the public names of `graph.files`

Inside `graph` every module imports `graph.graph`, which defines the classes. `graph.methods` gives
`Graph` the methods that need those modules (printing, editing, checking), and `graph/__init__.py`
runs it.
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
