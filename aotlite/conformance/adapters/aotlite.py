"""aotlite as the conformance suite sees it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import aotlite
from aotlite.conformance.adapters.torch_words import TorchWords


class Aotlite(TorchWords):
    """aotlite's tensors; `compile` is `aotlite.compile`."""

    name, version = "aotlite", aotlite.__version__

    from_list = lambda self, values, dtype: aotlite.tensor(values, dtype=getattr(aotlite, dtype))
    zeros = lambda self, shape, dtype: aotlite.zeros(shape, dtype=getattr(aotlite, dtype))
    view_dtype = lambda self, a, dtype: a.view(getattr(aotlite, dtype))
    put_add = lambda self, a, places, value: a.index_put_(
        (aotlite.tensor(places),), aotlite.as_tensor(value, dtype=a.dtype), accumulate=True
    )
    add_out = lambda self, a, b, out: aotlite.add(a, b, out=out)
    sum_out = lambda self, a, dim, out: aotlite.sum(a, dim, out=out)
    cumsum_out = lambda self, a, dim, out: aotlite.cumsum(a, dim, out=out)
    matmul_out = lambda self, a, b, out: aotlite.matmul(a, b, out=out)
    asarray = lambda self, a, copy: aotlite.asarray(a, copy=copy)
    astype = lambda self, a, dtype, copy: a.to(getattr(aotlite, dtype), copy=copy)
    from_numpy = lambda self, a: aotlite.from_numpy(a)
    convert = lambda self, a: aotlite.asarray(a)
    hidden_alias = lambda self, a: a.hidden_alias()
    function = aotlite.autograd.Function
    no_grad = lambda self: aotlite.no_grad()
    inference_mode = lambda self: aotlite.inference_mode()
    gradient_of = lambda self, a, x, gradient: aotlite.autograd.grad(
        a, [x], gradient, create_graph=True
    )[0]
    concat = lambda self, parts, dim: aotlite.cat(parts, dim)
    compile = lambda self, function: aotlite.compile(function, backend="reference")

    def vjp(self, function: Callable[..., Any], arrays: list[Any], gradient: Any) -> Any:
        leaves = [a.detach().requires_grad_() for a in arrays]
        return aotlite.autograd.grad(function(*leaves), leaves, gradient)
