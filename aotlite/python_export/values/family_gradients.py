"""`FamilyGradients`: gradients where arguments are views of one base.

    x, y = base[:3], base[1:]
    x.mul_(w)                       the base has a new history, and with it y

Behind such a write the compiled backward takes one tangent for the base, in the base's geometry,
and gives its gradient. The callers of a file have the views alone: a cotangent of a view is added
to its part of that tangent, and the gradient of the base has the name `x._base`. What reached a
view before the write is the view's own gradient, as hooks of it see it in eager. Rules: PYX-10,
SYN-2. Spec: `specs/to_python.md`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Any

from aotlite.eager.base.tape.view_chain import ViewChain
from aotlite.ir.errors import UnsupportedError, noted
from aotlite.ir.graph.role import Family, Primal
from aotlite.ir.ops.views.view_ops import AS_STRIDED
from aotlite.python_export.file_parts import FileParts
from aotlite.python_export.program_facts import PythonProgram
from aotlite.stages.records.metadata.function_facts import ViewFacts


class FamilyGradients:
    """The families of a program, of whose inputs the backward gives the gradients of `reached`."""

    def __init__(self, program: PythonProgram, reached: Collection[Any]) -> None:
        self.program, self.reached = program, reached
        self.metas = {each.role: each for each in program.meta.families}
        self._of = {
            member: each.role
            for each in program.meta.families
            if each.changes_history
            for member in each.members
        }

    def of(self, role: Any) -> Family | None:
        """The family of an input whose history is that of a base which was written."""
        return self._of.get(role)

    def chain(self, role: Any) -> ViewChain:
        """The views from the base of its family to an input."""
        found = self.program.chain_of(role)
        assert found is not None
        return found

    def members(self, family: Any) -> Iterator[tuple[Any, ViewChain]]:
        """The inputs of a family that have its history after the call, with their chains."""
        for role in self.metas[family].members if isinstance(family, Family) else ():
            if self.program.meta.input_of(role).requires_grad_at_exit:
                yield role, self.chain(role)

    def check(self, family: Family) -> None:
        """Raises UnsupportedError for a family whose histories a file cannot tell apart."""
        meta = self.metas[family]
        for role in meta.members:
            each = self.program.meta.input_of(role)
            own = family not in self.reached or each.is_leaf and each.changes_history
            name = self.program.key(role)
            if self.program.chain_of(role) is None:
                raise refused(f"{name} is a view of a base that the program does not know")
            if each.changes:
                raise refused(f"the autograd state of {name} changes, which is a view of a base")
            if each.requires_grad and own:
                raise refused(f"{name} has a history apart from the base of which it is a view")

    def leads_to_base(self, role: Any, view: ViewFacts) -> bool:
        """Whether a view of an input is one of its base, to which its gradient leads (FUN-11)."""
        is_view = any(Primal(x.index) == role and x.is_view for x in self.program.arguments)
        return is_view and any(step.op is AS_STRIDED for step in view.chain)

    def key(self, role: Any) -> str:
        """The name of an input among gradients; of a family, that of the base of its first one."""
        if not isinstance(role, Family):
            return self.program.key(role)
        members = self.metas[role].members
        base = next((each for each in members if not self.program.chain_of(each)), None)
        name = self.program.key(members[0] if base is None else base)
        return f"{name}._base" if base is None else name

    def by_key(self, gradients: Iterable[tuple[Any, str]], parts: FileParts) -> dict[str, str]:
        """The gradients by the names of inputs; that of an input which is the base of a family is
        the sum of its own and the family's."""
        found: dict[str, str] = {}
        for role, text in gradients:
            key = self.key(role)
            mine = found.get(key)
            found[key] = f"{parts.use('_added')}({mine}, {text})" if mine else text
        return found


def refused(what: str) -> Exception:
    """The error for a backward that no file holds."""
    return noted(
        UnsupportedError(f"to_python: {what}, expected a backward that a file of NumPy can hold"),
        "Leave the backward out: to_python(backward=False). (PYX-9)",
    )
