"""`Module`: an object whose attributes are parameters, buffers and submodules.

The class of an attribute (`Parameter`, `Buffer`, `Module`) says what it is; there are no registries
besides `__dict__`. All code here reads tensors and modules as attributes, so that a capture records
their paths. Differences from PyTorch: `docs/nn.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, TypeVar

from aotlite.eager.base.tensor import Tensor
from aotlite.eager.tracked_objects import TrackedCallable, own_attributes
from aotlite.ir.errors import ArgumentError, UnsupportedError
from aotlite.nn.conversion import move, wishes_of
from aotlite.nn.parameter import Buffer, Parameter, TransientBuffer
from aotlite.nn.state import Problems, load_state

M = TypeVar("M", bound="Module")


class Module(TrackedCallable):
    """The base class of layers and networks: define `forward`, and call the module.

    >>> import aotlite as al
    >>> class Scale(Module):
    ...     def __init__(self):
    ...         self.factor = Parameter(al.tensor(2.0))
    ...     def forward(self, x):
    ...         return x * self.factor
    >>> Scale()(al.ones(2)).tolist()
    [2.0, 2.0]
    """

    training: bool = True

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The computation of a call; subclasses define it. Raises UnsupportedError here."""
        name = type(self).__name__
        raise UnsupportedError(f"{name}: the class has no method forward, expected one")

    def __setattr__(self, name: str, value: object) -> None:
        _check_kind(self, name, value)
        super().__setattr__(name, value)

    # --- registration
    def register_parameter(self, name: str, param: Parameter | None) -> None:
        """Sets the attribute `name` to a parameter; None stands for one that is absent."""
        self._register(name, param, Parameter)

    def register_buffer(self, name: str, tensor: Tensor | None, persistent: bool = True) -> None:
        """Sets the attribute `name` to a buffer on the memory of `tensor`."""
        wrapped = None if tensor is None else Buffer(tensor, persistent=persistent)
        self._register(name, wrapped, Buffer)

    def add_module(self, name: str, module: Module | None) -> None:
        """Sets the attribute `name` to a submodule."""
        self._register(name, module, Module)

    register_module = add_module

    def _register(self, name: str, value: object, kind: type) -> None:
        if not name or "." in name:
            raise ArgumentError(f"register: the name is {name!r}, expected one without dots")
        if not (value is None or isinstance(value, kind)):
            raise ArgumentError(f"register: {name!r} is {value!r}, expected a {kind.__name__}")
        setattr(self, name, value)

    # --- traversal
    def named_children(self) -> Iterator[tuple[str, Module]]:
        """(attribute, submodule) of this module itself, each submodule once."""
        seen: set[int] = set()
        for name, child in members(self, Module):
            if id(child) not in seen:
                seen.add(id(child))
                yield name, child

    def children(self) -> Iterator[Module]:
        """The submodules of this module itself."""
        return (child for _, child in self.named_children())

    def named_modules(
        self, memo: set[int] | None = None, prefix: str = ""
    ) -> Iterator[tuple[str, Module]]:
        """(dotted name, module) of this module and all below it, each once."""
        memo = set() if memo is None else memo
        if id(self) in memo:
            return
        memo.add(id(self))
        yield prefix, self
        for name, child in members(self, Module):
            yield from child.named_modules(memo, _dotted(prefix, name))

    def modules(self) -> Iterator[Module]:
        """This module and all below it, each once."""
        return (module for _, module in self.named_modules())

    def named_parameters(
        self, prefix: str = "", recurse: bool = True
    ) -> Iterator[tuple[str, Parameter]]:
        """(dotted name, parameter), each parameter once, a module's own before its children's."""
        return self._named(Parameter, prefix, recurse)

    def parameters(self, recurse: bool = True) -> Iterator[Parameter]:
        """The parameters, each once."""
        return (parameter for _, parameter in self.named_parameters(recurse=recurse))

    def named_buffers(self, prefix: str = "", recurse: bool = True) -> Iterator[tuple[str, Buffer]]:
        """(dotted name, buffer), each buffer once."""
        return self._named(Buffer, prefix, recurse)

    def buffers(self, recurse: bool = True) -> Iterator[Buffer]:
        """The buffers, each once."""
        return (buffer for _, buffer in self.named_buffers(recurse=recurse))

    def _named(self, kind: type, prefix: str, recurse: bool) -> Iterator[tuple[str, Any]]:
        seen: set[int] = set()
        modules = self.named_modules(prefix=prefix) if recurse else [(prefix, self)]
        for path, module in modules:
            for name, tensor in members(module, kind):
                if id(tensor) not in seen:
                    seen.add(id(tensor))
                    yield _dotted(path, name), tensor

    def apply(self: M, fn: Callable[[Module], object]) -> M:
        """Calls `fn` on every module below and then on this one; returns this one."""
        for child in self.children():
            child.apply(fn)
        fn(self)
        return self

    # --- modes, outside of compiled functions
    def train(self: M, mode: bool = True) -> M:
        """Sets `training` here and below: batch statistics and dropout."""
        for module in self.modules():
            module.training = mode
        return self

    def eval(self: M) -> M:
        """`train(False)`: running statistics, no dropout."""
        return self.train(False)

    def requires_grad_(self: M, requires_grad: bool = True) -> M:
        """Sets `requires_grad` of every parameter."""
        for parameter in self.parameters():
            parameter.requires_grad_(requires_grad)
        return self

    def to(self: M, *args: object, **kwargs: object) -> M:
        """Moves all tensors: `to(device)`, `to(dtype)` (of floating ones), both, `to(tensor)`."""
        move(self, *wishes_of(args, kwargs))
        return self

    def cuda(self: M, device: object = None) -> M:
        """`to` a CUDA device, the current one if none is given."""
        name = "cuda" if device is None else f"cuda:{device}" if type(device) is int else device
        return self.to(name)

    def cpu(self: M) -> M:
        """`to` the host's memory."""
        return self.to("cpu")

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clears the gradients of every parameter: None, or zeros in place."""
        clear_gradients(self.parameters(), set_to_none=set_to_none)

    # --- state
    def state_dict(self) -> dict[str, Tensor]:
        """Detached parameters and persistent buffers by dotted name, on the module's own memory.

        A tensor or module reached by several names appears under each.
        """
        return {name: tensor.detach() for name, tensor in _persistent(self).items()}

    def load_state_dict(self, state_dict: Mapping[str, object], strict: bool = True) -> Problems:
        """Copies the tensors or arrays into the module's memory; returns the names without a match.

        Raises ArgumentError that lists missing, unexpected and mismatched names, before anything is
        written. `strict=False` allows missing and unexpected ones.
        """
        return load_state(type(self).__name__, _persistent(self), state_dict, strict=strict)

    # --- printing
    def extra_repr(self) -> str:
        """The text of the module's own options in `repr`, such as its sizes."""
        return ""

    def __repr__(self) -> str:
        lines = [f"({name}): {child!r}" for name, child in members(self, Module)]
        head = f"{type(self).__name__}({self.extra_repr()}"
        if not lines:
            return head + ")"
        body = "\n".join(lines).replace("\n", "\n  ")
        return f"{head}\n  {body}\n)"


