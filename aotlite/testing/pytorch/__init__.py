"""PyTorch as something to compare with: engine, comparison, excuses by rule."""
