"""DYN: sizes that depend on values are symbols, and what is computed with them is eager's."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import aotlite as al
from aotlite.backends.native.compiler.toolchain import find_compiler
from aotlite.ir.op import OPS, DataOp
from aotlite.stages.s1_capture.data_sizes import PrefixValues
from tests.helpers.data_programs import PROGRAMS, random_program
from tests.thinning import thinned

needs_compiler = pytest.mark.skipif(find_compiler() is None, reason="no C compiler works here")
MIXED = [1.0, -1.0, 2.0, 3.0]
ONE = [1.0, -1.0, -2.0, -3.0]
ALL = [1.0, 1.0, 2.0, 3.0]
NONE = [-1.0, -1.0, -2.0, -3.0]
VALUES = (MIXED, ONE, ALL, NONE, MIXED)
REFUSED = "depends on values and has no stated default"


def outcome(function: Callable[..., Any], *values: Sequence[float], grad: bool = True) -> list[Any]:
    """Results, gradients, written arguments and the generator's state of one call."""
    leaves = [al.tensor(list(each)).requires_grad_(grad) for each in values]
    given = [leaf * 1 if grad else leaf for leaf in leaves]
    al.manual_seed(5)
    try:
        found = function(*given)
    except (al.AotliteError, ArithmeticError) as error:
        return [type(error).__name__, str(error)]
    results = found if isinstance(found, tuple) else (found,)
    loss = [(r * r).sum() for r in results if isinstance(r, al.Tensor) and r.requires_grad]
    grads = al.autograd.grad(loss, leaves, allow_unused=True) if loss else ()
    shown = [
        (each.shape, each.dtype, each.stride(), each.requires_grad, each.tolist())
        if isinstance(each, al.Tensor)
        else each
        for each in (*results, *grads, *given)
    ]
    return [shown, al.get_rng_state()]


def agree(
    compiled: Callable[..., Any], function: Callable[..., Any], *values: Sequence[float], **how: Any
) -> None:
    same(outcome(function, *values, **how), outcome(compiled, *values, **how))


def same(one: Any, other: Any) -> None:
    """Compares two outcomes; a sum of gradients may be rounded in another order."""
    assert type(one) is type(other)
    if isinstance(one, (list, tuple)):
        assert len(one) == len(other)
        for first, second in zip(one, other, strict=True):
            same(first, second)
    elif isinstance(one, float):
        np.testing.assert_allclose(other, one, rtol=1e-5, atol=1e-5)
    else:
        assert one == other


def drawn(seed: int, least: int = 0, most: int = 6) -> list[Sequence[float]]:
    """Two vectors of one random length, some without a positive element, some of them alone."""
    generator = np.random.default_rng(seed)
    size = int(generator.integers(least, most + 1))
    first, second = (generator.normal(size=size).round(1) for _ in range(2))
    if seed % 4 == 3:
        first = abs(first) if seed % 8 == 3 else -abs(first)
    return [first.tolist(), second.tolist()]


# ------------------------------------------------------------------------------------- programs
@pytest.mark.rules("DYN-30")
@pytest.mark.thinned(2)
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_are_eagers_at_every_count(name: str, dynamic: bool) -> None:
    function = PROGRAMS[name]
    compiled = al.compile(
        function, dynamic=dynamic, backend="reference", verify=True, recompile_limit=64
    )
    for seed in range(5):
        agree(compiled, function, *drawn(seed, *(() if dynamic else (5, 5))))


@needs_compiler
@pytest.mark.rules("DYN-30")
@pytest.mark.thinned(5)
@pytest.mark.parametrize("name", ["mask", "chain", "coordinates", "item", "repeated"])
def test_programs_of_kernels_give_what_eager_gives(name: str) -> None:
    function = PROGRAMS[name]
    compiled = al.compile(function, dynamic=True, backend="cpu", recompile_limit=64)
    for seed in range(12):
        agree(compiled, function, *drawn(seed))


@pytest.mark.rules("DYN-30")
@pytest.mark.parametrize("seed", thinned(range(60), 3))
def test_random_programs_are_eagers_at_every_count(seed: int) -> None:
    function = random_program(seed)
    compiled = al.compile(
        function, dynamic=bool(seed % 2), backend="reference", verify=True, recompile_limit=64
    )
    for each in range(6):
        agree(compiled, function, *drawn(each * 7 + seed, 4, 4))


