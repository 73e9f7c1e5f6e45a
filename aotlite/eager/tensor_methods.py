"""Installs what `Tensor` has from the floors above its class; nothing else does.

The class stands below the dispatcher, the tape and the functions that make tensors, which all need
it. Its methods that need them are functions there, and become methods here, once, when
`aotlite.eager` is imported: an import in each method would cost a tenth of a small op's time. The
class declares them for type checkers.
"""

from __future__ import annotations

from aotlite.eager import dispatch, exchange, functions, indexing, memory, printing, wrappers
from aotlite.eager import wrapper_copies as copies
from aotlite.eager.autograd import face
from aotlite.eager.autograd.functional import backward_of
from aotlite.eager.autograd.history import edge_of
from aotlite.eager.tensor import Tensor

# mypy: disable-error-code="method-assign"
# It still compares each function with the declaration of the method in the class.

# every op
Tensor._apply = dispatch._apply
Tensor._filled = wrappers.filled_as

# history and gradients
Tensor.gradient_edge = edge_of
Tensor.requires_grad_ = face.requires_grad_
Tensor.detach_ = face.detach_
Tensor.grad_fn = property(face.grad_fn)  # type: ignore[assignment]
Tensor.retains_grad = property(face.retains_grad)  # type: ignore[assignment]
Tensor.retain_grad = face.retain_grad
Tensor.register_hook = face.register_hook
Tensor.register_post_accumulate_grad_hook = face.register_post_accumulate_grad_hook
Tensor.backward = backward_of

# elements
Tensor.__getitem__ = indexing.get_item
Tensor.__setitem__ = indexing.set_item
Tensor.new_tensor = functions.new_tensor
Tensor.__repr__ = printing.text_of

# memory
Tensor.resize_ = memory.resize_
Tensor.set_ = memory.set_
Tensor.__dlpack__ = exchange.dlpack
Tensor.__dlpack_device__ = exchange.dlpack_device
Tensor.__cuda_array_interface__ = property(exchange.array_interface)  # type: ignore[assignment]

# copies and pickles
Tensor.__reduce_ex__ = copies.reduce_ex
Tensor.__deepcopy__ = copies.deepcopy

# wrapper subclasses
Tensor._make_wrapper_subclass = staticmethod(wrappers.make_wrapper_subclass)
