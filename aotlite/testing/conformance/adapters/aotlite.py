"""aotlite as the conformance suite sees it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import aotlite
from aotlite.testing.conformance.adapters.torch_words import TorchWords


class Aotlite(TorchWords):
    """aotlite's tensors; `compile` is `aotlite.compile`."""

    name, version = "aotlite", aotlite.__version__

    from_list = lambda self, values, dtype: aotlite.tensor(values, dtype=getattr(aotlite, dtype))
    zeros = lambda self, shape, dtype: aotlite.zeros(shape, dtype=getattr(aotlite, dtype))
    view_dtype = lambda self, a, dtype: a.view(getattr(aotlite, dtype))
    hidden_alias = lambda self, a: a.hidden_alias()
    function = aotlite.autograd.Function
    no_grad = lambda self: aotlite.no_grad()
    inference_mode = lambda self: aotlite.inference_mode()
    gradient_of = lambda self, a, x, gradient: aotlite.autograd.grad(
        a, [x], gradient, create_graph=True
    )[0]
    concat = lambda self, parts, dim: aotlite.cat(parts, dim)
    compile = lambda self, function: aotlite.compile(function)

    def vjp(self, function: Callable[..., Any], arrays: list[Any], gradient: Any) -> Any:
        leaves = [a.detach().requires_grad_() for a in arrays]
        return aotlite.autograd.grad(function(*leaves), leaves, gradient)
