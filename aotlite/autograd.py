"""`aotlite.autograd`: gradients on request, with PyTorch's names."""

from aotlite.eager.autograd.functional import backward, grad
from aotlite.eager.state import enable_grad, no_grad, set_grad_enabled

__all__ = ["backward", "enable_grad", "grad", "no_grad", "set_grad_enabled"]
