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

from aotlite.eager.base.tape.view_chain import EMPTY_CHAIN, ViewChain, overlaps_itself
from aotlite.eager.base.tape.view_root import CreationKind
from aotlite.ir.geometry.layout import contiguous_strides
from aotlite.ir.graph.role import (
    BackwardOffset,
    BackwardSeed,
    Family,
    Gradient,
    IntermediateBase,
    MutatedInput,
    NextBackwardOffset,
    NextBackwardSeed,
    Saved,
    Tangent,
)
from aotlite.python_export.entry_text import EntryText
from aotlite.python_export.graph_text import FunctionText, Leaving
from aotlite.python_export.kernels.argument_text import literal
from aotlite.python_export.values.family_gradients import FamilyGradients, refused
from aotlite.stages.records.metadata.function_facts import (
    AliasOfBase,
    AliasOfInput,
    AliasOfOutput,
    IsInput,
    Plain,
    ViewFacts,
)


@attrs.frozen(eq=False)
class AddedCotangent:
    """A cotangent that is added to a part of a variable."""

    parameter: str
    variable: str
    chains: tuple[ViewChain, ...]
    """The views from the variable to the part."""


class PullbackText:
    """Writes the backward of a program whose entry is written. Without a backward graph, results
    that are arguments or views of them have gradients all the same."""

    def __init__(self, entry: EntryText) -> None:
        self.entry, self.program, self.parts = entry, entry.program, entry.parts
        graph = entry.program.backward
        self.function: FunctionText | None = None
        if graph is not None:
            sizes = self.program.sizes
            self.function = FunctionText(
                graph, "backward", entry.parts, laid_out=False, sizes=sizes
            )
        self._returned_texts: list[str] = []
        self.placeholders = {node.role: node for node in graph.placeholders} if graph else {}
        self.tangents = {r.of: n for r, n in self.placeholders.items() if isinstance(r, Tangent)}
        outputs = graph.outputs_with(Gradient) if graph else ()
        self.gradients = [(role.of, value) for role, value in outputs if value is not None]
        self.families = FamilyGradients(self.program, {role.of for role, _ in outputs})
        self.parameters: list[str] = []
        self.lines: list[str] = []
        self.direct: dict[Any, str] = {}
        """The variables of gradients that reach an input without the backward graph."""
        self.added: list[AddedCotangent] = []
        self._check()

    def _check(self) -> None:
        known = (Saved, Tangent, BackwardSeed, BackwardOffset)
        for role in self.placeholders:
            if not isinstance(role, known):
                raise refused(f"the backward reads {role}")
        of = [*self.tangents, *[role for role, _ in self.gradients]]
        for family in {getattr(role, "of", role) for role in of}:
            if isinstance(family, Family):
                self.families.check(family)

    # --- the backward
    def backward_texts(self) -> list[str]:
        """The function `backward`, if there is one."""
        if self.function is None:
            return []
        self.function.body()
        leaving = Leaving(self.function, ())
        graph = self.function.graph
        values = zip(graph.output_roles, graph.outputs, strict=True)
        self._returned_texts = [
            leaving.own(v) if isinstance(r, Gradient) else leaving.kept(v) for r, v in values
        ]
        about = "Gradients of saved values and tangents."
        return [self.function.text(self._returned_texts, about)]

    # --- the pullback
    def write(self) -> bool:
        """Writes the lines of `pullback`, from cotangents to gradients; whether there are any."""
        for role, node in self.tangents.items():
            if self.has_own_cotangent(role):
                self._tangent(str(Tangent(role)), node.meta, self._parameter(role))
            else:
                self._tangent(str(Tangent(role)), node.meta, "None")
                for member, chain in self.families.members(getattr(role, "of", None)):
                    self._add_part(MutatedInput(member), str(Tangent(role)), (chain,))
        for index, output in enumerate(self.program.meta.outputs):
            self._add(index, output)
        lines = [] if self.function is None else self.function.lines
        if self.function is not None:
            self._run(self.function)
        self._result()
        self.entry.check_sizes([*self.lines, *lines])
        return self.function is not None or bool(self.direct)

    def has_own_cotangent(self, role: Any) -> bool:
        """Whether the caller hands over the whole cotangent: not of a base, which no one has."""
        return not isinstance(role, IntermediateBase) and not isinstance(
            getattr(role, "of", None), Family
        )

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
        shape, strides = literal(tuple(meta.shape)), literal(tuple(_dense(meta)))
        call = f"{self.parts.use('_cotangent')}({text}, {shape}, {literal(meta.dtype.numpy)}"
        return f"{name} = {call}, {strides})"

    def _add(self, index: int, output: Any) -> None:
        """Writes the lines that add the cotangent of a result that is no value of the forward."""
        match output:
            case Plain(geometry_steps=steps) if (
                steps and self.program.meta.role_of(index) in self.tangents
            ):
                raise refused(f"the object of result {index} changes its geometry")
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
        family = self.families.of(role)
        if family is not None:
            if self.entry.inputs[role].requires_grad_at_exit:
                chain = self.families.chain(role)
                target = str(Tangent(MutatedInput(family)))
                self._add_to(index, target, view, ahead=(chain,) if chain else ())
            return
        if MutatedInput(role) in self.tangents:
            target = str(Tangent(MutatedInput(role)))
        elif not self.entry.inputs[role].requires_grad:
            return
        elif view is not None and self.families.leads_to_base(role, view):
            name = self.program.key(role)
            where = "what it shows of " if self.entry.inputs[role].is_leaf else ""
            end = "" if where else "._base"
            raise refused(
                f"result {index} is an as_strided view, whose gradient leads to {where}{name}{end}"
            )
        else:
            target = f"direct_{role}"
            if role not in self.direct and not (view is not None and passes_nothing_on(view)):
                self.direct[role] = target
                self._tangent(target, self.entry.inputs[role].meta, "None")
        self._add_to(index, target, view)

    def _add_to(
        self,
        index: int,
        target: str,
        view: ViewFacts | None,
        ahead: tuple[ViewChain, ...] = (),
    ) -> None:
        """Writes the lines that add the cotangent of a result to what it shows of a variable, which
        `ahead` leads to where the view begins."""
        if view is not None and passes_nothing_on(view):
            self._parameter(self.program.meta.role_of(index))
            return
        if target not in [line.split(" =")[0] for line in self.lines]:
            raise refused(f"the backward has no place for the gradient of result {index}")
        chains = () if view is None else (view.chain, view.geometry_steps)
        self._add_part(self.program.meta.role_of(index), target, (*ahead, *chains))

    def _add_part(self, role: Any, target: str, chains: tuple[ViewChain, ...]) -> None:
        """Writes the lines that add the cotangent of `role` to a part of a variable."""
        name = self._parameter(role)
        self.added.append(AddedCotangent(name, target, chains))
        self.lines.append(f"if {name} is not None:")
        part = self.entry.viewed(target, *chains) if any(chains) else target
        if "_window(" in part and overlaps_itself(self.meta_of(target)):
            raise refused(f"{role} is a view by strides of memory that overlaps itself")
        if any(chain.repeats for chain in chains):
            if any(step.operand.dtype is not step.result.dtype for c in chains for step in c):
                raise refused(f"{role} is a view that shows elements more than once, as a dtype")
            places = self.entry.viewed(f"{self.parts.use('_places')}({target})", *chains)
            self.lines.append(f"    {self.parts.use('_add_at')}({target}, {places}, {name})")
            return
        name_of_part = part if part == target else "part"
        lines = [] if part == target else [f"    part = {part}"]
        self.lines += [*lines, f"    {name_of_part} += {name}"]

    def meta_of(self, variable: str) -> Any:
        """The meta of what a variable is the cotangent of."""
        metas = {str(Tangent(role)): node.meta for role, node in self.tangents.items()}
        metas |= {name: self.entry.inputs[role].meta for role, name in self.direct.items()}
        return metas[variable]

    def _run(self, function: FunctionText) -> None:
        graph = function.graph
        names = [str(role) for role in graph.output_roles]
        given = []
        for role in self.placeholders:
            if isinstance(role, BackwardSeed):
                given.append('state["generator.seed"]')
            elif isinstance(role, BackwardOffset):
                given.append('state["generator.offset"]')
            else:
                given.append(str(role))
        given += function.symbols(self._returned_texts)
        left = f"({names[0]},)" if len(names) == 1 else f"({', '.join(names)})"
        self.lines.append(f"{left} = backward({', '.join(given)})")
        states = ((NextBackwardSeed(), "seed"), (NextBackwardOffset(), "offset"))
        for role, name in states:
            if role in graph.output_roles:
                self.lines.append(f'state["generator.{name}"] = {role}')

    def _result(self) -> None:
        own = [(role, str(Gradient(role))) for role, _ in self.gradients]
        found = self.families.by_key([*own, *self.direct.items()], self.parts)
        items = [f"{literal(key)}: {text}" for key, text in found.items()]
        self.lines.append(f"return {{{', '.join(items)}}}")


def _dense(meta: Any) -> Any:
    """The strides of a cotangent: those of the value, but for one that overlaps itself."""
    return contiguous_strides(meta.shape) if overlaps_itself(meta) else meta.stride


def passes_nothing_on(view: ViewFacts) -> bool:
    """Whether no gradient flows from a view to its source: it is a leaf, has no history as it was
    taken under no_grad, or is a view of such a view (TEN-21)."""
    without = view.kind is CreationKind.NO_GRAD and not view.under_grad
    return view.is_dead_end or view.is_leaf or without
