"""`aot_export_module`: the graph of a Module, functional and without its state (EXP-1 to EXP-13).

The stages are those of `compile`: stages 1 to 8 run on the lifted function, and what stage 8 has
cut is the exported graph, since a step that computes its gradients itself has no backward.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs
import numpy as np
import optree

from aotlite.descriptors.argument_words import ArgumentWords
from aotlite.descriptors.place_words import parameter_names
from aotlite.eager.base.modes import is_grad_enabled, set_grad_enabled
from aotlite.eager.base.tensor import Tensor
from aotlite.eager.subclass.protocol import is_wrapper
from aotlite.export.capture_cut import CapturedCut, apart, cut_of, is_size, listed
from aotlite.export.effect_check import check_effects
from aotlite.export.lifted_function import LiftedFunction, LiftedState, leaves_of
from aotlite.export.pre_dispatch import PRE_DISPATCH_STAGES
from aotlite.export.signature import BackwardSignature, GraphSignature
from aotlite.ir.errors import ArgumentError, ExportError, GuardError, noted
from aotlite.ir.graph import Graph, Node, name_from
from aotlite.ir.graph.graph import output_node
from aotlite.ir.graph.role import (
    RNG_INPUTS,
    RNG_OUTPUTS,
    Gradient,
    Hidden,
    MutatedInput,
    Output,
    Primal,
    Token,
)
from aotlite.ir.graph.verify import verify
from aotlite.nn.module import Module
from aotlite.pipeline.arguments import call_of
from aotlite.pipeline.options import make_options
from aotlite.stages.s7_simplify.common_subexpressions import eliminate_dead_code


def aot_export_module(
    mod: Module,
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None = None,
    *,
    trace_joint: bool = False,
    output_loss_index: int | None = None,
    pre_dispatch: bool = False,
    decompositions: Mapping[Any, Callable[..., Any]] | None = None,
    dynamic_shapes: Any = None,
) -> tuple[Graph, GraphSignature]:
    """The functional graph of `mod(*args, **kwargs)` and its signature.

    Inputs are the parameters, the buffers, and the user's tensors; outputs are the new values of
    written or assigned inputs, the results, and with `trace_joint` the gradients of the loss,
    result number `output_loss_index`. Nothing is written: the caller puts new values where the
    signature says. Without `trace_joint` the export runs under `no_grad`.
    With `pre_dispatch` the graph has the ops as they were called, each with its grad mode, and
    `with_gradients` differentiates it afterwards; the export runs in the present grad mode.
    `dynamic_shapes` has, by position or by the names of `forward`, a `Dim` by dimension, as that of
    `compile`: these sizes are symbols of the graph.
    Raises ExportError for what no such graph can say (EXP-4, EXP-5).

    >>> import aotlite as al
    >>> class Counting(al.nn.Module):
    ...     def __init__(self):
    ...         self.layer, self.calls = al.nn.Linear(2, 1), al.nn.Buffer(al.zeros(()))
    ...     def forward(self, x):
    ...         self.calls.add_(1)
    ...         return (self.layer(x).sum(),)
    >>> graph, signature = aot_export_module(
    ...     Counting(), (al.ones(3, 2),), trace_joint=True, output_loss_index=0
    ... )
    >>> signature.buffers_to_mutate
    {'updated_primals_2': 'calls'}
    >>> signature.backward_signature.gradients_to_parameters
    {'grad_primals_0': 'layer.weight', 'grad_primals_1': 'layer.bias'}
    """
    loss = _loss_index(trace_joint, output_loss_index, pre_dispatch)
    arguments = listed(args), dict(kwargs or {})
    lifted, words = _lifted(mod, arguments, loss)
    options = make_options(
        backend="reference",
        keep_inference_input_mutations=False,
        decompositions=decompositions,
        dynamic_shapes=_shapes(mod, arguments, dynamic_shapes),
        dynamic=None if dynamic_shapes is not None else False,
        stages=PRE_DISPATCH_STAGES if pre_dispatch else {},
    )
    with set_grad_enabled(trace_joint or (pre_dispatch and is_grad_enabled())):
        with words.naming():
            call = apart(call_of((list(lifted.state.tensors), *arguments), {}))
        words.check(call.leaves)
        try:
            with words.naming():
                cut = cut_of(lifted, call, options)
        except GuardError as error:
            raise _fixed_size(error, words) from error
    convention = _Convention(lifted, arguments, words, cut)
    convention.check()
    graph = convention.graph()
    verify(graph, functional=True, stage="export")
    return graph, convention.signature()


def _lifted(module: Any, arguments: Any, loss: int | None) -> tuple[LiftedFunction, ArgumentWords]:
    """The function that is captured, and words for what it is called with. Raises ExportError for
    a Module or arguments with wrappers, and for an argument that is a tensor of the Module."""
    if not isinstance(module, Module):
        raise ArgumentError(f"export: the module is {module!r}, expected a Module")
    _check_no_wrappers(leaves_of(arguments))
    state = LiftedState.of(module)
    _check_no_wrappers(list(state.tensors))
    args, kwargs = arguments
    words = ArgumentWords.of(module, args, kwargs, state.names, nested=True)
    state.check_apart(leaves_of(arguments), words)
    return LiftedFunction(module, state, loss), words


def _loss_index(trace_joint: bool, index: Any, pre_dispatch: bool) -> int | None:
    """The index of the loss, an int; None for an export without gradients."""
    if pre_dispatch and trace_joint:
        raise noted(
            ExportError("export: pre_dispatch and trace_joint are True, expected one of them"),
            "A pre-dispatch graph is differentiated after the export. (EXP-4)",
        )
    if isinstance(index, bool) or not (index is None or hasattr(index, "__index__")):
        raise ArgumentError(
            f"export: output_loss_index is {index!r}, expected the index of the loss among the "
            "results, an int"
        )
    if trace_joint and index is None:
        raise noted(
            ExportError(
                "export: trace_joint is True and output_loss_index is None, expected the "
                "index of the loss among the results"
            ),
            "Return the loss as one of the results, the others detached. (EXP-4)",
        )
    if not trace_joint and index is not None:
        raise ExportError(
            f"export: output_loss_index is {index} and trace_joint is False, expected None, or "
            "trace_joint=True"
        )
    return None if index is None else operator.index(index)


def _shapes(module: Module, arguments: Any, given: Any) -> Any:
    """`dynamic_shapes` of the lifted function: by position, or by the names of `forward`."""
    if not isinstance(given, Mapping):
        return None if given is None else {"args": tuple(given)}
    args, kwargs = arguments
    names = parameter_names(module)[: len(args)]
    unknown = [name for name in given if name not in names and name not in kwargs]
    if unknown:
        raise ArgumentError(
            f"export: dynamic_shapes names {unknown[0]!r}, expected one of "
            f"{', '.join([*names, *kwargs])}"
        )
    of_args = tuple([given.get(name) for name in names])
    return {"args": of_args, "kwargs": {name: given.get(name) for name in kwargs}}


def _fixed_size(error: GuardError, words: ArgumentWords) -> ExportError:
    """The error of a size that the Module fixes, which may be one of a parameter's."""
    made = ExportError(f"{error}".partition("\n")[0])
    for note in getattr(error, "__notes__", ()):
        name = next((each for each in words.state if f"of {each} " in note), None)
        advice = f"{name} of the Module has this size, too: leave it out of dynamic_shapes."
        noted(made, note if name is None else advice)
    return made


