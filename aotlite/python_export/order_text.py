"""`OrdersText`: gradients that can be differentiated again, as functions of a file.

    (results), pullback = NAME_of_order_2(x)
    gradients, pullback_2 = pullback(d_output_0)
    gradients_of_these = pullback_2(d_x)

An order has two graphs: forward_2 computes the gradients from what the order before it has saved,
backward_2 their gradients. Input: a `PythonProgram` with orders, and the text of its pullback.
Output: these functions, and the entry whose pullback gives another one. Rules: PYX-15. Spec:
`specs/to_python.md`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from aotlite.ir.errors import UnsupportedError, noted
from aotlite.ir.graph import Graph, Node
from aotlite.ir.graph.node_text import identifier
from aotlite.ir.graph.role import Gradient, Incoming, Kept, Output, Saved, Tangent
from aotlite.python_export.graph_text import FunctionText, Leaving
from aotlite.python_export.kernels.argument_text import literal
from aotlite.python_export.program_facts import GradientOrder
from aotlite.python_export.pullback_text import PullbackText


class OrdersText:
    """Writes the orders behind the first one."""

    def __init__(self, pullback: PullbackText) -> None:
        self.first, self.entry, self.parts = pullback, pullback.entry, pullback.parts
        self.orders = pullback.program.orders
        self.functions: list[str] = []
        self.names: list[dict[Any, str]] = []
        """For each order the names of its cotangents, by role."""
        if pullback.added and len(self.orders) > 1:
            raise noted(
                UnsupportedError(
                    "to_python: a result is a view or an argument, expected results of their own "
                    f"for derivatives of order {self.order}"
                ),
                "Return result.clone(), or export the program with order=2. (PYX-15)",
            )

    @property
    def order(self) -> int:
        """How often the results can be differentiated."""
        return 1 + len(self.orders)

    def pullback_lines(self) -> list[str]:
        """The lines of the first pullback, down to the last one in it."""
        ends = [k for k, line in enumerate(self.first.lines) if "= backward(" in line]
        end = ends[0] if ends else len(self.first.lines) - 1  # behind it is the return
        saved = {r.index: str(r) for r in self.entry.returned if isinstance(r, Saved)}
        arriving = {role: str(Tangent(role)) for role in self.first.tangents}
        own = [role for role in self.first.tangents if self.first.has_own_cotangent(role)]
        self.names = [{role: f"d_{role}" for role in own}]
        return [*self.first.lines[:end], *self._order(0, saved, arriving)]

    def _order(
        self, place: int, saved: Mapping[int, str], arriving: Mapping[Any, str]
    ) -> list[str]:
        """The lines that compute the gradients of an order, and define its pullback.

        `saved`, `arriving`: the variables of what the order before has saved, and of its
        cotangents.
        """
        order, number = self.orders[place], place + 2
        lines, of = [], dict[Any, str]()
        if order.forward is not None:
            given = [self._given(node.role, saved, arriving) for node in order.forward.placeholders]
            made = self._function(order.forward, f"forward_{number}", (Output,))
            of = {role: f"{role}_order_{number}" for role in order.forward.output_roles}
            lines = [f"{_tuple(list(of.values()))} = {made}({', '.join(given)})", ""]
        inner = self._pullback(place, of)
        own = [(role, of[Output(index)]) for role, index in order.gradients]
        text = self._by_name([*own, *self._direct(place).items()])
        return [*lines, *inner, "", f"return {text}, pullback_{number}"]

    def _direct(self, place: int) -> Mapping[Any, str]:
        """The gradients of first order that reach an input without the backward graph."""
        return {} if place else self.first.direct

    def _of_cotangents(self, variables: Mapping[str, str]) -> Iterator[tuple[str, str]]:
        """The gradients of cotangents that were added to parts, by their names, where those of the
        whole are `variables`."""
        for each in self.first.added:
            if each.variable in variables:
                whole = variables[each.variable]
                part = self.entry.viewed(whole, *each.chains) if any(each.chains) else whole
                if "_window(" in part:  # it names strides, which are those of the cotangent
                    steps = literal(tuple(self.first.meta_of(each.variable).stride))
                    laid = f"{self.parts.use('_laid_out')}({whole}, {steps})"
                    part = self.entry.viewed(laid, *each.chains)
                yield each.parameter, f'np.array({part}, order="C")'

    def _given(self, role: Any, saved: Mapping[int, str], arriving: Mapping[Any, str]) -> str:
        if isinstance(role, Kept):
            return saved[role.index]
        while isinstance(role, Incoming):
            role = role.of
        return arriving[role]

    def _key(self, role: Any) -> str:
        """The name of an input among gradients: that of the caller's argument, or cotangent."""
        depth = 0
        while isinstance(role, Incoming):
            role, depth = role.of, depth + 1
        return self.names[depth - 1][role] if depth else self.first.families.key(role)

    def _pullback(self, place: int, of: Mapping[Any, str]) -> list[str]:
        """The function of cotangents of the gradients."""
        order, number = self.orders[place], place + 2
        outputs: dict[Any, Any] = {}
        if order.forward is not None:
            pairs = zip(order.forward.output_roles, order.forward.outputs, strict=True)
            outputs = dict(pairs)
        parameters: dict[Any, str] = {}
        tangents: dict[Any, str] = {}
        metas: dict[Any, Any] = {}
        of_inputs = {role: Output(index) for role, index in order.gradients}
        for role in (*of_inputs, *[r for r in self._direct(place) if r not in of_inputs]):
            result: Any = of_inputs.get(role, role)
            parameters[result] = f"d_{identifier(self._key(role))}"
            tangents[result] = f"tangents_{number}_{len(tangents)}"
            is_of_graph = result in outputs
            metas[result] = (outputs[result] if is_of_graph else self.entry.inputs[role]).meta
        self.names.append(parameters)
        head = ", ".join([f"{name}=None" for name in dict.fromkeys(parameters.values())])
        lines = ['"""Returns the gradients; None for a cotangent stands for zeros."""']
        for result, name in parameters.items():
            lines.append(self.first.cotangent(tangents[result], name, metas[result]))
        whole = {
            name: tangents[of_inputs.get(role, role)] for role, name in self._direct(place).items()
        }
        saved = {r.index: of[r] for r in of if isinstance(r, Saved)}
        if place + 1 < len(self.orders):
            lines[0] = lines[0].replace("the gradients;", "(gradients, pullback);")
            lines += self._order(place + 1, saved, tangents)
        else:
            lines += self._last(order, saved, tangents, whole, number)
        return [f"def pullback_{number}({head}):", *[f"    {line}" for line in lines]]

    def _last(
        self,
        order: GradientOrder,
        saved: Mapping[int, str],
        tangents: Mapping[Any, str],
        whole: dict[str, str],
        number: int,
    ) -> list[str]:
        """The lines that compute the gradients of the last order. `whole` are the variables of
        gradients by those that cotangents were added to."""
        if order.backward is None:
            return [f"return {self._by_name([], self._of_cotangents(whole))}"]
        given = []
        for node in order.backward.placeholders:
            role: Any = node.role
            given.append(saved[role.index] if isinstance(role, Saved) else tangents[role.of])
        made = self._function(order.backward, f"backward_{number}", (Gradient,))
        pairs = order.backward.outputs_with(Gradient)
        variables = [f"grad_{number}_{k}" for k in range(len(pairs))]
        found = []
        for variable, (role, value) in zip(variables, pairs, strict=True):
            if value is None:
                continue
            of: Any = role.of
            if isinstance(of, Incoming) and not isinstance(of.of, Incoming):
                whole[str(Tangent(of.of))] = variable
                if of.of not in self.names[0]:
                    continue
            found.append((of, variable))
        call = f"{_tuple(variables)} = {made}({', '.join(given)})"
        return [call, f"return {self._by_name(found, self._of_cotangents(whole))}"]

    def _by_name(
        self, gradients: Sequence[tuple[Any, str]], cotangents: Iterable[tuple[str, str]] = ()
    ) -> str:
        """The dict of gradients by the names of inputs, and of cotangents; those of `cotangents`
        are named."""
        of_inputs = [pair for pair in gradients if not isinstance(pair[0], Incoming)]
        named = list(self.first.families.by_key(of_inputs, self.parts).items())
        named += [(self._key(role), text) for role, text in gradients if isinstance(role, Incoming)]
        named += cotangents
        keys = [key for key, _ in named]
        twice = {key for key in keys if keys.count(key) > 1}
        if twice:
            raise noted(
                UnsupportedError(
                    f"to_python: an argument and a cotangent are both named {min(twice)!r}, "
                    "expected names of their own where gradients are differentiated"
                ),
                "Give the argument another name. (PYX-15)",
            )
        return f"{{{', '.join([f'{literal(key)}: {text}' for key, text in named])}}}"

    def _function(self, graph: Graph, name: str, own: tuple[type, ...]) -> str:
        """The name of the function of a graph, which is written."""
        text = FunctionText(graph, name, self.parts, laid_out=False)
        text.body()
        leaving = Leaving(text, ())
        values: Sequence[tuple[Any, Any]] = list(
            zip(graph.output_roles, graph.outputs, strict=True)
        )
        returned = [
            leaving.own(value)
            if isinstance(role, own) and isinstance(value, Node)
            else leaving.kept(value)
            for role, value in values
        ]
        about = (
            "Gradients, and values for theirs." if own == (Output,) else "Gradients of gradients."
        )
        self.functions.append(text.text(returned, about))
        return name


def _tuple(names: Sequence[str]) -> str:
    return f"({names[0]},)" if len(names) == 1 else f"({', '.join(names)})"
