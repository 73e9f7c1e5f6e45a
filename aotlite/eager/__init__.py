"""The eager engine: tensors over storages, the dispatcher, the tape. Imports `aotlite.ir` only."""

import aotlite.eager.tensor_methods
import aotlite.ir.ops  # noqa: F401  (fills the op table before any tensor is made)