def members(module: Module, kind: type) -> Iterator[tuple[str, Any]]:
    """(name, value) of the attributes of this kind, read as attributes."""
    for name, held in list(own_attributes(module).items()):
        if isinstance(held, kind):
            yield name, getattr(module, name)


def clear_gradients(parameters: Iterator[Tensor], *, set_to_none: bool) -> None:
    """Sets the gradients to None, or to zeros in place."""
    for parameter in parameters:
        if set_to_none:  # without reading grad, so that a captured function has no guard on it
            parameter.grad = None
        elif parameter.grad is not None:
            parameter.grad.detach().zero_()


class StatePlace(NamedTuple):
    """The module and attribute name of a parameter or buffer."""

    path: str
    owner: Module
    name: str


def state_places(
    module: Module, prefix: str = "", above: tuple[Module, ...] = ()
) -> Iterator[StatePlace]:
    """The place of every parameter and buffer, once for each dotted name."""
    if any(module is ancestor for ancestor in above):
        return
    for name, held in list(own_attributes(module).items()):
        if isinstance(held, (Parameter, Buffer)):
            yield StatePlace(_dotted(prefix, name), module, name)
    for name, child in members(module, Module):
        yield from state_places(child, _dotted(prefix, name), (*above, module))


def _persistent(module: Module) -> dict[str, Tensor]:
    return {
        path: getattr(owner, name)
        for path, owner, name in state_places(module)
        if not isinstance(own_attributes(owner)[name], TransientBuffer)
    }


def _check_kind(module: Module, name: str, value: object) -> None:
    held = own_attributes(module).get(name)
    for kind in (Parameter, Buffer):
        if isinstance(held, kind) and isinstance(value, Tensor) and not isinstance(value, kind):
            raise ArgumentError(
                f"{type(module).__name__}: attribute {name!r} is a {kind.__name__} and the value a "
                f"plain tensor, expected {kind.__name__}(value), or a write in place: "
                f"{name}.copy_(value)"
            )


def _dotted(prefix: str, name: str) -> str:
    return f"{prefix}.{name}" if prefix else name
