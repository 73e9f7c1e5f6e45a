"""SAV-1, GEN-5: a second backward works where eager's does; what is said of backwards is so."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import aotlite as al


class Attribute(al.autograd.Function):
    """Keeps what its backward reads beside what eager lets go."""

    @staticmethod
    def forward(ctx: Any, a: Any) -> Any:
        ctx.kept = a.detach().cos()
        return a.sin()

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return grad * ctx.kept


class Saving(Attribute):
    @staticmethod
    def forward(ctx: Any, a: Any) -> Any:
        ctx.save_for_backward(a.detach().cos())
        return a.sin()

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return grad * ctx.saved_tensors[0]


OPS: dict[str, Any] = {
    "shifted": lambda a, b: a + 1.5,
    "negated": lambda a, b: -a,
    "summed": lambda a, b: a + b,
    "spread": lambda a, b: a.sum().expand(3),
    "turned": lambda a, b: a.view(3, 1).expand(3, 3).sum(1),
    "detached": lambda a, b: a.detach() + b,
    "scaled": lambda a, b: a * 2.0,
    "multiplied": lambda a, b: a * b,
    "exp": lambda a, b: a.exp(),
    "sin": lambda a, b: a.sin(),
    "added in place": lambda a, b: (a + 0.0).add_(b),
    "written through a view": lambda a, b: _written(a, b),
    "with an attribute": lambda a, b: Attribute.apply(a),
    "saving": lambda a, b: Saving.apply(a),
}


def _written(a: Any, b: Any) -> Any:
    whole = a + 0.0
    whole[1:].copy_(b[1:])
    return whole


NAMES = tuple(OPS)
STEP = st.tuples(st.sampled_from(NAMES), st.integers(0, 5), st.integers(0, 5))
PROGRAM = st.tuples(
    st.lists(STEP, min_size=1, max_size=5),
    st.lists(st.integers(0, 6), min_size=1, max_size=3, unique=True),
)
BACKWARD = st.tuples(st.integers(1, 7), st.sampled_from(("free", "free", "free", "retain")))
SESSION = st.lists(BACKWARD, min_size=2, max_size=4)
WAYS = ("plain", "plain", "hook on a leaf", "hook on a result", "packed")


def made(program: Any) -> Any:
    steps, results = program

    def function(x: Any, w: Any) -> Any:
        values = [x, w]
        for name, first, second in steps:
            values.append(OPS[name](values[first % len(values)], values[second % len(values)]))
        # Inputs come back as new tensors: else eager's own tape stands beside the compiled one's.
        # The first is computed last: a hook on it sees nothing of the others (docs/limits.md).
        chosen = {index % (len(values) - 2) for index in results}
        return [values[index + 2] for index in sorted(chosen, reverse=True)]

    return function


def outcome(function: Any, session: Any, way: str) -> list[Any]:
    """Gradients after each backward, until one raises."""
    x, w = al.tensor([0.5, 1.0, 2.0]).requires_grad_(), al.tensor([1.0, 3.0, 0.25]).requires_grad_()
    seen: list[Any] = []
    if way == "hook on a leaf":
        x.register_hook(lambda grad: seen.append(grad.tolist()))
    given = [x.view(3), w.view(3)]  # with a history that is never spent
    if way == "packed":
        with al.autograd.graph.saved_tensors_hooks(lambda t: t.clone(), lambda t: t):
            results = function(*given)
    else:
        results = function(*given)
    if way == "hook on a result" and results[0].requires_grad:
        results[0].register_hook(lambda grad: seen.append(grad.tolist()))
    for bits, kind in session:
        chosen = [r for k, r in enumerate(results) if bits >> k & 1 and r.requires_grad]
        if not chosen:
            continue
        ones = [al.ones(3) * (k + 1) for k in range(len(chosen))]
        try:
            al.autograd.backward(chosen, ones, retain_graph=kind == "retain")
        except al.AutogradError as error:
            seen.append("freed" if "are freed" in str(error) else str(error))
            return seen
        seen.append([None if t.grad is None else t.grad.tolist() for t in (x, w)])
    return seen


A_THEN_B = [(1, "free"), (2, "free"), (2, "free")]


@pytest.mark.rules("SAV-1", "TEN-12")
@pytest.mark.draws(long=2000)
@given(PROGRAM, SESSION, st.sampled_from(WAYS), st.sampled_from(("reference", "loops")))
@example(([("shifted", 0, 0)], [0]), [(1, "free")] * 3, "plain", "reference")
@example(([("sin", 0, 0), ("exp", 1, 0)], [0, 1]), A_THEN_B, "plain", "reference")
@example(([("sin", 0, 0), ("shifted", 1, 0)], [0, 1]), A_THEN_B, "plain", "reference")
@example(
    ([("sin", 0, 0), ("shifted", 2, 0), ("negated", 2, 0)], [1, 2]), A_THEN_B, "plain", "loops"
)
@example(([("with an attribute", 0, 0)], [0]), [(1, "free")] * 2, "plain", "reference")
@example(([("sin", 0, 0), ("shifted", 1, 0)], [0, 1]), A_THEN_B, "packed", "reference")
def test_backwards_go_through_again_as_eagers_do(
    program: Any, session: Any, way: str, backend: str
) -> None:
    function = made(program)
    expected = outcome(function, session, way)
    ours = outcome(al.compile(function, backend=backend), session, way)
    assert len(expected) == len(ours)
    for mine, theirs in zip(ours, expected, strict=True):
        assert mine == theirs if isinstance(theirs, str) else _close(mine, theirs)


def _close(a: Any, b: Any) -> bool:
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(_close, a, b))
    return a is b is None or a == pytest.approx(b, rel=1e-6)


@pytest.mark.rules("SAV-1")
def test_what_no_later_backward_reads_is_let_go() -> None:
    """Of a loss and a mean the mean can be gone through again, which reads nothing that is kept."""

    def function(x: Any) -> Any:
        y = x.sin().exp()
        return (y * y).sum(), x.mean()

    x = al.ones(64).requires_grad_()
    loss, mean = al.compile(function)(x)
    node = loss.grad_fn
    loss.backward()
    assert node.saved is None
    assert {None} == set(node._left)
    mean.backward()
    mean.backward()
    with pytest.raises(al.AutogradError, match="are freed"):
        loss.backward()


@pytest.mark.rules("DBL-2", "SAV-1")
def test_gradients_of_gradients_go_through_again_as_eagers_do() -> None:
    def function(x: Any) -> Any:
        return x.sin() + 1.0, -x

    def session(wrapped: Any) -> list[Any]:
        x: Any = al.ones(2).requires_grad_()
        a, b = wrapped(x)
        grad: Any = al.autograd.grad(a.sum(), [x], create_graph=True)[0]
        (-b).sum().backward()
        (-b).sum().backward()
        grad.sum().backward()
        seen = [x.grad.tolist()]
        try:
            a.sum().backward()
        except al.AutogradError as error:
            seen.append("are freed" in str(error))
        seen.append(x.grad.tolist())
        return seen

    assert _close(session(function), session(al.compile(function)))


# ------------------------------------------------------------------- what is said of backwards
@pytest.mark.rules("GEN-5")
@pytest.mark.draws(long=500)
@given(PROGRAM, st.booleans(), st.sampled_from(("as it is", "spent", "under no_grad", "written")))
def test_analysis_and_partition_say_alike_whether_there_is_a_backward(
    program: Any, requires: bool, how: str
) -> None:
    inner = made(program)

    def function(x: Any, w: Any) -> Any:
        if how == "under no_grad":
            with al.no_grad():
                return inner(x, w)
        results = inner(x, w)
        first = results[0]
        if how == "spent" and first.requires_grad:
            al.autograd.grad(first.sum(), [x, w], allow_unused=True)
        if how == "written":
            first.detach().mul_(2.0)
        return results

    x, w = al.ones(3).requires_grad_(requires), al.ones(3).requires_grad_(requires)
    stages = al.inspect.stages_of(function, x, w)
    said = stages.record("analyze").text.splitlines()[-1]
    backward = stages["partition"].backward
    cut = stages.record("partition").text.splitlines()[0]
    assert said.endswith("so a backward graph is made.") is (backward is not None)
    if backward is None:
        reason = said.partition(": ")[2].removesuffix(", so no backward graph is made.")
        assert cut.endswith(f"and is the forward; there is no backward: {reason}.")
