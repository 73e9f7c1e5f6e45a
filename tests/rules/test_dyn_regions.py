"""DYN: one capture serves all sizes that satisfy its guards, and what is assumed is eager's."""

from __future__ import annotations

import gc
import json
import threading
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from importlib import import_module
from typing import Any

import numpy as np
import pytest

import aotlite as al
from aotlite.backends.native.compiler.toolchain import find_compiler
from aotlite.ir.graph import Graph
from aotlite.ir.symbols.assumption import with_hints
from aotlite.ir.symbols.table import SymbolTable

needs_compiler = pytest.mark.skipif(find_compiler() is None, reason="no C compiler works here")


def values(shape: Sequence[int], *, grad: bool = False) -> al.Tensor:
    """A tensor of halves; the same one for a shape."""
    count = int(np.prod(shape))
    numbers = (np.arange(count) * 7 % 11 - 5) / 2
    return al.tensor(numbers.reshape(shape).astype(np.float32)).requires_grad_(grad)


def agree(compiled: Callable[..., Any], eager: Callable[..., Any], *shapes: Sequence[int]) -> None:
    """Compares results and gradients of one call."""
    outcomes = []
    for function in (compiled, eager):
        arguments = [values(shape, grad=True) for shape in shapes]
        results = function(*arguments)
        found = results if isinstance(results, tuple) else (results,)
        grads = al.autograd.grad([(r * r).sum() for r in found], arguments, allow_unused=True)
        outcomes.append([(t.shape, t.tolist()) for t in (*found, *grads) if t is not None])
    assert outcomes[0] == outcomes[1]


def loss(x: al.Tensor, w: al.Tensor) -> al.Tensor:
    return (x @ w).relu().sum(0)


# ------------------------------------------------------------------------- which sizes are symbols
@pytest.mark.rules("DYN-3")
def test_a_size_that_changes_becomes_a_symbol() -> None:
    compiled = al.compile(loss, dynamic=None, backend="reference")
    for n in (5, 7, 2, 9, 64):
        agree(compiled, loss, (n, 4), (4, 3))
    metas = [[str(each.meta) for each in entry.meta.inputs] for entry in compiled.entries]
    assert metas == [["f32[5, 4]", "f32[4, 3]"], ["f32[s0, 4]", "f32[4, 3]"]]


@pytest.mark.rules("DYN-3")
def test_every_size_is_a_symbol_if_asked_for() -> None:
    compiled = al.compile(loss, dynamic=True, backend="reference")
    for n, m, k in ((5, 4, 3), (2, 2, 2), (9, 3, 4)):
        agree(compiled, loss, (n, m), (m, k))
    (region,) = compiled.regions()
    assert [guard.text for guard in region.guards] == ["s1 == s2"]
    assert region.sizes == ((5, 4, 4, 3), (2, 2, 2, 2), (9, 3, 3, 4))
    assert region.calls == 3


@pytest.mark.rules("DYN-3")
def test_a_mark_makes_a_symbol_and_one_against_it_none() -> None:
    compiled = al.compile(lambda x: x * 2, backend="reference")
    x = values((5, 4))
    al.mark_dynamic(x, 0)
    compiled(x)
    compiled(values((6, 4)))
    assert len(compiled.entries) == 1
    assert str(compiled.entries[0].meta.inputs[0].meta) == "f32[s0, 4]"
    fixed = al.compile(lambda x: x * 2, dynamic=True, backend="reference")
    x = values((5, 4))
    al.mark_static(x, -1)
    fixed(x)
    assert str(fixed.entries[0].meta.inputs[0].meta) == "f32[s0, 4]"
    al.mark_static(x)
    whole = al.compile(lambda x: x * 2, dynamic=True, backend="reference")
    whole(x)
    assert str(whole.entries[0].meta.inputs[0].meta) == "f32[5, 4]"


@pytest.mark.rules("DYN-3")
@pytest.mark.parametrize("dynamic", [True, None])
def test_sizes_of_parameters_stay_numbers(dynamic: bool | None) -> None:
    compiled = al.compile(
        lambda w, x: x @ w, dynamic=dynamic, num_params_buffers=1, backend="reference"
    )
    for n in (5, 7, 9):
        compiled(values((4, 3)), values((n, 4)))
    assert str(compiled.entries[-1].meta.inputs[0].meta) == "f32[4, 3]"
    assert len(compiled.entries) == (1 if dynamic else 2)
    compiled(values((4, 2)), values((5, 4)))
    assert str(compiled.entries[-1].meta.inputs[0].meta) == "f32[4, 2]"


