"""Passes over GraphModules, in modules with the names of torch.fx.passes."""

from aotlite.fx.passes import graph_drawer, infra, shape_prop, split_module, utils

__all__ = ["graph_drawer", "infra", "shape_prop", "split_module", "utils"]
