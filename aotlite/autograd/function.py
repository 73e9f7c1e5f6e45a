"""`aotlite.autograd.function`: `Function` and its `ctx`, under PyTorch's name."""

from aotlite.eager.autograd.custom_function.context import FunctionCtx
from aotlite.eager.autograd.custom_function.function import Function, once_differentiable

__all__ = ["Function", "FunctionCtx", "once_differentiable"]
