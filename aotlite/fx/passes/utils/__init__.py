"""Tools of passes, in modules with the names of torch.fx.passes.utils."""
