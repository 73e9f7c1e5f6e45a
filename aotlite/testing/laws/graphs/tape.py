"""`check_tape`: the law that a captured graph shows all gradients of its function.

T1  the gradients of a captured graph, interpreted under the tape, are those of the joint graph,
    which stage 4 made from the tape of the capture

Python on the tape breaks it: a custom function or a hook, whose gradient no forward graph shows. A
pass or an interpreter that differentiates the graph of such a function loses that gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import optree

import aotlite as al
from aotlite.eager.base.tensor import Tensor
from aotlite.eager.dispatch import dispatch
from aotlite.eager.rng.generator import get_rng_state, set_rng_state
from aotlite.inspect import stages_of
from aotlite.ir.errors import ArgumentError
from aotlite.ir.graph import Graph
from aotlite.ir.graph.role import Gradient, IntermediateBase, MutatedInput, Primal, Role, Tangent
from aotlite.ir.op import GeometryOp, Op
from aotlite.ir.run.interpreter import ArrayValue, Interpreter
from aotlite.pipeline.checks.verification import DRAWS, OFFSET, SEED
from aotlite.testing.laws.errors import Checked, broken, running
from aotlite.testing.laws.graphs import runs
from aotlite.testing.laws.graphs.corpus import FUNCTIONS, GraphCase
from aotlite.testing.laws.graphs.runs import Given, drawn, given, same_results

__all__ = ["TAPE_LAW", "check_tape", "gradients_of_graph"]

TAPE_LAW = ("T1", "interpreted under the tape = its own tape")
"""The name and the claim of the law."""


def check_tape(function: Callable[..., object] | None = None, *args: object) -> Checked:
    """Checks the tape of a function, and returns its laws; by default, of each in the corpus.

    Raises LawError where differentiating the captured graph gives other gradients than the function
    has at these arguments: it holds Python that only its tape knows. Raises ArgumentError where
    nothing of it requires grad, where arguments overlap, and where a geometry is changed in place.

    >>> import aotlite as al
    >>> from aotlite.testing import laws
    >>> x = al.tensor([0.5, -1.0], requires_grad=True)
    >>> print(laws.check_tape(lambda x: (x * x).sum(), x))
    <lambda> obeys T1 on 1 cases
    >>> class Clipped(al.autograd.Function):
    ...     @staticmethod
    ...     def forward(ctx, x):
    ...         return x * 2.0
    ...     @staticmethod
    ...     def backward(ctx, grad):
    ...         return grad.clamp(-1.0, 1.0)
    >>> try:
    ...     laws.check_tape(Clipped.apply, x)
    ... except laws.LawError as error:
    ...     print(error.law)
    T1
    """
    if function is not None:
        name = getattr(function, "__name__", "function")
        stages = stages_of(function, *args)
        _check(name, stages, [_with_values(stages["joint"], args)])
        return Checked(name, TAPE_LAW[:1], 1)
    subjects = [subject for subject in FUNCTIONS if not subject.overlap]
    for subject in subjects:
        stages = stages_of(subject.function, *subject.args())
        _check(subject.name, stages, given(GraphCase(subject.name, stages["joint"])))
    return Checked("the corpus", TAPE_LAW[:1], len(subjects))


def _with_values(joint: Graph, args: Sequence[object]) -> Given:
    """Inputs of the joint graph: the arguments, and drawn tangents."""
    inputs = drawn(joint, DRAWS[0], (0, 1))
    leaves: list[Any] = optree.tree_leaves(args)  # type: ignore[arg-type]
    roles = [node.role for node in joint.placeholders]
    arrays = [
        np.array(leaves[role.index].detach().array) if isinstance(role, Primal) else array
        for role, array in zip(roles, inputs.arrays, strict=True)
    ]
    return Given(inputs.metas, tuple(arrays))


def _check(name: str, stages: Any, every: Sequence[Given]) -> None:
    captured, joint = stages["capture"], stages["joint"]
    _check_takes(name, captured, joint)
    case = GraphCase(name, joint)
    with running(*TAPE_LAW, name, case):
        for inputs in every:
            _compare(captured, case, inputs)


def _check_takes(name: str, captured: Graph, joint: Graph) -> None:
    """Raises ArgumentError if the two graphs cannot be compared."""
    if not joint.outputs_with(Gradient):
        raise ArgumentError(f"laws: {name} has no gradient, expected arguments that require grad")
    roles: list[object] = [node.role for node in joint.placeholders]
    if not set(roles).issuperset(node.role for node in captured.placeholders):
        raise ArgumentError(f"laws: arguments of {name} overlap, expected memory of their own")
    # A tangent has the geometry that its result had before the change.
    if any(isinstance(node.target, GeometryOp) for node in captured.calls):
        raise ArgumentError(f"laws: {name} changes a geometry in place, expected views instead")


def _compare(captured: Graph, case: GraphCase, inputs: Given) -> None:
    joint = case.graph
    ran = runs.run(joint, inputs.fresh())
    expected = dict(zip(joint.output_roles, ran.results, strict=True))
    values = {n.role: a for n, a in zip(joint.placeholders, inputs.arrays, strict=True)}
    found = gradients_of_graph(captured, values)
    roles = [role for role, _ in joint.outputs_with(Gradient)]
    wrong = same_results(
        roles, [_plain(expected[role]) for role in roles], [found.get(role) for role in roles]
    )
    if wrong is not None:
        raise broken(
            str(wrong), f"the captured graph:\n{captured.code}", f"the joint graph:\n{joint.code}"
        )


def _plain(value: object) -> object:
    return np.array(value.array) if isinstance(value, ArrayValue) else value


# ------------------------------------------------------------------------------- under the tape
class _UnderTape(Interpreter):
    """Runs a graph by the eager engine, each node in the grad mode of its capture."""

    def __init__(self, graph: Graph) -> None:
        super().__init__(graph, dispatch, constant=lambda value, meta: _tensor(value))

    def call(self, target: Op, args: tuple[Any, ...]) -> Any:
        """Returns the result of an op, with a history if grad mode was on in the capture."""
        with al.set_grad_enabled(self.node.grad_mode):
            return super().call(target, args)


def gradients_of_graph(graph: Graph, values: dict[Any, Any]) -> dict[Role, object]:
    """Returns the gradients of a captured graph by role, for inputs and tangents by role.

    A gradient is None if nothing flows. All inputs of float dtypes require grad.
    """
    leaves: dict[Any, Tensor] = {}
    inputs = []
    for node in graph.placeholders:
        leaf = leaves[node.role] = _laid_out(values[node.role], node.meta)
        floats = leaf.dtype.is_differentiable
        inputs.append(leaf.requires_grad_().clone() if floats else leaf)
    state = get_rng_state()
    try:
        set_rng_state((SEED, OFFSET))
        results = _UnderTape(graph).run(*inputs)
    finally:
        set_rng_state(state)
    written: list[Role] = [MutatedInput(node.role) for node in graph.placeholders]
    found = dict(zip([*graph.output_roles, *written], [*results, *inputs], strict=True))
    found |= _bases([t for r, t in found.items() if Tangent(r) not in values], inputs)  # type: ignore[arg-type]
    return _gradients(found, leaves, values)


def _bases(results: Sequence[Any], inputs: Sequence[Tensor]) -> dict[Role, Tensor]:
    """The bases of results that are no inputs; views get their gradients through them (META-9).

    `results` are those without a tangent of their own in the joint graph.
    """
    found: list[Tensor] = []
    for tensor in results:
        base = tensor if tensor._base is None else tensor._base
        if not any(base is each for each in (*inputs, *found)):
            found.append(base)
    return {IntermediateBase(k): base for k, base in enumerate(found)}


def _gradients(
    found: dict[Role, Any], leaves: dict[Any, Tensor], values: dict[Any, Any]
) -> dict[Role, object]:
    pairs = [
        (tensor, _tensor(values[Tangent(role)]))  # type: ignore[arg-type]
        for role, tensor in found.items()
        if Tangent(role) in values and tensor.requires_grad  # type: ignore[arg-type]
    ]
    wanted = {role: leaf for role, leaf in leaves.items() if leaf.requires_grad}
    if not pairs:
        return dict.fromkeys(map(Gradient, wanted))
    outs, tangents = zip(*pairs, strict=True)
    grads = al.autograd.grad(outs, list(wanted.values()), tangents, allow_unused=True)
    return {
        Gradient(role): None if grad is None else np.array(grad.array)
        for role, grad in zip(wanted, grads, strict=True)
    }


def _tensor(value: object) -> Tensor:
    return al.from_numpy(np.array(value))


def _laid_out(array: object, meta: Any) -> Tensor:
    """A tensor of these values with the strides of the meta."""
    tensor = al.empty_strided(meta.shape, meta.stride, dtype=meta.dtype)
    return tensor.copy_(_tensor(array))
