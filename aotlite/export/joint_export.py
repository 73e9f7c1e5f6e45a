"""Joint graphs of functions and Modules: without a loss inside, with tangents as inputs.

`aot_export_joint_simple` is for bodies of larger programs: it keeps the function's own signature.
`aot_export_joint_with_descriptors` gives the joint graph of a Module with what each value is, for
tools that rewrite it; `aot_compile_joint_with_descriptors` compiles what they made of it.
Rules: EXP-14, EXP-15. Spec: `specs/export.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import attrs

from aotlite.api import CompiledFunction
from aotlite.descriptors import BufferInput, GraphDescriptors, Names, ParamInput
from aotlite.descriptors.argument_words import ArgumentWords
from aotlite.descriptors.kinds import AnyDescriptor
from aotlite.descriptors.place_words import parameter_names
from aotlite.eager.base.modes import enable_grad, no_grad
from aotlite.eager.base.tensor import Tensor
from aotlite.eager.subclass.protocol import is_wrapper
from aotlite.export.argument_inputs import check_unwritten, joined, repeats
from aotlite.export.capture_cut import CapturedCut, apart, cut_of, is_size, listed
from aotlite.export.effect_check import check_effects
from aotlite.export.lifted_function import LiftedState, leaves_of
from aotlite.ir.errors import ArgumentError, ExportError, noted
from aotlite.ir.graph import Graph
from aotlite.ir.graph.graph import output_node
from aotlite.ir.graph.role import (
    RNG_INPUTS,
    BackwardToken,
    Gradient,
    Hidden,
    Output,
    Primal,
    Token,
)
from aotlite.nn.module import Module
from aotlite.nn.swap import functional_call
from aotlite.pipeline.arguments import FlatArguments, call_of
from aotlite.pipeline.options import make_options
from aotlite.stages.records.metadata.function_facts import Plain


def aot_export_joint_simple(
    func: Callable[..., Any],
    args: Sequence[Any],
    *,
    trace_joint: bool,
    decompositions: Mapping[Any, Callable[..., Any]] | None = None,
) -> Graph:
    """The graph of `func(*args)` with the function's own inputs and outputs.

    With `trace_joint` and an argument that requires grad it is the joint graph: its inputs are the
    arguments and a tangent for each result that is differentiable, its outputs the results and a
    slot for each tensor argument: its gradient, or None.
    Raises ExportError where the function's signature does not say all of it (EXP-15).

    >>> import aotlite as al
    >>> x, y = al.ones(2, requires_grad=True), al.ones(2)
    >>> print(aot_export_joint_simple(lambda x, y: (x * y,), (x, y), trace_joint=True).code)
    def _lambda_(
        primals_0: "f32[2]",
        primals_1: "f32[2]",
        tangents_output_0: "f32[2]",
    ) -> ("output_0", "grad_primals_0", "grad_primals_1"):
        mul = ops.mul(primals_0, primals_1)
        ops.phase("backward")
        mul_1 = ops.mul(tangents_output_0, primals_1)
        return (mul, mul_1, None)
    """
    args = listed(args)
    if any(isinstance(each, (list, tuple, dict)) for each in args):
        raise ExportError(
            "export: an argument is a container, expected a flat list of tensors and numbers. "
            "(EXP-15)"
        )
    if wrappers := [x for x in args if isinstance(x, Tensor) and is_wrapper(x)]:
        raise _wrapper_refused(f"an argument is a {type(wrappers[0]).__name__}")
    how = make_options(
        backend="reference",
        dynamic=False,
        keep_inference_input_mutations=False,
        decompositions=decompositions,
    )
    words = ArgumentWords.of(func, args, {})
    with words.naming():
        call = apart(call_of(args, {}))
    words.check(call.leaves)
    with enable_grad() if trace_joint else no_grad(), words.naming():
        cut = cut_of(func, call, how)
    _check_simple(cut, words)
    if not cut.meta.training:
        return _with_every_slot(cut.partition.forward, ())
    return _with_every_slot(cut.joint, [k for k, x in enumerate(args) if isinstance(x, Tensor)])


def _check_simple(cut: CapturedCut, words: ArgumentWords) -> None:
    """Refuses what needs a calling convention of its own (EXP-15)."""
    cut.check_arguments(words)
    spec = cut.containers.spec
    if (
        spec is None
        or spec.type not in (tuple, list)
        or not all(c.is_leaf() for c in spec.children())
    ):
        raise ExportError("export: the results are no flat tuple or list, expected one (EXP-15)")
    if cut.meta.training and any(isinstance(n.role, _TOKENS) for n in cut.joint.placeholders):
        raise noted(
            ExportError(
                "export: the function has effects, expected none in a joint graph, which has "
                "their tokens as further inputs"
            ),
            "Export it with trace_joint=False, or by aot_export_module. (EXP-15)",
        )
    if any(isinstance(n.role, RNG_INPUTS) for n in cut.partition.forward.placeholders):
        raise noted(
            ExportError("export: the function draws random numbers, expected one that does not"),
            "aot_export_module has the generator's state in its signature. (RNG-7, EXP-15)",
        )
    check_effects(cut.meta, "the function", partial(_words, words), "EXP-15")
    for each in cut.meta.inputs:
        if isinstance(each.role, Hidden):
            raise noted(
                ExportError(
                    f"export: the function reads {each.place}, a tensor that is no argument, "
                    "expected arguments alone"
                ),
                "Make it an argument of the function, and pass it. (EXP-15)",
            )
        if each.writes:
            raise noted(
                ExportError(
                    f"export: the function writes {_words(words, each.role)}, expected one that "
                    "does not"
                ),
                "aot_export_module exports what is written. (EXP-15)",
            )
    for number, output in enumerate(cut.meta.outputs):
        if is_size(cut.meta.role_of(number)):
            raise noted(
                ExportError("export: sizes depend on values, expected sizes of the arguments"),
                "aot_export_module has such sizes in its signature. (EXP-15)",
            )
        if Output(number) in cut.meta.wrappers:
            raise _wrapper_refused(f"result {number} is a wrapper")
        if not isinstance(output, Plain):
            kind = type(output).__name__
            raise noted(
                ExportError(
                    f"export: result {number} is {_KINDS.get(kind, kind)}, expected a tensor of "
                    "its own"
                ),
                "Return result.clone(). (EXP-15)",
            )


def _words(words: ArgumentWords, role: Any) -> str:
    if isinstance(role, Primal):
        return f"argument {words.leaves[role.index]}"
    return str(role).replace("_", " ")


def _wrapper_refused(what: str) -> Exception:
    return noted(
        ExportError(f"export: {what}, expected plain tensors"),
        "Pass and return its parts: each input and output of the graph is one tensor. (EXP-15)",
    )


_TOKENS = (Token, BackwardToken)
_KINDS = {
    "IsInput": "an argument itself",
    "AliasOfInput": "a view of an argument",
    "AliasOfBase": "a view of an intermediate value",
    "AliasOfOutput": "a view of another result",
    "Repeated": "another result itself",
    "Fixed": "no tensor",
}


def _with_every_slot(graph: Graph, arguments: Sequence[int]) -> Graph:
    """The graph with an output for each result and the gradient of each of these arguments, which
    may be None."""
    found = dict(zip(graph.output_roles, graph.outputs, strict=True))
    roles: list[Any] = [x for x in found if isinstance(x, Output)]
    roles += [Gradient(Primal(index)) for index in arguments]
    made = output_node([found.get(role) for role in roles], roles)
    return attrs.evolve(graph, nodes=(*graph.nodes[:-1], made))


# -------------------------------------------------------------------------- with descriptors
@attrs.frozen(eq=False)
class StateCall:
    """A Module as a function of its state and its arguments."""

    module: Module
    state: LiftedState

    def __call__(self, state: Sequence[Tensor], *args: Any, **kwargs: Any) -> Any:
        given = dict(zip(self.state.names, state, strict=True))
        return functional_call(self.module, given, args, kwargs)


class StateNames(Names):
    """The descriptors of a `StateCall`: its first arguments are parameters and buffers."""

    def __init__(self, function: StateCall, call: FlatArguments, cut: CapturedCut) -> None:
        super().__init__(function, call, cut)
        self.state = function.state
        self.parameters = ("state", *parameter_names(function.module))

    def of(self, role: Any) -> AnyDescriptor:
        """The descriptor of a role."""
        names, count = self.state.names, self.state.parameters
        if not isinstance(role, Primal) or role.index >= len(names):
            return super().of(role)
        name = names[role.index]
        also = tuple([more for more, one in self.state.tied.items() if one == name])
        kind = ParamInput if role.index < count else BufferInput
        return kind(name, name, also, role=role)


@attrs.frozen(eq=False)
class JointWithDescriptors:
    """The joint graph of a Module, and what each of its inputs and outputs is."""

    graph: Graph
    """Its inputs are the parameters, the buffers, the user's tensors and the tangents. A tool may
    rewrite it with `graph.edit()`; inputs and outputs stay."""
    names: Names = attrs.field(repr=False)
    function: StateCall = attrs.field(repr=False)
    decompositions: Mapping[Any, Callable[..., Any]] | None = attrs.field(repr=False)

    @property
    def described(self) -> GraphDescriptors:
        """The descriptors of the graph's inputs and outputs, in order."""
        return self.names.of_graph(self.graph)


