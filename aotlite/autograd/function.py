"""`aotlite.autograd.function`: what functions with a gradient of their own are made of."""

from aotlite.eager.autograd.context import FunctionCtx
from aotlite.eager.autograd.function import Function, once_differentiable

__all__ = ["Function", "FunctionCtx", "once_differentiable"]
