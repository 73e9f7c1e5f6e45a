"""Optimizers whose steps write tensors in place and nothing else. Guide: `docs/nn.md`."""

from aotlite.optim.optimizer import Optimizer
from aotlite.optim.sgd import SGD

__all__ = ["SGD", "Optimizer"]