def aot_export_joint_with_descriptors(
    mod: Module,
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None = None,
    *,
    decompositions: Mapping[Any, Callable[..., Any]] | None = None,
) -> JointWithDescriptors:
    """The joint graph of `mod(*args, **kwargs)`, as stage 7 leaves it, with descriptors.

    `aotlite.descriptors.parameters_with_gradients(joint.names, joint.graph)` and its siblings find
    what belongs together. A tensor that is passed twice is an input each time, with a gradient for
    each. Raises ExportError if nothing in it is differentiable.

    >>> import aotlite as al
    >>> joint = aot_export_joint_with_descriptors(al.nn.Linear(2, 1), (al.ones(3, 2),))
    >>> print(joint.described)
    input 0: parameter weight
    input 1: parameter bias
    input 2: argument input
    input 3: tangent of result
    output 0: result
    output 1: gradient of parameter weight
    output 2: gradient of parameter bias
    """
    if not isinstance(mod, Module):
        raise ArgumentError(f"export: the module is {mod!r}, expected a Module")
    function = StateCall(mod, LiftedState.of(mod))
    positional, by_name = listed(args), dict(kwargs or {})
    words = ArgumentWords.of(mod, positional, by_name, function.state.names)
    function.state.check_apart(leaves_of((positional, by_name)), words)
    how = make_options(backend="reference", dynamic=False, decompositions=decompositions)
    with words.naming():
        passed = call_of((list(function.state.tensors), *positional), by_name)
    call = apart(passed)
    words.check(call.leaves)
    with enable_grad(), words.naming():
        cut = cut_of(function, call, how)
    cut.check_arguments(words)
    check_unwritten(cut.meta, repeats(passed.leaves, words.count), words)
    if not cut.meta.training:
        raise ExportError(
            "export: no result is differentiable, expected a Module with a parameter or argument "
            "that requires grad"
        )
    return JointWithDescriptors(
        cut.joint, StateNames(function, call, cut), function, decompositions
    )