@pytest.mark.rules("DYN-3")
def test_dimensions_of_one_name_are_one_symbol() -> None:
    batch = al.Dim("batch", min=2, max=64)
    shapes = {"x": {0: batch}, "y": {0: batch}}
    compiled = al.compile(lambda x, y: x + y, dynamic_shapes=shapes, backend="reference")
    for n in (4, 5, 64):
        assert compiled(values((n, 3)), values((n, 3))).shape == (n, 3)
    (region,) = compiled.regions()
    assert region.arguments == ("argument 0: f32[s0, 3]", "argument 1: f32[s0, 3]")
    assert region.guards == ()


@pytest.mark.rules("DYN-3")
def test_names_reach_into_containers() -> None:
    def total(pair: Any, *, extra: al.Tensor) -> al.Tensor:
        return pair["a"].sum() + pair["b"][0].sum() + extra.sum()

    n = al.Dim("n")
    shapes = {"pair": {"a": {0: n}, "b": [{1: n}]}, "extra": {0: True}}
    compiled = al.compile(total, dynamic_shapes=shapes, backend="reference")
    for size in (3, 6):
        pair = {"a": values((size,)), "b": [values((2, size))]}
        assert (
            compiled(pair, extra=values((size + 1,))).item()
            == total(pair, extra=values((size + 1,))).item()
        )
    assert len(compiled.entries) == 1


# -------------------------------------------------------------------------------------- the guards
def branches_on_one(x: al.Tensor) -> al.Tensor:
    return x + 1 if x.shape[0] == 1 else x * 3


def branches_on_equality(x: al.Tensor, y: al.Tensor) -> al.Tensor:
    return x.sum() if x.shape[0] == y.shape[0] else y.sum() * 2


def branches_on_a_remainder(x: al.Tensor) -> al.Tensor:
    return x.reshape(-1, 2).sum(0) if x.shape[0] % 2 == 0 else x[1:].reshape(-1, 2).sum(0)


def counts(x: al.Tensor) -> al.Tensor:
    return x / len(x)


def loops(x: al.Tensor) -> al.Tensor:
    total = x * 0
    for k in range(x.shape[0]):
        total = total + k
    return total


@pytest.mark.rules("DYN-1", "DYN-2", "DYN-8")
@pytest.mark.parametrize(
    ("function", "arity"),
    [
        (branches_on_one, 1),
        (branches_on_equality, 2),
        (branches_on_a_remainder, 1),
        (counts, 1),
        (loops, 1),
    ],
)
def test_programs_that_look_at_sizes_are_eagers_at_every_size(
    function: Callable[..., Any], arity: int
) -> None:
    compiled = al.compile(function, dynamic=True, backend="reference")
    for n in (5, 1, 2, 0, 3, 4, 8, 7):
        for m in (4, n) if arity == 2 else (0,):
            agree(compiled, function, *[(n,), (m,)][:arity])


@pytest.mark.rules("DYN-1", "DYN-25")
@pytest.mark.parametrize("backend", ["reference", pytest.param("cpu", marks=needs_compiler)])
def test_sizes_of_0_and_1_are_sizes_like_others(backend: str) -> None:
    """Of the first call too: kernels are planned for more rows than these."""

    def scaled(x: al.Tensor, w: al.Tensor) -> tuple[al.Tensor, ...]:
        return (x * 2 + w).exp(), x.sum(1), x.t()

    for sizes in ((0, 7, 1, 2, 40), (1, 0, 7, 2)):
        compiled = al.compile(scaled, dynamic_shapes={"x": {0: True}}, backend=backend)
        for n in sizes:
            x, w = values((n, 4)), values((4,))
            for found, expected in zip(compiled(x, w), scaled(x, w), strict=True):
                assert (found.shape, found.stride()) == (expected.shape, expected.stride())
                assert np.allclose(found.numpy(), expected.numpy(), rtol=1e-5)
        assert [row.guards for row in compiled.regions()] == [()]


def normalized(x: al.Tensor) -> tuple[al.Tensor, ...]:
    return x.softmax(-1), x.var(0), x.roll(1, 0) * 2


