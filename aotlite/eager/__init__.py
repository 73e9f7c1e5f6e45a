"""The eager engine: tensors over storages, the dispatcher, the tape. Imports `aotlite.ir` only."""

import aotlite.ir.ops  # noqa: F401  (fills the op table before any tensor is made)
from aotlite.eager import tensor_methods as tensor_methods
