"""`PullbackText`: the backward of a program, and the function that a caller hands cotangents to.

The compiled backward takes a tangent for each value that the forward computes. A result that is a
view of such a value, or of an argument, has none: its cotangent is added to what it shows, in the
tangent of the whole value. Input: a `PythonProgram` with a backward graph. Output: the function
`backward`, and the lines of `pullback`. Rules: PYX-10. Spec: `specs/to_python.md`.
"""

from __future__ import annotations

from operator import is_
from typing import Any

import attrs

from aotlite.eager.base.tape.view_chain import EMPTY_CHAIN
from aotlite.ir.errors import UnsupportedError, noted
from aotlite.ir.graph.role import (
    BackwardOffset,
    BackwardSeed,
    Family,
    Gradient,
    IntermediateBase,
    MutatedInput,
    NextBackwardOffset,
    NextBackwardSeed,
    Primal,
    Saved,
    Tangent,
)
from aotlite.ir.ops.views.view_ops import AS_STRIDED
from aotlite.python_export.entry_text import EntryText
from aotlite.python_export.graph_text import FunctionText, Leaving
from aotlite.python_export.kernels.argument_text import literal
from aotlite.stages.records.metadata.function_facts import (
    AliasOfBase,
    AliasOfInput,
    AliasOfOutput,
    IsInput,
    Plain,
    ViewFacts,
)