@needs_compiler
@pytest.mark.rules("DYN-25", "VER-6")
def test_passes_of_a_region_keep_metas_that_are_proved_to_be_equal() -> None:
    """The strides of softmax are (max(s1, 1), 1), and (s1, 1) where there are elements."""
    compiled = al.compile(normalized, dynamic=True, backend="cpu")
    for n, m in ((5, 4), (1, 3), (0, 3), (3, 0), (0, 0)):
        outcomes: list[list[Any]] = []
        for function in (compiled, normalized):
            x = values((n, m), grad=True)
            results = function(x)
            (grad,) = al.autograd.grad([(r * r).sum() for r in results], x)
            assert grad is not None
            outcomes.append([t.detach().numpy() for t in (*results, grad)])
        for found, expected in zip(*outcomes, strict=True):
            assert np.allclose(found, expected, rtol=1e-4, atol=1e-5, equal_nan=True)


@pytest.mark.rules("DYN-2")
def test_a_guard_has_the_line_that_caused_it() -> None:
    compiled = al.compile(branches_on_equality, dynamic=True, backend="reference")
    compiled(values((5,)), values((4,)))
    (region,) = compiled.regions()
    assert [guard.text for guard in region.guards] == ["s0 != s1"]
    text = repr(compiled.regions())
    assert "branches_on_equality" in text
    assert "x.shape[0] == y.shape[0]" in text


@pytest.mark.rules("DYN-11", "DYN-27")
def test_a_table_of_regions_has_what_was_assumed_and_how_it_was_shown() -> None:
    weights = [values((2,)) for _ in range(6)]

    def total(x: al.Tensor, rate: float, weights: list[al.Tensor]) -> al.Tensor:
        if x.shape[0] > 3 and rate > 0.5:
            return x.sum() * rate + sum(each.sum() for each in weights)
        return x.sum()

    shapes = {"x": {0: al.Dim("batch")}, "rate": True}
    compiled = al.compile(total, dynamic_shapes=shapes, backend="reference")
    for n, rate in ((5, 0.7), (6, 0.9), (5, 0.1)):
        compiled(values((n,)), rate, weights)
    first, second = compiled.regions()
    assert first.names == second.names == ("s0: batch",)
    assert [each.text for each in first.floats] == ["argument 1 > 0.5 is True"]
    assert [each.text for each in second.floats] == ["argument 1 > 0.5 is False"]
    assert first.proof.startswith("sound")
    text = repr(compiled.regions())
    for words in ("argument 1 > 0.5 is False", "others without symbols", "s0: batch", first.proof):
        assert words in text
    assert "argument 5" not in text, "inputs without symbols are counted"
    numbers = [row.number for row in compiled.explain_recompiles()]
    assert [row.number for row in (first, second)] == numbers


@pytest.mark.rules("DYN-8")
def test_a_recompilation_names_the_guard_that_failed() -> None:
    compiled = al.compile(branches_on_equality, dynamic=True, backend="reference")
    compiled(values((5,)), values((4,)))
    compiled(values((5,)), values((5,)))
    first, second = compiled.explain_recompiles()
    assert first.reasons == ()
    (reason,) = second.reasons
    assert "expected s0 != s1 (test_dyn_regions.py" in str(reason)
    assert "the first call" in repr(compiled.explain_recompiles())


@pytest.mark.rules("DYN-8", "GRD-1")
def test_a_region_is_told_from_others_by_all_but_sizes() -> None:
    """Dtypes, history, layouts, and which arguments are one object."""
    compiled = al.compile(lambda x, y: x * 2 + y, dynamic=True, backend="reference")
    one, other = values((4, 3)), values((4, 3))
    compiled(one, other)
    compiled(one.double(), other)
    compiled(values((4, 3), grad=True), other)
    compiled(values((3, 4)).t(), other)
    compiled(one, one)
    assert len(compiled.entries) == 5
    for arguments in ((5, 2), (6, 3)):
        a, b = values(arguments), values(arguments)
        for first, second in ((a, b), (a.double(), b), (a, a)):
            expected = (first * 2 + second).tolist()
            assert compiled(first, second).tolist() == expected
    assert len(compiled.entries) == 5


