"""`aotlite.autograd.function`: what functions with a gradient of their own are made of."""

from aotlite.eager.autograd.custom_function.context import FunctionCtx
from aotlite.eager.autograd.custom_function.function import Function, once_differentiable

__all__ = ["Function", "FunctionCtx", "once_differentiable"]
