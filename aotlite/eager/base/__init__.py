"""What every floor of the eager engine stands on: modes, storages, tape nodes, `Tensor`."""