@pytest.mark.rules("DYN-4", "DYN-14")
def test_memory_that_arguments_share_is_looked_at_in_each_call() -> None:
    def shifted(x: al.Tensor, y: al.Tensor) -> al.Tensor:
        x.add_(1)
        return y * 2

    compiled = al.compile(shifted, dynamic=True, backend="reference")
    for n in (4, 6):
        base, twin = values((2 * n,)), values((2 * n,))
        for first, second in ((slice(0, n), slice(n, 2 * n)), (slice(0, n), slice(n // 2, n))):
            found = compiled(base[first], base[second])
            expected = shifted(twin[first], twin[second])
            assert (found.tolist(), base.tolist()) == (expected.tolist(), twin.tolist())


@pytest.mark.rules("DYN-6")
def test_a_size_is_a_result() -> None:
    compiled = al.compile(
        lambda x: (x.shape[0], x.shape[0] * 2 + 1, x + x.shape[0], x.shape[0] > 3),
        dynamic=True,
        backend="reference",
    )
    for n in (5, 6, 9):
        size, twice, shifted, more = compiled(values((n,)))
        assert (size, twice, more) == (n, 2 * n + 1, True)
        assert (type(size), type(twice), type(more)) == (int, int, bool)
        assert shifted.tolist() == (values((n,)) + n).tolist()
    assert len(compiled.entries) == 1


# ------------------------------------------------------------------------------ backwards, orders
@pytest.mark.rules("DYN-9", "DYN-16", "JNT-13")
def test_a_backward_serves_all_sizes_of_its_forward() -> None:
    def traced(x: al.Tensor, w: al.Tensor) -> al.Tensor:
        return ((x @ w).tanh() ** 2).mean()

    compiled = al.compile(traced, dynamic=True, partition="min_cut", backend="reference")
    for n in (5, 6, 3):
        outcomes: list[Any] = []
        for function in (compiled, traced):
            x, w = values((n, 4)), values((4, 3), grad=True)
            (found,) = al.autograd.grad(function(x, w), w)
            assert found is not None
            outcomes.append(found.tolist())
        assert np.allclose(*outcomes)
    assert len(compiled.entries) == 1


@pytest.mark.rules("DYN-10", "DBL-2")
def test_derivatives_of_a_backward_are_recorded_for_the_sizes_of_the_call() -> None:
    """The custom backward looks at a size: the first region knows nothing of it."""

    class Odd(al.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: al.Tensor) -> al.Tensor:
            ctx.save_for_backward(x)
            return x * x * x

        @staticmethod
        def backward(ctx: Any, grad: al.Tensor) -> al.Tensor:
            (x,) = ctx.saved_tensors
            return 3 * grad * x * x

    def cube(x: al.Tensor) -> al.Tensor:
        return Odd.apply(x).sum()

    compiled = al.compile(cube, dynamic=True, backend="reference")
    for n in (5, 2, 6, 3):
        outcomes: list[list[Any]] = []
        for function in (compiled, cube):
            x = values((n, n + 1), grad=True)
            value = function(x)
            outcomes.append([])
            for order in range(3):
                (found,) = al.autograd.grad(value, x, create_graph=order < 2)
                assert found is not None
                outcomes[-1].append(found.tolist())
                value = (found * found).sum()
        assert outcomes[0] == outcomes[1]
    assert len(compiled.entries) == 1


@pytest.mark.rules("DYN-10")
def test_what_a_block_of_hints_assumes_is_forgotten() -> None:
    table = SymbolTable()
    s0 = table.size(6, "x.shape[0]")
    assert bool(s0 > 4)
    before = [each.text for each in table.log], table.range(s0)
    with with_hints(table, {"s0": 9}):
        assert s0.hint == 9
        assert bool(s0 > 8)
        assert (s0 + 1).hint == 10
        assert table.range(s0) == (9, None)
    assert s0.hint == 6
    assert (s0 + 1).hint == 7
    assert before == ([each.text for each in table.log], table.range(s0))
    assert not bool(s0 > 8)


@needs_compiler
@pytest.mark.rules("SIZ-6", "SIZ-9")
def test_kernels_of_a_region_are_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forward and backward; a size that is not a multiple of the vector's is no exception."""

    def mlp(x: al.Tensor, w: al.Tensor) -> tuple[al.Tensor, ...]:
        y = (x @ w).relu()
        return (y * y).sum(0), y.softmax(-1)

    compiled = al.compile(mlp, dynamic=True, backend="cpu")
    loaded: list[str] = []
    for module in ("sized_program", "compiled_program"):
        load = import_module(f"aotlite.backends.cpu.{module}").load_c

        def counted(text: str, *rest: object, load: Any = load, **how: object) -> object:
            loaded.append(text)
            return load(text, *rest, **how)

        monkeypatch.setattr(f"aotlite.backends.cpu.{module}.load_c", counted)
    for n, m, k in ((32, 16, 8), (33, 16, 8), (7, 5, 3), (64, 64, 64)):
        outcomes: list[list[Any]] = []
        for function in (compiled, mlp):
            x, w = values((n, m), grad=True), values((m, k), grad=True)
            results = function(x, w)
            grads = al.autograd.grad([(r * r).sum() for r in results], [x, w])
            outcomes.append([t.detach().numpy() for t in (*results, *grads) if t is not None])
        for found, expected in zip(*outcomes, strict=True):
            assert np.allclose(found, expected, rtol=1e-4, atol=1e-4)
        if n == 32:
            assert len(loaded) == 2
    assert len(loaded) == 2
    assert len(compiled.entries) == 1


@pytest.mark.rules("SIZ-2")
def test_why_there_are_no_kernels_for_all_sizes_is_told() -> None:
    compiled = al.compile(lambda x: x * 2, dynamic=True, backend="reference")
    for size in (3, 4, 5):  # the backend is asked once
        compiled(values((size,)))
    region: Any = compiled.entries[0].guarded
    (kernels, none) = region.records.kernels
    assert none is None
    assert kernels.why_not == ["<lambda>: backend 'reference' takes numbers only"]


@pytest.mark.rules("DYN-11")
def test_the_guards_of_a_region_are_proved(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rule that simplifies wrongly is told where the function is compiled, and nothing runs."""
    good = al.compile(branches_on_a_remainder, dynamic=True, backend="reference")
    good(values((6,)))
    region: Any = good.entries[0].guarded
    assert region.sizes.proof.is_proved
    plain = SymbolTable.known

    def known(table: Any, fact: Any) -> Any:
        return True if str(fact.right) == "3" else plain(table, fact)

    monkeypatch.setattr(SymbolTable, "known", known)
    wrong = al.compile(lambda x: x if x.shape[0] > 3 else -x, dynamic=True, backend="reference")
    with pytest.raises(al.GuardError, match="s0 > 3"):
        wrong(values((6,)))
    assert wrong.entries == []


# ------------------------------------------------------------------ what takes no symbol for a size
@pytest.mark.rules("DYN-23")
@pytest.mark.parametrize("dynamic", [True, None])
def test_a_function_that_takes_no_symbols_is_compiled_for_numbers(dynamic: bool | None) -> None:
    """C code that wants an object of the type int: nobody asked for a symbol."""

    def dumped(x: al.Tensor) -> al.Tensor:
        return x * len(json.dumps([x.shape[0], 1])) + float(Decimal(x.shape[0]))

    compiled = al.compile(dumped, dynamic=dynamic, backend="reference")
    for n in (5, 12, 5, 12):
        assert compiled(values((n,))).tolist() == dumped(values((n,))).tolist()
    assert [row.sizes for row in compiled.regions()] == [(), ()]


@pytest.mark.rules("DYN-23", "DYN-3")
def test_a_marked_size_that_code_in_c_takes_names_the_line() -> None:
    def dumped(x: al.Tensor) -> al.Tensor:
        return x * len(json.dumps(x.shape[0]))

    x = values((4,))
    al.mark_dynamic(x, 0)
    compiled = al.compile(dumped, backend="reference")
    with pytest.raises(TypeError, match="not JSON serializable") as raised:
        compiled(x)
    (note,) = [each for each in raised.value.__notes__ if "marked as dynamic" in each]
    assert "size 0 of argument 0" in note
    assert "in dumped: return x * len(json.dumps(x.shape[0]))" in note
    assert compiled.entries == []


@pytest.mark.rules("DYN-23")
def test_an_error_of_the_function_itself_is_eagers_and_raised_once() -> None:
    calls: list[int] = []

    def refuses(x: al.Tensor) -> al.Tensor:
        calls.append(1)
        if x.shape[0] > 3:
            raise TypeError(f"{x.shape[0]} rows are too many")
        return x[5]

    compiled = al.compile(refuses, dynamic=True, backend="reference")
    with pytest.raises(TypeError, match="5 rows are too many"):
        compiled(values((5,)))
    with pytest.raises(al.AotliteError):
        compiled(values((3,)))
    assert calls == [1, 1]


@pytest.mark.rules("CAP-12", "GRD-3")
def test_a_container_that_a_pass_changes_is_no_assumption_of_a_region() -> None:
    box = [1.0]

    def grow(graph: Graph) -> Graph:
        box.append(2.0)
        return graph

    compiled = al.compile(lambda x: x * len(box), passes=[grow], dynamic=True, backend="reference")
    with pytest.raises(al.UnsupportedError, match="changed .*cell 0 while it was captured"):
        compiled(values((2,)))
    assert compiled.entries == []


# ------------------------------------------------------------------------------------------- limits
@pytest.mark.rules("DYN-15", "GRD-4")
def test_the_limit_counts_regions() -> None:
    compiled = al.compile(
        branches_on_one,
        dynamic=True,
        backend="reference",
        recompile_limit=2,
        recompile_limit_is_error=True,
    )
    for n in range(1, 40):
        compiled(values((n,)))
    assert len(compiled.entries) == 2


@pytest.mark.rules("DYN-15", "GRD-4")
def test_past_the_limit_the_line_that_fixes_a_size_is_named() -> None:
    compiled = al.compile(loops, dynamic=None, backend="reference", recompile_limit=3)
    for n in (2, 3, 4):
        compiled(values((n,)))
    with pytest.warns(RuntimeWarning, match=r"s0 == 3 \(.*for k in range\(x.shape\[0\]\)") as seen:
        compiled(values((5,)))
    assert "mark_dynamic(argument, dim)" in str(seen[0].message)


@pytest.mark.rules("GEN-10", "VER-11")
def test_stages_are_verified_with_the_numbers_of_the_call() -> None:
    def windows(x: al.Tensor, w: al.Tensor) -> tuple[al.Tensor, ...]:
        y = (x @ w).sin()
        y[1:].mul_(2)
        return y[::2], y.sum(0), x.t()

    compiled = al.compile(windows, dynamic=True, verify=True, backend="reference")
    for n in (4, 7):
        agree(compiled, windows, (n, 3), (3, 2))
    assert len(compiled.entries) == 1


@pytest.mark.rules("DYN-8")
def test_no_stage_asks_about_sizes_when_the_guards_are_made() -> None:
    compiled = al.compile(loss, dynamic=True, partition="min_cut", backend="reference")
    for n in (4, 7, 9):
        agree(compiled, loss, (n, 3), (3, 2))
    region: Any = compiled.entries[0].guarded
    assert region.sizes.table.closed
    assert region.sizes.table.late == []


@pytest.mark.rules("DYN-42")
def test_the_instance_that_was_used_longest_ago_goes_first() -> None:
    compiled = al.compile(lambda x: x * 2, dynamic=True, backend="reference", instance_limit=3)
    for n in (2, 3, 4, 2, 5, 2, 6, 4, 2):
        assert compiled(values((n,))).tolist() == (values((n,)) * 2).tolist()
    assert compiled.regions().rows[0].sizes == ((2,), (6,), (4,))


@pytest.mark.rules("DYN-8")
@pytest.mark.parametrize("backend", ["reference", pytest.param("cpu", marks=needs_compiler)])
def test_threads_may_call_one_region_with_new_sizes_at_once(backend: str) -> None:
    """Results and gradients are right, and the sizes kept are those met, each once; with fewer
    kept than met, too. The first call is made by all threads at once."""

    def branching(x: al.Tensor, w: al.Tensor) -> al.Tensor:
        y = (x @ w).relu() if x.shape[0] % 2 == 0 else (x * 2) @ w
        return y.sum(0)

    for most in (256, 3):
        compiled = al.compile(branching, dynamic=True, backend=backend, instance_limit=most)
        start = threading.Barrier(6)

        def worker(seed: int, compiled: Any = compiled, start: Any = start) -> int:
            draws = np.random.default_rng(seed)
            start.wait()
            for n in draws.integers(2, 14, 25).tolist():
                agree(compiled, branching, (n, 4), (4, 3))
            return 25

        with ThreadPoolExecutor(6) as pool:
            assert sum(pool.map(worker, range(6))) == 150
        assert len(compiled.entries) == 2
        for row in compiled.regions():
            assert len(set(row.sizes)) == len(row.sizes) <= most
            assert {n % 2 for n, *_ in row.sizes} in ({0}, {1})


@pytest.mark.rules("BOX-2")
def test_a_region_keeps_no_tensor_of_the_caller_alive() -> None:
    compiled = al.compile(loss, dynamic=True, backend="reference")
    seen = []
    for n in (4, 5):
        x, w = values((n, 3)), values((3, 2), grad=True)
        compiled(x, w)
        seen += [weakref.ref(x), weakref.ref(w)]
    del x, w
    gc.collect()
    assert [ref() for ref in seen] == [None] * 4


# ------------------------------------------------------------------------------------ bad input
def test_bad_bounds_are_refused() -> None:
    for least, most, words in ((4, 2, "a size between them"), (-1, None, "at least 0")):
        with pytest.raises(al.ArgumentError, match=words):
            al.Dim("n", min=least, max=most)
        with pytest.raises(al.ArgumentError, match=words):
            al.mark_dynamic(values((3,)), 0, min=least, max=most)
    with pytest.raises(al.ArgumentError, match="an identifier"):
        al.Dim("a b")


def test_a_size_outside_the_bounds_of_its_name_is_refused() -> None:
    compiled = al.compile(
        lambda x: x * 2, dynamic_shapes=({0: al.Dim("batch", min=2, max=4)},), backend="reference"
    )
    compiled(values((3,)))
    with pytest.raises(al.ArgumentError, match=r"dimension 'batch', is 9, expected 2 to 4"):
        compiled(values((9,)))
    assert len(compiled.entries) == 1


def test_a_name_of_two_sizes_is_refused() -> None:
    n = al.Dim("n")
    compiled = al.compile(lambda x, y: (x, y), dynamic_shapes=({0: n}, {0: n}), backend="reference")
    with pytest.raises(al.ArgumentError, match="'n' is 3 as size 0 of argument 0 and 4 as size 0"):
        compiled(values((3,)), values((4,)))


@pytest.mark.parametrize(
    ("shapes", "words"),
    [
        ({"x": 3}, "a dict from dimensions"),
        ({"x": {0: "n"}}, "a Dim, True or None"),
        ({"k": {0: True}}, "a Dim, True or None"),
        ({"x": {5: True}}, "dimension is 5"),
        (3, "a dict by the names of parameters"),
    ],
)
def test_shapes_that_do_not_fit_are_refused(shapes: Any, words: str) -> None:
    def function(x: al.Tensor, k: int) -> al.Tensor:
        return x * k

    with pytest.raises(al.AotliteError, match=words):
        al.compile(function, dynamic_shapes=shapes)(values((3,)), 2)


def test_a_marked_size_that_the_program_fixes_is_refused() -> None:
    compiled = al.compile(loops, backend="reference")
    x = values((4,))
    al.mark_dynamic(x, 0)
    with pytest.raises(al.GuardError, match="the function fixes it: s0 == 4") as raised:
        compiled(x)
    assert "for k in range(x.shape[0])" in str(raised.value)
    assert compiled.entries == []
    with pytest.raises(al.ArgumentError, match="expected a tensor"):
        al.mark_dynamic([1], 0)  # type: ignore[arg-type]


def test_errors_have_the_sizes_of_the_call() -> None:
    def bad(x: al.Tensor) -> al.Tensor:
        return x.view(x.shape[0] + 1, -1)

    compiled = al.compile(bad, dynamic=True, backend="reference")
    for n in (4, 5):
        for function in (compiled, bad):
            with pytest.raises(al.ShapeError, match=rf"shape is \({n + 1}, -1\), .* of {n} elem"):
                function(values((n,)))


def test_compilers_of_users_get_numbers() -> None:
    seen: list[Graph] = []

    def compiler(graph: Graph, examples: Any) -> Any:
        seen.append(graph)
        return al.compilers.nop(graph, examples)

    compiled = al.compile(lambda x: x.reshape(-1) * x.numel(), dynamic=True, backend=compiler)
    for n in (3, 4):
        compiled(values((n, 2)))
    assert [[str(node.meta) for node in graph.placeholders] for graph in seen] == [
        ["f32[3, 2]"],
        ["f32[4, 2]"],
    ]
    assert "s0" not in seen[0].code
