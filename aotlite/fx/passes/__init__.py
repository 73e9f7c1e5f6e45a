"""Passes over GraphModules, in modules with the names of torch.fx.passes."""