@pytest.mark.rules("DYN-30")
def test_an_op_with_a_result_of_such_a_size_is_two_pure_ops_in_a_graph() -> None:
    for op in [op for op in OPS.values() if isinstance(op, DataOp)]:
        assert f"{op.name}_count" == op.number.name and f"{op.name}_fitted" == op.fitted.name
    graph = al.capture(lambda x: x.masked_select(x > 0))(al.tensor(MIXED))
    assert ["gt", "masked_select_count", "masked_select_fitted"] == [
        node.target.name for node in graph.calls
    ]
    assert "f32[u0]" == str(graph.outputs[0].meta)


# ------------------------------------------------------------------------- which call, which region
@pytest.mark.rules("DYN-30", "DYN-31")
def test_one_region_serves_all_counts() -> None:
    def doubled(x: al.Tensor) -> al.Tensor:
        return x[x > 0] * 2

    compiled = al.compile(doubled, backend="reference")
    for values in VALUES:
        agree(compiled, doubled, values)
    [region] = compiled.regions()
    assert () == region.guards and ((3,), (1,), (4,), (0,)) == region.sizes
    assert 5 == region.calls
    assert region.counts[0].startswith("u0: count of nonzero at ")
    assert "return x[x > 0] * 2" in region.counts[0] and "u0: count of" in repr(compiled.regions())


@pytest.mark.rules("DYN-31")
def test_a_guard_on_a_count_leads_to_a_new_capture() -> None:
    def added(x: al.Tensor) -> al.Tensor:
        return x[x > 0] + al.ones(3)

    compiled = al.compile(added, backend="reference", verify=True)
    for values in VALUES:
        agree(compiled, added, values)  # the errors of four and of no elements, too
    assert [["u0 == 3"], ["u0 == 1"]] == [[g.text for g in r.guards] for r in compiled.regions()]
    reasons = [str(reason) for row in compiled.explain_recompiles() for reason in row.reasons]
    assert any("u0 == 3" in reason for reason in reasons)


@pytest.mark.rules("DYN-31")
def test_the_error_of_a_count_is_eagers() -> None:
    def counted(x: al.Tensor) -> al.Tensor:
        return al.bincount(x.detach().to(al.int64))

    compiled = al.compile(counted, backend="reference")
    for values in ([1.0, 2.0], [-1.0, 2.0], [1.0, 0.0]):
        agree(compiled, counted, values)
    assert 1 == len(compiled.entries)


@pytest.mark.rules("DYN-31")
def test_a_call_of_another_region_changes_nothing_before_it_is_captured() -> None:
    def both(x: al.Tensor) -> Any:
        noise = al.rand(4)
        x.add_(noise)
        found = x[x > 0.5]
        al.size_hint(found.shape[0], 2)
        x.mul_(2)
        return (found, al.rand(2)) if found.shape[0] > 2 else (x.sum(), al.rand(1))

    compiled = al.compile(both, backend="reference", verify=True)
    for values in VALUES:
        agree(compiled, both, values, grad=False)
    assert 2 == len(compiled.entries)


@pytest.mark.rules("DYN-30")
def test_arguments_that_share_memory_and_hidden_ones() -> None:
    weight = al.tensor([2.0, 3.0, 4.0, 5.0], requires_grad=True)

    def shared(x: al.Tensor, y: al.Tensor) -> Any:
        y.add_(1)
        found = x[x > 0]
        y.mul_(2)
        return found, (weight * x)[x > 2].sum()

    compiled = al.compile(shared, backend="reference", verify=True)
    for values in VALUES:
        outcomes = []
        for function in (shared, compiled):
            x = al.tensor(values)
            found, loss = function(x, x[1:])
            loss.backward()
            assert weight.grad is not None
            outcomes.append((found.tolist(), x.tolist(), weight.grad.tolist()))
            weight.grad = None
        assert outcomes[0] == outcomes[1]