def _check_no_wrappers(tensors: list[Any]) -> None:
    for each in tensors:
        if isinstance(each, Tensor) and is_wrapper(each):
            raise noted(
                ExportError(f"export: an input is a {type(each).__name__}, expected plain tensors"),
                "unwrap_subclass_parameters(module) makes parameters of the parts. (EXP-5)",
            )


@attrs.frozen(eq=False)
class _Convention:
    """The convention of one export: which value of the captured graph is what."""

    lifted: LiftedFunction
    arguments: tuple[tuple[Any, ...], dict[str, Any]]
    words: ArgumentWords
    cut: CapturedCut

    @property
    def _count(self) -> int:
        return len(self.lifted.state.tensors)

    def check(self) -> None:
        """Refuses what the convention cannot say (EXP-5, EXP-6)."""
        meta = self.cut.meta
        self.cut.check_arguments(self.words)
        joint = self.lifted.loss is not None
        check_effects(meta, "forward", self._name, "EXP-5", hooks=joint)
        for each in meta.inputs:
            what = self._name(each.role)
            if isinstance(each.role, Hidden):
                raise noted(
                    ExportError(
                        f"export: forward reads {each.place}, a tensor that is no argument "
                        "and no parameter or buffer, expected a Module that holds it"
                    ),
                    "Register it as a buffer, or pass it. (EXP-1)",
                )
            if each.writes_data and each.requires_grad and joint:
                raise ExportError(
                    f"export: forward writes {what}, {each.meta}, which requires grad, expected "
                    "writes of buffers and of inputs without gradients (EXP-5, EXP-6)"
                )
        for base in self.cut.convention.bases:
            names = " and ".join([self._name(each.role) for each in base.members])
            raise noted(
                ExportError(
                    f"export: {names} share the memory {base.meta}, and one of them is written, "
                    "expected inputs apart (EXP-5)"
                ),
                "Pass a clone() of one of them.",
            )

    def _name(self, role: Any) -> str:
        if not isinstance(role, Primal):
            return str(role)
        if role.index < self._count:
            kind = "parameter" if role.index < self.lifted.state.parameters else "buffer"
            return f"{kind} {self.lifted.state.names[role.index]!r}"
        return f"argument {self.words.leaves[role.index]}"

    # --- the graph
    def graph(self) -> Graph:
        """The exported graph: that of the capture, with roles for what its results are."""
        forward = self.cut.partition.forward
        roles = self._roles()
        pairs = zip(forward.output_roles, forward.outputs, strict=True)
        outputs = {roles.get(role, role): _without_copy(value) for role, value in pairs}
        first, of = len(self.lifted.assigned), self.cut.meta.outputs
        constants = {
            Output(k): of[first + k].value  # type: ignore[union-attr]
            for k, is_tensor in enumerate(self.lifted.are_tensors)
            if not is_tensor
        }
        ordered = sorted({**outputs, **constants}.items(), key=_order)
        made = output_node([value for _, value in ordered], [role for role, _ in ordered])
        name = name_from(type(self.lifted.module).__name__)
        nodes = (*forward.nodes[:-1], made)
        return eliminate_dead_code(attrs.evolve(forward, name=name, nodes=nodes))

    def _roles(self) -> dict[Any, Any]:
        """The role of each result of the lifted function, which returns three kinds of them."""
        meant: list[Any] = [MutatedInput(Primal(number)) for number in self.lifted.assigned]
        meant += [Output(k) for k in range(len(self.lifted.are_tensors))]
        meant += [Gradient(Primal(index)) for index in self._differentiable()]
        return {Output(k): role for k, role in enumerate(meant)}

    def _differentiable(self) -> list[int]:
        """The flat inputs of which the graph has gradients."""
        inputs = [*self.lifted.state.tensors, *self._user_leaves()]
        wanted = [k for k, x in enumerate(inputs) if isinstance(x, Tensor) and x.requires_grad]
        reached = self.lifted.reached
        return [k for k, yes in zip(wanted, reached, strict=True) if yes] if reached else []

    def _user_leaves(self) -> list[Any]:
        return leaves_of(self.arguments)

    # --- the signature
    def signature(self) -> GraphSignature:
        """The names of the graph's inputs and outputs, and what they are (EXP-8)."""
        graph, state, count = self.graph(), self.lifted.state, self._count
        leaves = enumerate(self._user_leaves(), count)
        inputs = [node.role for node in graph.placeholders]
        given = {role: name for role in inputs if (name := self._lifted_name(role)) is not None}
        users = [role for role in inputs if isinstance(role, Primal) and role.index >= count]
        tensors = [Primal(k) for k, x in leaves if isinstance(x, (Tensor, np.ndarray))]
        assert users == tensors, "an argument without an input (EXP-10)"
        new = [role for role in graph.output_roles if isinstance(role, MutatedInput)]
        targets = {str(role): self._target(role.of) for role in new}
        parameters = set(state.names[: state.parameters])
        buffers = set(state.names[state.parameters :])
        return GraphSignature(
            parameters=_with_tied(state.names[: state.parameters], state.tied),
            buffers=_with_tied(state.names[state.parameters :], state.tied),
            user_inputs=tuple(map(str, users)),
            user_outputs=tuple(
                [
                    str(Output(k)) if is_tensor else None
                    for k, is_tensor in enumerate(self.lifted.are_tensors)
                ]
            ),
            inputs_to_parameters={str(r): n for r, n in given.items() if n in parameters},
            inputs_to_buffers={str(r): n for r, n in given.items() if n in buffers},
            buffers_to_mutate={k: n for k, n in targets.items() if n in buffers},
            parameters_to_mutate={k: n for k, n in targets.items() if n in parameters},
            user_inputs_to_mutate={str(r): str(r.of) for r in new if r.of.index >= count},  # type: ignore[union-attr]
            in_spec=optree.tree_structure(self.arguments, none_is_leaf=True),  # type: ignore[arg-type]
            out_spec=self.lifted.out_spec,
            backward_signature=self._backward(graph),
            input_tokens=tuple([str(role) for role in inputs if isinstance(role, Token)]),
            output_tokens=tuple([str(r) for r in graph.output_roles if isinstance(r, Token)]),
            random_inputs=tuple([str(role) for role in inputs if isinstance(role, RNG_INPUTS)]),
            random_outputs=tuple(
                [str(r) for r in graph.output_roles if isinstance(r, RNG_OUTPUTS)]
            ),
            size_outputs=tuple([str(role) for role in graph.output_roles if is_size(role)]),
            tied=dict(state.tied),
        )

    def _lifted_name(self, role: Any) -> str | None:
        """The qualified name of a parameter or buffer."""
        is_state = isinstance(role, Primal) and role.index < self._count
        return self.lifted.state.names[role.index] if is_state else None

    def _target(self, role: Any) -> str:
        return self._lifted_name(role) or str(role)

    def _backward(self, graph: Graph) -> BackwardSignature | None:
        if self.lifted.loss is None:
            return None
        made = [role for role in graph.output_roles if isinstance(role, Gradient)]
        loss = self.lifted.loss % len(self.lifted.are_tensors)
        return BackwardSignature(
            {str(r): n for r in made if (n := self._lifted_name(r.of)) is not None},
            {str(r): str(r.of) for r in made if self._lifted_name(r.of) is None},
            str(Output(loss)),
        )


def _with_tied(names: Sequence[str], tied: Mapping[str, str]) -> tuple[str, ...]:
    return (*names, *[more for more, name in tied.items() if name in names])


def _without_copy(value: Any) -> Any:
    """The value that a result is a copy of: in a pure graph it may be an output itself."""
    is_copy = isinstance(value, Node) and value.op == "call" and value.target.name == "clone"
    return value.args[0] if is_copy else value


_KINDS = (Token, MutatedInput, Output, Gradient, *RNG_OUTPUTS)


def _order(output: tuple[Any, Any]) -> tuple[int, int]:
    """Tokens, updated inputs, results, gradients, and the generator's state (EXP-2)."""
    role = output[0]
    kind = next(k for k, each in enumerate(_KINDS) if isinstance(role, each))
    place = role.of if isinstance(role, (MutatedInput, Gradient)) else role
    return kind, getattr(place, "index", 0)
