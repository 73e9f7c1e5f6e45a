"""Modules and layers with PyTorch's names, arguments and defaults. Guide: `docs/nn.md`."""

from aotlite.nn.module import Module
from aotlite.nn.parameter import Buffer, Parameter

__all__ = ["Buffer", "Module", "Parameter"]
