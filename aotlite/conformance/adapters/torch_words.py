"""The adapter methods that PyTorch and aotlite share: calls of their tensors' methods."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from aotlite.conformance.adapter import Adapter
from aotlite.conformance.witnesses.call_source import along


class TorchWords(Adapter):
    """The methods that call tensors' methods alone."""

    function: type
    """The library's `autograd.Function`."""

    to_list = lambda self, a: a.tolist()
    shape = lambda self, a: tuple(a.shape)
    strides = lambda self, a: a.stride()
    dtype = lambda self, a: str(a.dtype).removeprefix("torch.")
    data_pointer = lambda self, a: a.data_ptr()

    view = lambda self, a, shape: a.view(shape)
    reshape = lambda self, a, shape: a.reshape(shape)
    flatten = lambda self, a: a.flatten()
    transpose = lambda self, a, dim0, dim1: a.transpose(dim0, dim1)
    permute = lambda self, a, dims: a.permute(dims)
    expand = lambda self, a, shape: a.expand(shape)
    select = lambda self, a, dim, index: a.select(dim, index)
    narrow = lambda self, a, dim, start, length: a.narrow(dim, start, length)
    slice = lambda self, a, dim, start, stop, step: a[along(dim, slice(start, stop, step))]
    flip = lambda self, a, dim: a.flip(dim)
    squeeze = lambda self, a, dim: a.squeeze(dim)
    unsqueeze = lambda self, a, dim: a.unsqueeze(dim)
    diagonal = lambda self, a: a.diagonal()
    as_strided = lambda self, a, shape, strides, offset: a.as_strided(shape, strides, offset)
    unfold = lambda self, a, dim, size, step: a.unfold(dim, size, step)
    split = lambda self, a, size, dim: a.split(size, dim)
    unbind = lambda self, a, dim: a.unbind(dim)
    real = lambda self, a: a.real
    imag = lambda self, a: a.imag
    getitem = lambda self, a, key: a[key]
    pick = lambda self, a, places: a[places]
    pick_mask = lambda self, a, mask: a[mask]

    def setitem(self, a: Any, key: Any, value: object) -> None:
        a[key] = value

    put = lambda self, a, places, value: operator.setitem(a, places, value)
    put_mask = lambda self, a, mask, value: operator.setitem(a, mask, value)
    copy_ = lambda self, a, b: a.copy_(b)
    fill_ = lambda self, a, number: a.fill_(number)
    add_ = lambda self, a, b: a.add_(b)
    mul_ = lambda self, a, b: a.mul_(b)
    uniform_ = lambda self, a: a.uniform_()
    resize_ = lambda self, a, shape: a.resize_(shape)
    transpose_ = lambda self, a, dim0, dim1: a.transpose_(dim0, dim1)
    unsqueeze_ = lambda self, a, dim: a.unsqueeze_(dim)

    add = lambda self, a, b: a + b
    mul = lambda self, a, b: a * b
    neg = lambda self, a: -a
    sum = lambda self, a, dim: a.sum(dim)
    sort = lambda self, a: a.sort().values
    clone = lambda self, a: a.clone()
    contiguous = lambda self, a: a.contiguous()
    reshape_copy = lambda self, a, shape, copy: a.reshape(shape).clone() if copy else a.view(shape)
    to_numpy = lambda self, a: a.numpy()
    exp = lambda self, a: a.exp()
    sin = lambda self, a: a.sin()
    matmul = lambda self, a, b: a @ b

    requires_grad_ = lambda self, a, flag: a.requires_grad_(flag)
    requires_grad = lambda self, a: a.requires_grad
    is_leaf = lambda self, a: a.is_leaf
    detach = lambda self, a: a.detach()
    detach_ = lambda self, a: a.detach_()
    backward = lambda self, a, gradient: a.backward(gradient)
    backward_kept = lambda self, a, gradient: a.backward(gradient, retain_graph=True)
    backward_recorded = lambda self, a, gradient: a.backward(gradient, create_graph=True)
    grad = lambda self, a: a.grad
    retain_grad = lambda self, a: a.retain_grad()
    on_gradient = lambda self, a, hook: a.register_hook(hook)
    call = lambda self, function, arrays: function(*arrays)
    write_count = lambda self, a: a._version

    def custom(self, forward: Callable[..., object], backward: Callable[..., object]) -> Any:
        methods = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
        made: Any = type(forward.__name__, (self.function,), methods)
        return made.apply
