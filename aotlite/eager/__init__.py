"""The eager engine: tensors over storages, the dispatcher, the tape. Imports `aotlite.ir` only."""

import aotlite.ir.ops  # noqa: F401  (all ops first: threads that import at once would deadlock)
from aotlite.eager import tensor_methods as tensor_methods
