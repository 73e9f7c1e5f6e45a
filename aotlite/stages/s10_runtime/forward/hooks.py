"""Generated lines that register the hooks of a captured function on the caller's tensors.

Used by stage 10 alone. Rules: HOOK-1 to HOOK-4. Spec: `specs/rules/hook.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import attrs

from aotlite.eager.autograd.differentiable_views import edge_of
from aotlite.stages.records.call_effects import HookPlace, RegisteredHook
from aotlite.stages.s10_runtime.forward.variables import Variables
from aotlite.stages.s10_runtime.source import FunctionSource
from aotlite.stages.s10_runtime.support import register


@attrs.frozen(eq=False, repr=False)
class HookWriter:
    """Adds the lines that register hooks at each call."""

    source: FunctionSource
    hooks: Sequence[RegisteredHook]
    functions: Sequence[Callable[..., object]]
    """The function of each of `hooks`."""
    variables: Variables

    def edges(self) -> list[str]:
        """Variables for the gradient edges of tensors whose history may change; "None" for others.

        They are asked before the function changes the history (HOOK-1).
        """
        return [self._edge(number, hook) for number, hook in enumerate(self.hooks)]

    def _edge(self, number: int, hook: RegisteredHook) -> str:
        if hook.place is not HookPlace.ENTRY:
            return "None"
        self.source.use(edge_of)
        self.source.add(f"entry{number} = edge_of({self.variables.lasting(hook.role)})")
        return f"entry{number}"

    def register(self, edges: Sequence[str]) -> None:
        """Registers the hooks; `edges` are those of `edges()`."""
        for hook, function, edge in zip(self.hooks, self.functions, edges, strict=True):
            self.source.use(register)
            how = self.source.constant(hook, "H", f"{hook.kind} of {hook.role}")
            held = self.source.constant(function, "F", hook.name)
            name = self.variables.lasting(hook.role)
            self.source.add(f"register({how}, {held}, {name}, {edge})")