class PullbackText:
    """Writes the backward of a program whose entry is written."""

    def __init__(self, entry: EntryText) -> None:
        self.entry, self.program, self.parts = entry, entry.program, entry.parts
        graph = entry.program.backward
        assert graph is not None
        self.function = FunctionText(
            graph, "backward", entry.parts, laid_out=False, sizes=self.program.sizes
        )
        self._returned_texts: list[str] = []
        self.placeholders = {node.role: node for node in graph.placeholders}
        self.tangents = {r.of: n for r, n in self.placeholders.items() if isinstance(r, Tangent)}
        self.gradients = [
            (role.of, value) for role, value in graph.outputs_with(Gradient) if value is not None
        ]
        self.parameters: list[str] = []
        self.lines: list[str] = []
        self.direct: dict[Any, str] = {}
        """The variables of gradients that reach an input without the backward graph."""
        self.added: list[tuple[str, str, ViewFacts | None]] = []
        """(parameter, variable, view) of each cotangent that is added to a part of a variable."""
        self._check()

    def _check(self) -> None:
        known = (Saved, Tangent, BackwardSeed, BackwardOffset)
        for role in self.placeholders:
            if not isinstance(role, known):
                raise _refused(f"the backward reads {role}")
        of = [*self.tangents, *[role for role, _ in self.gradients]]
        if any(isinstance(getattr(role, "of", role), Family) for role in of):
            raise _refused("arguments that overlap are views of one base, with one history")

    # --- the backward
    def backward_text(self) -> str:
        """The function `backward`."""
        self.function.body()
        leaving = Leaving(self.function, ())
        graph = self.function.graph
        values = zip(graph.output_roles, graph.outputs, strict=True)
        self._returned_texts = [
            leaving.own(v) if isinstance(r, Gradient) else leaving.kept(v) for r, v in values
        ]
        about = "Gradients of saved values and tangents."
        return self.function.text(self._returned_texts, about)

    # --- the pullback
    def write(self) -> None:
        """Writes the lines of `pullback`, from cotangents to gradients."""
        for role, node in self.tangents.items():
            if self.has_own_cotangent(role):
                self._tangent(str(Tangent(role)), node.meta, self._parameter(role))
            else:
                self._tangent(str(Tangent(role)), node.meta, "None")
        for index, output in enumerate(self.program.meta.outputs):
            self._add(index, output)
        self._run()
        self._result()
        self.entry.check_sizes([*self.lines, *self.function.lines])

    def has_own_cotangent(self, role: Any) -> bool:
        """Whether the caller hands over the whole cotangent: not of a base, which no one has."""
        return not isinstance(role, IntermediateBase)

    def _parameter(self, role: Any) -> str:
        name = f"d_{role}"
        if name not in self.parameters:
            self.parameters.append(name)
        return name

    def _tangent(self, name: str, meta: Any, value: str) -> None:
        self.lines.append(self.cotangent(name, value, meta))

    def cotangent(self, name: str, value: str, meta: Any) -> str:
        """The line that checks and copies a cotangent; `value` is "None" for zeros."""
        text = f"{literal(value)}, {value}" if value != "None" else f"{literal(name)}, None"
        shape, strides = literal(tuple(meta.shape)), literal(tuple(meta.stride))
        call = f"{self.parts.use('_cotangent')}({text}, {shape}, {literal(meta.dtype.numpy)}"
        return f"{name} = {call}, {strides})"

    def _add(self, index: int, output: Any) -> None:
        """Writes the lines that add the cotangent of a result that is no value of the forward."""
        match output:
            case Plain(geometry_steps=steps) if (
                steps and self.program.meta.role_of(index) in self.tangents
            ):
                raise _refused(f"the object of result {index} changes its geometry")
            case IsInput(role):
                self._add_to_input(index, role, None)
            case AliasOfInput(role, view) if view.requires_grad and not view.own_history:
                self._add_to_input(index, role, view)
            case AliasOfBase(base, view) if view.requires_grad and not view.own_history:
                self._add_to(index, *self._of_base(base, view))
            case AliasOfOutput(of, view) if view.requires_grad and not view.own_history:
                self._add_to(index, str(Tangent(self.program.meta.role_of(of))), view)

    def _of_base(self, base: int, view: ViewFacts) -> tuple[str, ViewFacts]:
        """The variable that a cotangent of a view of a base is added to, and the view of it: what
        `detach` gave has a history of its own, and so have its views (META-8)."""
        steps = view.chain.steps
        longest = 0
        found = str(Tangent(IntermediateBase(base))), view
        for index, other in enumerate(self.program.meta.outputs):
            if isinstance(other, AliasOfBase) and other.base == base and other.view.own_history:
                before = other.view.chain.steps
                shared = steps[: len(before)]
                if len(before) > longest and all(map(is_, before, shared)):
                    longest = len(before)
                    rest = attrs.evolve(view, chain=EMPTY_CHAIN.joined(steps[longest:]))
                    found = str(Tangent(self.program.meta.role_of(index))), rest
        return found

    def _add_to_input(self, index: int, role: Any, view: ViewFacts | None) -> None:
        if MutatedInput(role) in self.tangents:
            target = str(Tangent(MutatedInput(role)))
        elif not self.entry.inputs[role].requires_grad or self._leads_to_base(role, view):
            return
        else:
            target = f"direct_{role}"
            if role not in self.direct:
                self.direct[role] = target
                self._tangent(target, self.entry.inputs[role].meta, "None")
        self._add_to(index, target, view)

    def _leads_to_base(self, role: Any, view: ViewFacts | None) -> bool:
        """Whether a view of an input is one of its base, to which its gradient leads (FUN-11)."""
        is_view = any(Primal(x.index) == role and x.is_view for x in self.program.arguments)
        return is_view and view is not None and any(s.op is AS_STRIDED for s in view.chain)

    def _add_to(self, index: int, target: str, view: ViewFacts | None) -> None:
        name = self._parameter(self.program.meta.role_of(index))
        if target not in [line.split(" =")[0] for line in self.lines]:
            if view is not None and view.is_dead_end:
                return  # it passes no gradient on (TEN-21)
            raise _refused(f"the backward has no place for the gradient of result {index}")
        part = (
            target if view is None else self.entry.viewed(target, view.chain, view.geometry_steps)
        )
        if view is not None and view.chain.repeats:
            raise _refused(f"result {index} is a view that shows elements more than once")
        self.added.append((name, target, view))
        name_of_part = part if part == target else "part"
        lines = [] if part == target else [f"    part = {part}"]
        self.lines += [f"if {name} is not None:", *lines, f"    {name_of_part} += {name}"]

    def _run(self) -> None:
        graph = self.function.graph
        names = [str(role) for role in graph.output_roles]
        given = []
        for role in self.placeholders:
            if isinstance(role, BackwardSeed):
                given.append('state["generator.seed"]')
            elif isinstance(role, BackwardOffset):
                given.append('state["generator.offset"]')
            else:
                given.append(str(role))
        given += self.function.symbols(self._returned_texts)
        left = f"({names[0]},)" if len(names) == 1 else f"({', '.join(names)})"
        self.lines.append(f"{left} = backward({', '.join(given)})")
        states = ((NextBackwardSeed(), "seed"), (NextBackwardOffset(), "offset"))
        for role, name in states:
            if role in graph.output_roles:
                self.lines.append(f'state["generator.{name}"] = {role}')

    def _result(self) -> None:
        found: dict[Any, str] = {}
        for role, _ in self.gradients:
            found[role] = str(Gradient(role))
        for role, name in self.direct.items():
            mine = found.get(role)
            added = self.parts.use("_added") if mine else ""
            found[role] = f"{added}({mine}, {name})" if mine else name
        items = [f"{literal(self.program.key(role))}: {text}" for role, text in found.items()]
        self.lines.append(f"return {{{', '.join(items)}}}")


def _refused(what: str) -> Exception:
    return noted(
        UnsupportedError(f"to_python: {what}, expected a backward that a file of NumPy can hold"),
        "Leave the backward out: to_python(backward=False). (PYX-9)",
    )