@pytest.mark.rules("DYN-30")
def test_gradients_of_gradients() -> None:
    def loss(x: al.Tensor) -> al.Tensor:
        return (x * x * x)[x > 0].sum()

    compiled = al.compile(loss, backend="reference")
    for values in VALUES:
        outcomes = []
        for function in (loss, compiled):
            x = al.tensor(values, requires_grad=True)
            grads: Any = al.autograd.grad(function(x), x, create_graph=True)
            seconds: Any = al.autograd.grad((grads[0] * grads[0]).sum(), x)
            outcomes.append((grads[0].tolist(), seconds[0].tolist()))
        assert outcomes[0] == outcomes[1]


@pytest.mark.rules("DYN-30")
def test_threads_find_their_own_counts() -> None:
    def scaled(x: al.Tensor) -> al.Tensor:
        found = x.exp()[x > 0]
        return found * found.sum()

    compiled = al.compile(scaled, backend="reference", dynamic=True)
    wrong: list[object] = []

    def work(seed: int) -> None:
        for k in range(20):
            [values, _] = drawn(seed * 31 + k, 2)
            if scaled(al.tensor(values)).tolist() != compiled(al.tensor(values)).tolist():
                wrong.append(values)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [] == wrong


@pytest.mark.rules("DYN-30")
def test_the_inputs_of_a_capture_and_what_it_computed_are_not_kept() -> None:
    compiled = al.compile(lambda x: x.exp()[x > 0] * 2, backend="reference")
    x = al.tensor(MIXED, requires_grad=True)
    compiled(x)
    alive = weakref.ref(x)
    del x
    gc.collect()
    assert alive() is None
    assert [] == [each for each in gc.get_objects() if isinstance(each, PrefixValues)]


@pytest.mark.rules("DYN-31")
def test_no_op_is_computed_in_two_segments() -> None:
    def program(x: al.Tensor) -> Any:
        y = x.exp().sin()
        first = y[y > 0]
        second = first[first > 0.5]
        return first.sum() + second.sum(), y

    compiled = al.compile(program, backend="reference")
    compiled(al.tensor(MIXED))
    records: Any = compiled.entries[0].guarded.counted.records  # type: ignore[attr-defined]
    names = [[node.target.name for node in each.handed.calls] for each in records]
    assert 3 == len(names)
    for once in ("exp", "sin", "gt", "nonzero_fitted"):
        assert sum([found.count(once) for found in names]) <= 2
        assert [found for found in names if found.count(once)]
    assert sorted([name for found in names for name in found if name in ("exp", "sin")]) == [
        "exp",
        "sin",
    ]


@needs_compiler
@pytest.mark.rules("DYN-30")
def test_kernels_are_compiled_once_for_all_counts() -> None:
    compiled = al.compile(lambda x: (x.sin() * 2)[x > 0].exp(), dynamic=True, backend="cpu")
    compiled(al.tensor(MIXED))
    records: Any = compiled.entries[0].guarded.counted.records  # type: ignore[attr-defined]
    made = [each.kernels[0] for each in records]
    assert all(each is not None and each.why_not == [] for each in made)
    before = [each._made.values() for each in made]
    assert [1, 1] == [len(each) for each in before]
    for values in (ONE, ALL, NONE, [1.0, 2.0]):
        compiled(al.tensor(values))
    assert 1 == len(compiled.entries)
    assert before == [each._made.values() for each in made]


