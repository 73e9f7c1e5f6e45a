"""Programs in array operations: what the printers of ONNX and StableHLO share."""