def aot_compile_joint_with_descriptors(
    joint: JointWithDescriptors, graph: Graph | None = None, **options: Any
) -> Callable[..., Any]:
    """A function of (*parameters, *buffers, *arguments) that runs a joint graph.

    `graph` is what a tool has made of `joint.graph`, with the same inputs and outputs; stages 8 to
    10 partition, lower and call it. Options are those of `compile`. The function is for arguments
    like those of the export: others raise ExportError.
    """
    chosen = joint.graph if graph is None else graph
    count = len(joint.function.state.names)
    passes = options.pop("passes", ())

    def function_for(again: Mapping[int, int]) -> Callable[..., Any]:
        """The function for calls in which these places hold the tensors of earlier ones."""

        def rewritten(captured: Graph) -> Graph:
            made = joined(chosen, again, joint.names.entry.meta) if again else chosen
            mine = None if made is None else [(n.role, n.meta) for n in made.placeholders]
            if made is None or mine != [(n.role, n.meta) for n in captured.placeholders]:
                raise noted(
                    ExportError(
                        "export: the arguments are others than those of the exported joint graph, "
                        "expected tensors of the same shapes, dtypes and strides, and none twice "
                        "that is changed"
                    ),
                    "Export it again for these arguments.",
                )
            return made

        how = make_options(
            dynamic=False,
            decompositions=joint.decompositions,
            passes=[rewritten, *passes],
            **options,
        )
        return CompiledFunction(joint.function, how)

    functions = {(): function_for({})}

    def call(*flat: Any, **kwargs: Any) -> Any:
        if len(flat) < count:
            raise ArgumentError(
                f"export: {len(flat)} arguments are given, expected the {count} parameters and "
                "buffers first"
            )
        given = (list(flat[:count]), *flat[count:])
        again = repeats(call_of(given, kwargs).leaves, count)
        key: Any = tuple(again.items())
        if key not in functions:
            functions[key] = function_for(again)
        return functions[key](*given, **kwargs)

    return call