@pytest.mark.rules("DYN-30", "DYN-31")
@pytest.mark.parametrize("backend", ["reference", "auto"])
def test_effects_and_writes_in_the_graph_happen_behind_the_counts(
    backend: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def printing(x: al.Tensor) -> al.Tensor:
        found = x[x > 0]
        al.effects.print("{}", found.sum())
        x.mul_(2)
        return found

    compiled = al.compile(printing, backend=backend)
    writing = al.compile(
        lambda x: (x[x > 0], x.mul_(2))[0], backend=backend, keep_inference_input_mutations=True
    )
    for values in VALUES:
        seen = []
        for function in (printing, compiled):
            x = al.tensor(values)
            seen.append((function(x).tolist(), x.tolist(), capsys.readouterr().out))
        assert seen[0] == seen[1] and seen[0][2]
        x = al.tensor(values)
        assert (seen[0][0], seen[0][1]) == (writing(x).tolist(), x.tolist())


# ------------------------------------------------------------------------------ stated defaults
ASKING: dict[str, Callable[[int], Any]] = {
    "compared": lambda n: 1 if n > 2 else 2,
    "equal": lambda n: [n == 2][0] and 1,
    "as a float": float,
    "a quotient": lambda n: n / 2 > 1,
    "an item": lambda n: [1, 2, 3, 4, 5][n],
    "a text": lambda n: f"{n}",
    "counted": lambda n: list(range(n)),
    "a key": lambda n: {3: 1}.get(n),
    "the least": lambda n: min(n, 3),
    "a length": lambda n: len(al.zeros(n)),
}


@pytest.mark.rules("DYN-32")
@pytest.mark.parametrize("kind", ["all", "compared", "number", "int"])
def test_a_check_of_values_says_what_can_be_checked(kind: str) -> None:
    def checked(x: al.Tensor) -> al.Tensor:
        whole = {"all": (x > 0).all(), "compared": x.sum() > 0, "number": x.sum()}
        al.check(whole.get(kind, (x > 0).sum()), "positive")
        return x * 2

    with pytest.raises(al.UnsupportedError) as caught:
        al.compile(checked, backend="reference")(al.ones(3))
    assert "check() of a tensor" in str(caught.value)
    notes = "".join(caught.value.__notes__)
    assert "check it outside" in notes and "where" not in notes.split("Instead")[1]
    assert checked(al.ones(3)).tolist() == [2.0] * 3
    with pytest.raises(al.ArgumentError, match="check: positive"):
        checked(al.zeros(3))

    def of_ints(x: al.Tensor) -> al.Tensor:
        al.check((x > 0).sum().item() > 0, "positive")
        return x * 2

    assert al.compile(of_ints, backend="reference")(al.ones(3)).tolist() == [2.0] * 3


@pytest.mark.rules("DYN-32")
@pytest.mark.parametrize("name", ASKING)
def test_a_question_without_a_default_is_refused_with_the_ways_out(name: str) -> None:
    ask = ASKING[name]

    def asking(x: al.Tensor) -> Any:
        ask(x[x > 0].shape[0])  # the line
        return x * 2

    with pytest.raises(al.UnsupportedError, match=REFUSED) as caught:
        al.compile(asking, backend="reference")(al.tensor(MIXED))
    assert "u0 is count of nonzero at" in str(caught.value)
    notes = "\n".join(caught.value.__notes__)
    assert "test_dyn_data.py" in notes
    for way in ("al.check", "al.size_hint", "outside"):
        assert way in notes


@pytest.mark.rules("DYN-32")
@pytest.mark.thinned(2)
@pytest.mark.parametrize("name", ASKING)
def test_a_hint_lets_a_function_ask(name: str) -> None:
    ask = ASKING[name]

    def asking(x: al.Tensor) -> Any:
        n = x[x > 0].shape[0]
        al.size_hint(n, 3)
        return x * 2, str(ask(n))

    compiled = al.compile(asking, backend="reference", verify=True)
    for values in VALUES:
        agree(compiled, asking, values)


@pytest.mark.rules("DYN-32")
def test_a_refusal_that_the_function_catches_is_raised() -> None:
    def asking(x: al.Tensor) -> al.Tensor:
        try:
            return x * 2 if x[x > 0].shape[0] > 2 else x
        except RuntimeError:
            return x * 3

    with pytest.raises(al.UnsupportedError, match=REFUSED):
        al.compile(asking, backend="reference")(al.tensor(MIXED))


@pytest.mark.rules("DYN-32")
def test_a_check_is_a_fact_and_an_error_where_it_does_not_hold() -> None:
    def checked(x: al.Tensor) -> al.Tensor:
        found = x[x > 0]
        al.check(found.shape[0] > 1, "few are positive")
        return found[:2] * (2 if found.shape[0] >= 2 else 3)

    compiled = al.compile(checked, backend="reference", verify=True)
    for values in VALUES:
        agree(compiled, checked, values)
    assert [["u0 > 1"]] == [[guard.text for guard in r.guards] for r in compiled.regions()]
    with pytest.raises(al.ArgumentError, match="check: few are positive"):
        compiled(al.tensor(ONE))
    with pytest.raises(al.ArgumentError, match="check: the condition does not hold"):
        al.check(1 > 2)


@pytest.mark.rules("DYN-32")
def test_what_the_range_says_needs_no_default() -> None:
    def asking(x: al.Tensor) -> Any:
        n = x[x > 0].shape[0]
        return x * (2 if n >= 0 and not n < 0 else 3), n + 1 > 0, n

    compiled = al.compile(asking, backend="reference")
    for values in VALUES:
        agree(compiled, asking, values)
    [region] = compiled.regions()
    assert () == region.guards


@pytest.mark.rules("DYN-32")
def test_costs_are_computed_with_the_stated_default() -> None:
    seen = []

    def hinted(x: al.Tensor) -> al.Tensor:
        found = x[x > 0]
        al.size_hint(found.shape[0], 1000)
        seen.append(found.meta)
        return found

    from aotlite.ir.geometry.sizes import hint_of

    al.capture(hinted)(al.tensor(MIXED))
    assert [1000, 3] == [hint_of(seen[0].shape[0]), seen[0].shape[0].hint]
    for wrong in ((1.5, 2), (2, 2.5), (2, -1)):
        with pytest.raises(al.ArgumentError, match="size_hint: it is given"):
            al.size_hint(*wrong)


# ------------------------------------------------------------------------------ numbers of tensors
@pytest.mark.rules("DYN-5")
def test_the_number_in_a_tensor_is_a_size() -> None:
    def sized(x: al.Tensor) -> Any:
        n = (x > 0).sum().item()
        return al.zeros(n, 2), x[:n] * n, x[n:], n * 2 + 1, isinstance(n, int)

    compiled = al.compile(sized, backend="reference", verify=True)
    for values in VALUES:
        agree(compiled, sized, values)


@pytest.mark.rules("DYN-5")
def test_the_number_may_be_negative_and_the_tensor_may_be_written_later() -> None:
    def sized(x: al.Tensor) -> Any:
        total = x.detach().to(al.int64).sum()
        n = total.item()
        total.add_(100)
        return x + n, total, n

    compiled = al.compile(sized, backend="reference", verify=True)
    for values in VALUES:
        agree(compiled, sized, values)
    assert 1 == len(compiled.entries)


@pytest.mark.rules("DYN-5")
@pytest.mark.parametrize(
    "read",
    [
        lambda x: x.sum().item(),
        lambda x: (x > 0).any().item(),
        lambda x: int((x > 0).sum()),
        lambda x: (x > 0).sum().tolist(),
    ],
)
def test_other_values_are_refused_as_before(read: Callable[[al.Tensor], Any]) -> None:
    with pytest.raises(al.UnsupportedError, match="whose value is not known"):
        al.compile(lambda x: x * read(x), backend="reference")(al.tensor(MIXED))


@pytest.mark.rules("DYN-5")
def test_an_error_before_a_count_is_raised_even_if_it_is_caught() -> None:
    def caught(x: al.Tensor) -> al.Tensor:
        try:
            return al.bincount(x.detach().to(al.int64))
        except IndexError:
            return x

    with pytest.raises(al.IndexOutOfRangeError, match="bincount: an element is -3"):
        al.compile(caught, backend="reference")(al.tensor(NONE))


# ----------------------------------------------------------------------------------------- refused
@pytest.mark.rules("DYN-5")
def test_a_count_in_a_backward_is_refused() -> None:
    class Positive(al.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: al.Tensor) -> al.Tensor:
            return x * 2

        @staticmethod
        def backward(ctx: Any, grad: al.Tensor) -> al.Tensor:
            return grad * grad[grad > 0].sum()

    with pytest.raises(al.UnsupportedError, match="nonzero .the shape of whose result"):
        al.compile(Positive.apply, backend="reference")(al.tensor(MIXED, requires_grad=True))


@pytest.mark.rules("DYN-5")
def test_a_count_after_an_effect_is_refused() -> None:
    def printing(x: al.Tensor) -> al.Tensor:
        al.effects.print("{}", x)
        return x[x > 0]

    with pytest.raises(al.UnsupportedError, match="which has an effect"):
        al.compile(printing, backend="reference")(al.tensor(MIXED))
