"""Adds to `Tensor` the methods that need higher packages of the eager engine.

The dispatcher, autograd and the factories all import the class `Tensor`, so that it cannot import
them. Its methods that need them are functions there, and become methods here, once, when
`aotlite.eager` is imported; an import inside each method would take a tenth of a small op. The
class declares them for type checkers.
"""

from __future__ import annotations

from aotlite.eager import dispatch, indexing
from aotlite.eager.autograd import tensor_methods
from aotlite.eager.autograd.differentiable_views import edge_of
from aotlite.eager.autograd.functional import backward_of
from aotlite.eager.base.storage import Storage
from aotlite.eager.base.tensor import Tensor
from aotlite.eager.creation import from_data, interop, memory, storage_size
from aotlite.eager.subclass import copies, printer, protocol

# mypy: disable-error-code="method-assign"
# It still compares each function with the declaration of the method in the class.

# every op
Tensor._apply = dispatch._apply
Tensor._filled = protocol.filled_as

# history and gradients
Tensor.gradient_edge = edge_of
Tensor.requires_grad_ = tensor_methods.requires_grad_
Tensor.detach_ = tensor_methods.detach_
Tensor.grad_fn = property(tensor_methods.grad_fn)  # type: ignore[assignment]
Tensor.retains_grad = property(tensor_methods.retains_grad)  # type: ignore[assignment]
Tensor.retain_grad = tensor_methods.retain_grad
Tensor.register_hook = tensor_methods.register_hook
Tensor.register_post_accumulate_grad_hook = tensor_methods.register_post_accumulate_grad_hook
Tensor.backward = backward_of

# elements
Tensor.__getitem__ = indexing.get_item
Tensor.__setitem__ = indexing.set_item
Tensor.new_tensor = from_data.new_tensor
Tensor.__repr__ = printer.text_of

# memory
Tensor.resize_ = memory.resize_
Tensor.set_ = memory.set_
Storage.resize_ = storage_size.resize_storage  # type: ignore[assignment]
Tensor.__dlpack__ = interop.dlpack
Tensor.__dlpack_device__ = interop.dlpack_device
Tensor.__cuda_array_interface__ = property(interop.array_interface)  # type: ignore[assignment]

# copies and pickles
Tensor.__reduce_ex__ = copies.reduce_ex
Tensor.__deepcopy__ = copies.deepcopy

# wrapper subclasses
Tensor._make_wrapper_subclass = staticmethod(protocol.make_wrapper_subclass)
