"""`aotlite.autograd`: `grad`, `backward`, `Function`, hooks, `gradcheck`; PyTorch's names."""

from aotlite.autograd import function, functional, graph
from aotlite.autograd.multithreading import is_multithreading_enabled, set_multithreading_enabled
from aotlite.autograd.numerical import gradcheck, gradgradcheck
from aotlite.eager.autograd.anomaly import detect_anomaly, set_detect_anomaly
from aotlite.eager.autograd.custom_function.function import Function
from aotlite.eager.autograd.functional import backward, grad
from aotlite.eager.base.modes import (
    enable_grad,
    inference_mode,
    is_grad_enabled,
    is_inference_mode_enabled,
    no_grad,
    set_grad_enabled,
)

__all__ = [
    "Function",
    "backward",
    "detect_anomaly",
    "enable_grad",
    "function",
    "functional",
    "grad",
    "gradcheck",
    "gradgradcheck",
    "graph",
    "inference_mode",
    "is_grad_enabled",
    "is_inference_mode_enabled",
    "is_multithreading_enabled",
    "no_grad",
    "set_detect_anomaly",
    "set_grad_enabled",
    "set_multithreading_enabled",
]
