"""The base of the eager engine: modes, storages, tape nodes, `Tensor`."""
