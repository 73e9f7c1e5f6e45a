"""CKP-10, CKP-11: a policy decides which results of a region are saved."""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import aotlite as al
from aotlite import CheckpointPolicy
from tests.end_to_end.helpers.cases import cases
from tests.end_to_end.helpers.worlds import body_of, differences, run_call
from tests.helpers.own_ops import taken_out

pytestmark = pytest.mark.rules("CKP-11")

POLICIES = list(CheckpointPolicy)
STEPS = {
    "exp": lambda x, w: x.exp(),
    "matmul": lambda x, w: x @ w,
    "mul": lambda x, w: x * w,
    "transpose": lambda x, w: x.t(),
    "chunk": lambda x, w: al.cat(x.chunk(2)),
    "amax": lambda x, w: x - x.max(0)[0],
    "dropout": lambda x, w: al.nn.functional.dropout(x, 0.5),
    "write": lambda x, w: x.clone().mul_(w),
    "softmax": lambda x, w: al.nn.functional.softmax(x, 0),
}


def drawn(seed: int) -> Any:
    """Contexts with a policy that depends on the name of the op and a seed."""

    def policy(context: Any, op: Any, *args: Any) -> Any:
        if op is al.ops.clone:  # it may be written
            return CheckpointPolicy.MUST_RECOMPUTE
        return POLICIES[(sum(map(ord, op.__name__)) * 7 + seed) % 4]

    return partial(al.create_selective_checkpoint_contexts, policy)


@pytest.mark.draws(long=400)
@settings(max_examples=25, deadline=None)
@given(st.lists(st.sampled_from(sorted(STEPS)), min_size=1, max_size=6), st.integers(0, 99))
def test_gradients_are_those_of_the_plain_call(names: list[str], seed: int) -> None:
    """∀ regions and policies: eager and compiled, and a second backward."""

    def block(x: Any, w: Any) -> Any:
        for name in names:
            x = STEPS[name](x, w)
        return x

    def found(run: Any) -> Any:
        al.manual_seed(seed)
        x, w = al.randn(4, 4).requires_grad_(), al.randn(4, 4).requires_grad_()
        y = run(x, w)
        y.sum().backward(retain_graph=True)
        y.sum().backward()
        return [None if t.grad is None else t.grad.tolist() for t in (x, w)]

    def region(x: Any, w: Any) -> Any:
        return al.checkpoint(block, x, w, context_fn=drawn(seed))

    expected = found(block)
    assert repr(expected) == repr(found(region))
    assert repr(expected) == repr(found(al.compile(region, backend="reference")))


@pytest.mark.draws(long=200)
@given(case=cases(), seed=st.integers(0, 99))
@settings(max_examples=12, deadline=None)
def test_any_program_may_have_a_policy(case: Any, seed: int) -> None:
    """∀ with views, writes and errors: compiled as in eager."""
    body = body_of(case)

    def region(*inputs: Any) -> Any:
        return al.checkpoint(body, *inputs, context_fn=drawn(seed))

    compiled = al.compile(region, backend="reference")
    for number in range(len(case.calls)):
        mine = run_call(case, number, compiled)
        assert [] == differences(mine, run_call(case, number, region))


def test_a_saved_result_is_not_computed_again() -> None:
    computed: list[str] = []

    def kernel(xp: Any, meta: Any, array: Any) -> Any:
        computed.append("double")
        return array * 2

    with taken_out():
        double = al.register_op(
            "counted_double(Tensor self) -> Tensor",
            kernel=kernel,
            meta=lambda meta: meta,
            vjp={"self": lambda grad, self: grad * 2},
        )

        def counts(policy: Any) -> int:
            computed.clear()
            x = al.ones(3).requires_grad_()
            al.checkpoint(
                lambda x: double(x).exp(),
                x,
                context_fn=partial(al.create_selective_checkpoint_contexts, policy),
            ).sum().backward()
            return len(computed)

        assert (1, 2) == (counts(lambda c, op, *a: True), counts(lambda c, op, *a: False))


def test_a_list_saves_the_results_of_its_ops() -> None:
    """The partitioner is bound: what is saved is no input of the backward's recomputation."""
    contexts = partial(al.create_selective_checkpoint_contexts, [al.ops.matmul])
    compiled = al.compile(
        lambda x, w: al.checkpoint(lambda: (x @ w).exp().sin(), context_fn=contexts).sum(),
        backend="reference",
    )
    compiled(al.ones(2, 2), al.ones(2, 2).requires_grad_()).backward()
    graph: Any = compiled.backward_graph
    names = [node.target.name for node in graph.calls]
    assert names.count("matmul") == 1  # that of the gradient
    assert "exp" in names


def test_a_result_that_was_written_is_refused() -> None:
    def body(x: Any) -> Any:
        y = x.sin()
        y.mul_(3)
        return y * 2

    def run(**options: Any) -> Any:
        x = al.ones(2).requires_grad_()
        contexts = partial(al.create_selective_checkpoint_contexts, [al.ops.sin], **options)
        al.checkpoint(body, x, context_fn=contexts).exp().sum().backward()
        return x.grad

    with pytest.raises(al.AutogradError, match="a result of sin that the policy saves is at ver"):
        run()
    assert run(allow_cache_entry_mutation=True) is not None


def test_a_policy_that_changes_its_mind_is_refused() -> None:
    contexts = partial(
        al.create_selective_checkpoint_contexts, lambda context, op, *args: context.is_recompute
    )
    y = al.checkpoint(lambda x: x.exp(), al.ones(2).requires_grad_(), context_fn=contexts)
    with pytest.raises(al.AutogradError, match="number 0 of the ops of the region is exp"):
        y.sum().backward()


@pytest.mark.rules("CKP-10")
def test_each_run_is_in_its_context() -> None:
    log: list[str] = []

    @contextmanager
    def noted(name: str) -> Any:
        log.append(f"enter {name}")
        yield
        log.append(f"leave {name}")

    def contexts() -> Any:
        return noted("first"), noted("second")

    y = al.checkpoint(lambda x: x.exp(), al.ones(2).requires_grad_(), context_fn=contexts)
    assert log == ["enter first", "leave first"]
    y.sum().backward()
    assert log[2:] == ["enter second", "leave second"]
    with al.no_grad():
        al.checkpoint(lambda x: x.exp(), al.ones(2).requires_grad_(), context_fn=contexts)
    assert len(log) == 4


@pytest.mark.rules("CKP-10")
def test_mistakes_are_named() -> None:
    x = al.ones(2).requires_grad_()
    with pytest.raises(al.ArgumentError, match="expected a function that gives two context mana"):
        al.checkpoint(lambda x: x, x, context_fn=lambda: None)  # type: ignore[arg-type,return-value]
    with pytest.raises(al.ArgumentError, match="the policy is 3, expected a function or a list"):
        al.create_selective_checkpoint_contexts(3)
    contexts = partial(al.create_selective_checkpoint_contexts, lambda context, op, *args: "save")
    with pytest.raises(al.ArgumentError, match="the policy returned 'save' for exp"):
        al.checkpoint(lambda x: x.exp(), x, context_fn=contexts)
