"""The eager engine: tensors over storages, the dispatcher, the tape. Imports `aotlite.ir` only.

Its packages, lowest first:

    base       modes, storages, `Tensor`; base/tape: tape nodes, view chains, hooks
    autograd   histories of views and writes, nodes of ops, the engine, `Function`
    subclass   wrapper subclasses: protocol, checks, copies, text
    dispatch   runs an op on tensors, or records it
    rng        random number generators
    regions    `checkpoint` and `annotate`
    creation   factories, memory, interop, the functions of `aotlite`

`indexing` parses `x[...]`; `tensor_methods` gives `Tensor` the methods that need higher packages.
"""

import aotlite.ir.ops  # noqa: F401  (all ops first: threads that import at once would deadlock)
from aotlite.eager import tensor_methods as tensor_methods
