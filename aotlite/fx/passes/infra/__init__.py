"""What runs passes, in modules with the names of torch.fx.passes.infra."""
