"""PyTorch as the conformance suite sees it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aotlite.conformance.adapters.torch_words import TorchWords
from aotlite.conformance.libraries import required

torch = required("torch", "aotlite[torch]")
aot_autograd = required("torch._functorch.aot_autograd", "aotlite[torch]")
required("torch._dynamo", "aotlite[torch]")  # now, since it takes seconds


class Torch(TorchWords):
    """PyTorch's tensors; `compile` is `torch.compile` with eager kernels behind AOTAutograd."""

    name, version = "torch", torch.__version__

    from_list = lambda self, values, dtype: torch.tensor(values, dtype=getattr(torch, dtype))
    zeros = lambda self, shape, dtype: torch.zeros(shape, dtype=getattr(torch, dtype))
    view_dtype = lambda self, a, dtype: a.view(getattr(torch, dtype))
    put_add = lambda self, a, places, value: a.index_put_(
        (torch.tensor(places),), torch.as_tensor(value, dtype=a.dtype), accumulate=True
    )
    add_out = lambda self, a, b, out: torch.add(a, b, out=out)
    sum_out = lambda self, a, dim, out: torch.sum(a, dim, out=out)
    cumsum_out = lambda self, a, dim, out: torch.cumsum(a, dim, out=out)
    matmul_out = lambda self, a, b, out: torch.matmul(a, b, out=out)
    asarray = lambda self, a, copy: torch.asarray(a, copy=copy)
    astype = lambda self, a, dtype, copy: a.to(getattr(torch, dtype), copy=copy)
    from_numpy = lambda self, a: torch.from_numpy(a)
    convert = lambda self, a: torch.asarray(a)
    from_dlpack = lambda self, a: torch.from_dlpack(a)
    from_buffer = lambda self, buffer, dtype: torch.frombuffer(buffer, dtype=getattr(torch, dtype))
    hidden_alias = lambda self, a: a.data
    function = torch.autograd.Function
    no_grad = lambda self: torch.no_grad()
    inference_mode = lambda self: torch.inference_mode()
    gradient_of = lambda self, a, x, gradient: torch.autograd.grad(
        a, [x], gradient, create_graph=True
    )[0]
    concat = lambda self, parts, dim: torch.cat(parts, dim)

    def compile(self, function: Callable[..., Any]) -> Any:
        torch._dynamo.reset()
        return torch.compile(function, backend="aot_eager")

    def vjp(self, function: Callable[..., object], arrays: list[Any], gradient: object) -> Any:
        leaves = [a.detach().requires_grad_() for a in arrays]
        return torch.autograd.grad(function(*leaves), leaves, gradient)


class AOTFunction(Torch):
    """PyTorch without its frontend: `compile` is AOTAutograd alone, which checks no arguments."""

    name = "torch aot_function"

    compile = lambda self, function: aot_autograd.aot_function(function, lambda graph, _: graph)
