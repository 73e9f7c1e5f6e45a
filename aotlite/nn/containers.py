"""Containers of modules and parameters: `Sequential`, `ModuleList`, `ModuleDict`, `ParameterList`.

Their members are attributes, named by number or by key.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from aotlite.eager.base.tensor import Tensor
from aotlite.ir.errors import ArgumentError, IndexOutOfRangeError
from aotlite.nn.module import Module, members
from aotlite.nn.parameter import Parameter


class _Numbered(Module):
    """Members of one kind as attributes "0", "1", ..., in order."""

    kind: type = Module

    def _append(self, name: str, member: object) -> None:
        if not isinstance(member, self.kind):
            raise ArgumentError(
                f"{type(self).__name__}: {name!r} is {member!r}, expected a {self.kind.__name__}"
            )
        self._register(name, member, self.kind)

    def _members(self) -> dict[str, Any]:
        return dict(members(self, self.kind))

    def _at(self, index: int) -> Any:
        held = self._members()
        if not -len(held) <= index < len(held):
            raise IndexOutOfRangeError(
                f"{type(self).__name__}: the index is {index}, expected one of {len(held)} "
                f"{'modules' if self.kind is Module else 'parameters'}"
            )
        return list(held.values())[index]

    def __len__(self) -> int:
        return len(self._members())


class Sequential(_Numbered):
    """Modules one after the other, as attributes "0", "1", ... or with the names of a mapping.

    >>> from aotlite.nn import Flatten, ReLU
    >>> Sequential(Flatten(), ReLU())
    Sequential(
      (0): Flatten(start_dim=1, end_dim=-1)
      (1): ReLU()
    )
    """

    def __init__(self, *args: Any) -> None:
        named = args[0] if len(args) == 1 and isinstance(args[0], Mapping) else None
        pairs = named.items() if named is not None else ((str(i), m) for i, m in enumerate(args))
        for name, module in pairs:
            self._append(name, module)

    def append(self, module: Module) -> Sequential:
        """Adds a module at the end; returns this one."""
        self._append(str(len(self)), module)
        return self

    def extend(self, sequential: Iterable[Module]) -> Sequential:
        """Adds modules at the end; returns this one."""
        for module in list(sequential):
            self.append(module)
        return self

    def __iter__(self) -> Iterator[Module]:
        return iter(self._members().values())

    def __getitem__(self, index: int | slice) -> Module:
        if isinstance(index, slice):
            return type(self)(dict(list(self._members().items())[index]))
        found: Module = self._at(index)
        return found

    def forward(self, input: Any) -> Any:
        """The input through every module in order."""
        for module in self:
            input = module(input)
        return input


class ModuleList(_Numbered):
    """A list of modules.

    >>> from aotlite.nn import ReLU
    >>> len(ModuleList([ReLU()]).append(ReLU()))
    2
    """

    def __init__(self, modules: Iterable[Module] | None = None) -> None:
        self.extend(() if modules is None else modules)

    def append(self, module: Module) -> ModuleList:
        """Adds a module at the end; returns this one."""
        self._append(str(len(self)), module)
        return self

    def extend(self, modules: Iterable[Module]) -> ModuleList:
        """Adds modules at the end; returns this one."""
        for module in list(modules):
            self.append(module)
        return self

    def insert(self, index: int, module: Module) -> None:
        """Inserts a module before the one at this index."""
        held = list(self._members().values())
        held.insert(index, module)
        for place, member in enumerate(held):
            self._append(str(place), member)

    def __iter__(self) -> Iterator[Module]:
        return iter(self._members().values())

    def __contains__(self, module: object) -> bool:
        return any(member is module for member in self)

    def __getitem__(self, index: int | slice) -> Module:
        if isinstance(index, slice):
            return type(self)(list(self)[index])
        found: Module = self._at(index)
        return found

    def __setitem__(self, index: int, module: Module) -> None:
        self._at(index)
        self._append(str(index % len(self)), module)


class ModuleDict(Module):
    """A dictionary of modules by name, in the order of insertion."""

    def __init__(self, modules: Mapping[str, Module] | None = None) -> None:
        self.update(modules or {})

    def update(self, modules: Mapping[str, Module]) -> None:
        """Adds each module under its name."""
        for key, module in modules.items():
            self[key] = module

    def __setitem__(self, key: str, module: Module) -> None:
        if key not in self and hasattr(type(self), key):
            raise ArgumentError(
                f"ModuleDict: the key is {key!r}, expected none that is an attribute of the class"
            )
        self.add_module(key, module)

    def __getitem__(self, key: str) -> Module:
        held = dict(members(self, Module))
        if key not in held:
            raise IndexOutOfRangeError(
                f"ModuleDict: the key is {key!r}, expected one of {', '.join(held) or 'none'}"
            )
        return held[key]

    def __delitem__(self, key: str) -> None:
        delattr(self, key) if key in self else self[key]

    def __contains__(self, key: object) -> bool:
        return any(name == key for name, _ in members(self, Module))

    def __len__(self) -> int:
        return len(list(members(self, Module)))

    def __iter__(self) -> Iterator[str]:
        return (name for name, _ in members(self, Module))

    def keys(self) -> list[str]:
        """The names."""
        return list(self)

    def values(self) -> list[Module]:
        """The modules."""
        return [module for _, module in members(self, Module)]

    def items(self) -> list[tuple[str, Module]]:
        """(name, module) pairs."""
        return list(members(self, Module))


class ParameterList(_Numbered):
    """A list of parameters; a plain tensor becomes one."""

    kind = Parameter

    def __init__(self, values: Iterable[Tensor] | None = None) -> None:
        self.extend(() if values is None else values)

    def append(self, value: Tensor) -> ParameterList:
        """Adds a parameter at the end; returns this module."""
        if isinstance(value, Tensor) and not isinstance(value, Parameter):
            value = Parameter(value)
        self._append(str(len(self)), value)
        return self

    def extend(self, values: Iterable[Tensor]) -> ParameterList:
        """Adds parameters at the end; returns this module."""
        for value in list(values):
            self.append(value)
        return self

    def __iter__(self) -> Iterator[Parameter]:
        return iter(self._members().values())

    def __getitem__(self, index: int) -> Parameter:
        found: Parameter = self._at(index)
        return found

    def extra_repr(self) -> str:
        lines = [
            f"  ({name}): Parameter containing: [{value.dtype} of size {_sizes(value)}]"
            for name, value in self._members().items()
        ]
        return "\n" + "\n".join(lines) + "\n" if lines else ""


def _sizes(value: Tensor) -> str:
    return "x".join(map(str, value.shape))
