"""The eager engine: tensors over storages, the dispatcher, the tape. Imports `aotlite.ir` only."""
