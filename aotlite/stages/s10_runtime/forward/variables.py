"""The variables of an entry's code, by role: returned values, new tensors, and results.

Used by the writers of stage 10. A writer that makes a variable adds it here; the others ask for it.
Asking for a variable that is not made yet is an error, so the order of the lines is checked.
Rules: RT-1, RT-6. Spec: `specs/s10_runtime.md`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import attrs

from aotlite.ir.graph.role import Output, Role
from aotlite.stages.records.capture_inputs import InputRole
from aotlite.stages.s10_runtime.guards.guard_sources import name_of


@attrs.define(eq=False, repr=False)
class Variables:
    """Names of the variables of one entry."""

    results: list[str]
    """The variable of each result, empty until it is made; parts of wrappers come last."""
    _returned: dict[object, str] = attrs.field(factory=dict)
    """The values that the forward returned, without the saved ones: arrays or windows."""
    _tensors: dict[object, str] = attrs.field(factory=dict)
    """The tensors over these values, and the wrappers made from them."""

    def add_returned(self, role: object) -> str:
        """A new variable for an array or a window that the forward returns."""
        name = self._returned[role] = f"w{len(self._returned)}"
        return name

    def returned(self, role: object) -> str:
        """The variable of an array or a window that the forward returned."""
        return self._returned[role]

    def all_returned(self) -> Iterable[tuple[Any, str]]:
        """Each role with the variable of its returned value."""
        return self._returned.items()

    def add_tensor(self, role: object) -> str:
        """A new variable for the tensor over the returned value of this role."""
        name = self._tensors[role] = f"t{len(self._tensors)}"
        return name

    def set_tensor(self, role: object, name: str) -> None:
        """Adds the variable of a wrapper that was made from its parts."""
        self._tensors[role] = name

    def has_tensor(self, role: object) -> bool:
        """Whether the new tensor of this role is made."""
        return role in self._tensors

    def tensor(self, role: object) -> str:
        """The variable of a new tensor: a result, or the base of one."""
        return self._tensors[role]

    def new_or_input(self, role: Any) -> str:
        """The variable of a new tensor; else that of the input of this role."""
        return self._tensors.get(role) or name_of(role)

    def owner(self, role: Role) -> str:
        """The variable of a tensor on an owner's memory; a result's if it is a hidden alias."""
        if isinstance(role, Output) and role not in self._tensors:
            return self.results[role.index]
        return self.new_or_input(role)

    def lasting(self, role: InputRole | Output) -> str:
        """The variable of an input or a result."""
        return self.results[role.index] if isinstance(role, Output) else name_of(role)

    def by_role(self, inputs: Iterable[InputRole]) -> dict[Any, str]:
        """Variables of the tensors whose memory outlives the call: inputs and new ones."""
        return {**{role: name_of(role) for role in inputs}, **self._tensors}
