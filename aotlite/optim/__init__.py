"""Optimizers whose steps write tensors in place and nothing else. Guide: `docs/nn.md`."""

from aotlite.optim.adamw import AdamW
from aotlite.optim.optimizer import Optimizer, ParamGroup
from aotlite.optim.sgd import SGD

__all__ = ["SGD", "AdamW", "Optimizer", "ParamGroup"]
