"""`EntryText`: the functions that a caller of the file calls, around `forward` and `backward`.

They check the arguments, read the state, run the forward, write updated arrays in place, and build
the results: arrays of their own, the caller's arrays, and views of both. Input: a `PythonProgram`.
Output: the text of the file's last functions. Rules: PYX-2, PYX-8. Spec: `specs/to_python.md`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from aotlite.eager.base.tape.view_chain import ViewChain
from aotlite.ir.errors import UnsupportedError, noted
from aotlite.ir.graph import Node
from aotlite.ir.graph.role import (
    Hidden,
    IntermediateBase,
    MutatedInput,
    NextOffset,
    NextSeed,
    Offset,
    Output,
    Primal,
    Saved,
    Seed,
)
from aotlite.ir.graph.symbolic.binding import computed_in
from aotlite.ir.op import InplaceOp
from aotlite.python_export.file_parts import FileParts
from aotlite.python_export.graph_text import FunctionText, Leaving
from aotlite.python_export.kernels.argument_text import literal
from aotlite.python_export.line_layout import names_in
from aotlite.python_export.program_facts import PythonProgram
from aotlite.python_export.values.containers import container_text
from aotlite.python_export.view_text import chain_text
from aotlite.stages.records.base import where_it_leads
from aotlite.stages.records.capture import ArgumentLeaf, NumpyResult
from aotlite.stages.records.metadata.function_facts import (
    AliasOfBase,
    AliasOfInput,
    AliasOfOutput,
    Fixed,
    InputMeta,
    IsInput,
    Plain,
    Repeated,
)
from aotlite.stages.records.synthetic_base import BaseInput


class EntryText:
    """Writes the entry of a program."""

    def __init__(self, program: PythonProgram, parts: FileParts) -> None:
        self.program, self.parts = program, parts
        self.forward = FunctionText(
            program.forward, "forward", parts, laid_out=True, sizes=program.sizes
        )
        self._returned_texts: list[str] = []
        self.lines: list[str] = []
        self.results: list[str] = []
        self.inputs = {each.role: each for each in program.meta.inputs}
        self.by_role: dict[Any, Node] = {n.role: n for n in program.forward.placeholders}
        self.copies = [n for n in program.forward.calls if isinstance(n.target, InplaceOp)]
        self.returned = dict(
            zip(program.forward.output_roles, program.forward.outputs, strict=True)
        )

    # --- the forward
    def forward_text(self) -> str:
        """The function `forward`."""
        self.forward.body()
        leaving = Leaving(self.forward, self._written_nodes())
        returned = []
        for role, value in self.returned.items():
            own = isinstance(role, (Output, IntermediateBase))
            returned.append(leaving.own(value) if own else leaving.kept(value))
        returned += [leaving.kept(copy.args[1]) for copy in self.copies]
        self._returned_texts = returned
        return self.forward.text(returned, "New values, results and saved values of the inputs.")

    def _written_nodes(self) -> set[Node]:
        """The placeholders in whose memory the call writes."""
        roles: set[Any] = {each.role for each in self.program.meta.inputs if each.writes_data}
        for base in self.program.convention.bases:
            if any(member.role in roles for member in base.members):
                roles.add(base.role)
        found = {self.by_role[role] for role in roles if role in self.by_role}
        return found | {copy.args[0] for copy in self.copies}

    def names(self) -> list[str]:
        """The variables of what the forward returns, in order."""
        return [*map(str, self.returned), *[self._new(copy) for copy in self.copies]]

    def _new(self, copy: Node) -> str:
        return f"new_{copy.args[0].role}"

    # --- the entry
    def write(self) -> None:
        """Writes the lines from the arguments to the results."""
        self._arguments()
        self._state()
        for guard in self.program.sizes.guards:
            self.lines.append(f"{self.parts.use('_meets')}({literal(guard)}, {guard})")
        self._check_memory()
        for base in self.program.convention.bases:
            self._base(base)
        self._run()
        for each in self.program.meta.inputs:
            self._write(each)
        for copy in self.copies:
            self.lines.append(f"{copy.args[0].role}[...] = {self._new(copy)}")
        self._results()
        self._generator()
        self._gradients()
        self.check_sizes(self.lines)

    def check_sizes(self, lines: Sequence[str]) -> None:
        """Raises UnsupportedError where a line needs a size that only the forward knows."""
        counted = {each.symbol for each in computed_in(self.program.forward)}
        if counted & {word for line in lines for word in re.findall(r"\w+", line)}:
            raise noted(
                UnsupportedError(
                    "to_python: a view or a gradient has a size that depends on values, expected "
                    "such sizes inside the forward alone"
                ),
                "Return result.clone(), or leave the backward out: to_python(backward=False). "
                "(PYX-9)",
            )

    def _checked(self, role: Any, text: str, key: str) -> None:
        """Writes the line that checks an input, whose array has the name of its role."""
        for each in self.program.sizes.bindings:
            if each.source.role == role:
                size = f"{self.parts.use('_size')}({literal(key)}, {text}, {each.dim})"
                self.lines.append(self.program.sizes.reading(each, size))
        meta = self.inputs[role].meta
        parts = [literal(key), text, literal(tuple(meta.shape)), literal(meta.dtype.numpy)]
        parts.append(literal(tuple(meta.stride)))
        self.lines.append(f"{role} = {self.parts.use('_array')}({', '.join(parts)})")

    def _arguments(self) -> None:
        for each in self.program.arguments:
            if each.is_number:
                call = f"({literal(each.text)}, {local(each.text)}, {literal(each.number)})"
                self.lines.append(self.parts.use("_number") + call)
            elif each.same_as is not None:
                other = self.program.argument(each.same_as)
                both = f"{literal(each.text)}, {local(each.text)}, {literal(other)}, {local(other)}"
                self.lines.append(f"{self.parts.use('_same')}({both})")
            elif Primal(each.index) in self.inputs:
                self._checked(Primal(each.index), local(each.text), each.text)

    def _state(self) -> None:
        if self.has_state:
            self.lines.append("state = STATE if state is None else state")
        for each in self.program.state:
            if each.role in self.inputs:
                text = f"{self.parts.use('_key')}(state, {literal(each.key)})"
                self._checked(each.role, text, each.key)

    @property
    def has_state(self) -> bool:
        """Whether the file's functions read or write a state."""
        return bool(self.program.state or self.draws or self.program.meta.grads)

    @property
    def draws(self) -> bool:
        return any(isinstance(role, (Seed, Offset)) for role in self.by_role)

    def _check_memory(self) -> None:
        """Writes the checks of which arrays share memory (PYX-2)."""
        groups = [
            [member.role for member in base.members] for base in self.program.convention.bases
        ]
        written = [each.role for each in self.program.meta.inputs if each.writes_data]
        if not written or len(self.inputs) < 2:
            return
        rows = [f"{literal(self.program.key(role))}: {role}" for role in self.inputs]
        families = [[self.program.key(role) for role in group] for group in groups]
        names = [self.program.key(role) for role in written]
        call = f"{{{', '.join(rows)}}}, {literal(names)}, {literal(families)}"
        self.lines.append(f"{self.parts.use('_apart')}({call})")

    def _base(self, base: BaseInput) -> None:
        """Writes the lines that make a synthetic base of its anchor, and check its members."""
        key, size = self.program.key, base.meta.dtype.itemsize
        for member in base.members:
            led = where_it_leads(member.chain)
            start = 0 if led is None else led[1] * led[0].dtype.itemsize
            if member.role != base.anchor:
                mine, its = literal(key(member.role)), literal(key(base.anchor))
                names = f"{mine}, {member.role}, {its}, {base.anchor}"
                distance = base.start + start
                self.lines.append(f"{self.parts.use('_beside')}({names}, {distance})")
        if base.whole:
            self.lines.append(f"{base.role} = {base.anchor}")
            return
        shape, strides = literal(tuple(base.meta.shape)), literal(tuple(base.meta.stride))
        window = f"{base.anchor}, {shape}, {strides}, {base.start // size}"
        dtype = literal(base.meta.dtype.numpy)
        self.lines.append(f"{base.role} = {self.parts.use('_window')}({window}, {dtype})")

    def _run(self) -> None:
        given = [self._input(role) for role in self.by_role]
        given += self.forward.symbols(self._returned_texts)
        call = f"forward({', '.join(given)})"
        names = self.names()
        if not names:
            self.lines.append(call)
        elif len(names) == 1:
            self.lines.append(f"({names[0]},) = {call}")
        else:
            self.lines.append(f"({', '.join(names)}) = {call}")

    def _input(self, role: Any) -> str:
        if isinstance(role, (Seed, Offset)):
            key = f"generator.{role}"
            return f"{self.parts.use('_key')}(state, {literal(key)})"
        return str(role)

    def _write(self, each: InputMeta) -> None:
        """Writes the line that gives the caller's array its new value."""
        role = MutatedInput(each.role)
        value = self.returned.get(role)
        if not each.writes_data or each.in_graph or type(value) is not Node:
            return
        if value.op == "placeholder" and value.role == each.role:
            return
        target = str(each.role)
        if each.extent is not None:
            meta: Any = value.meta
            window = literal(tuple(meta.shape)), literal(tuple(meta.stride)), each.extent[0]
            target = f"{self.parts.use('_window')}({target}, {', '.join(map(str, window))})"
        self.lines.append(f"{target}[...] = {role}")

    # --- results
    def _results(self) -> None:
        outputs = self.program.meta.outputs
        self.results = [""] * len(outputs)
        for index in range(len(outputs)):
            self._result(index)

    def _origin(self, index: int) -> str:
        """A result before its own changes of geometry: other results may be views of it."""
        output = self.program.meta.outputs[index]
        if isinstance(output, Plain):
            return str(self.program.meta.role_of(index))
        return self._result(index)

    def _result(self, index: int) -> str:
        if not self.results[index]:
            text = self._made(index)
            kind = (*self.program.numpy_results, *[None] * len(self.results))[index]
            if kind is NumpyResult.SCALAR:
                text = f"{text}[()]"
            if not text.isidentifier() and not isinstance(self.program.meta.outputs[index], Fixed):
                self.lines.append(f"result_{index} = {text}")
                text = f"result_{index}"
            self.results[index] = text
        return self.results[index]

    def _made(self, index: int) -> str:
        output = self.program.meta.outputs[index]
        match output:
            case Plain(geometry_steps=steps):
                origin = self._origin(index)
                return self.viewed(origin, steps) if steps else origin
            case IsInput(role):
                return str(role)
            case AliasOfInput(role, view):
                return self.viewed(str(role), view.chain, view.geometry_steps)
            case AliasOfBase(base, view):
                return self.viewed(str(IntermediateBase(base)), view.chain, view.geometry_steps)
            case AliasOfOutput(of, view):
                return self.viewed(self._origin(of), view.chain, view.geometry_steps)
            case Repeated(of):
                return self._result(of)
            case Fixed(ArgumentLeaf(leaf)):
                return local(self.program.argument(leaf))
            case Fixed(value):
                return literal(value)
        raise AssertionError(output)

    def viewed(self, source: str, *chains: ViewChain) -> str:
        """The array that these chains of views show of another one, a new object."""
        text = source
        for chain in chains:
            text = chain_text(text, chain) if chain else text
        if "_window(" in text:
            self.parts.use("_window")
        return f"{source}[...]" if text == source else text

    # --- after
    def _generator(self) -> None:
        """Writes the line that moves the random stream (PYX-7)."""
        roles = (NextSeed(), NextOffset())
        for role, name in zip(roles, ("seed", "offset"), strict=True):
            if role in self.returned:
                self.lines.append(f'state["generator.{name}"] = {role}')

    def _gradients(self) -> None:
        """Writes the lines that put the `.grad`s that the function sets into the state."""
        for each in self.program.meta.grads:
            if not isinstance(each.role, (Primal, Hidden)):
                raise noted(
                    UnsupportedError(
                        f"to_python: each call sets the .grad of {each.role}, expected .grads of "
                        "arguments and of what the function reaches"
                    ),
                    "Return the gradient. (PYX-9)",
                )
            value = "None" if each.result is None else self.results[each.result]
            self.lines.append(f"state[{literal(self.program.key(each.role) + '.grad')}] = {value}")

    def returned_text(self) -> str:
        """The results in their containers."""
        name = self.program.name
        taken = {name, f"{name}_with_backward", "pullback", *names_in("\n".join(self.lines))}
        return container_text(self.program.spec, self.results, self.parts, taken)

    def saved(self) -> list[str]:
        """The variables of the saved values, in order."""
        return [str(role) for role in self.returned if isinstance(role, Saved)]


def local(text: str) -> str:
    """The expression of an argument, before `functions_of` decides on the names of parameters.

    >>> local('batch["x"]')
    'given_batch["x"]'
    """
    return f"given_{text}"
