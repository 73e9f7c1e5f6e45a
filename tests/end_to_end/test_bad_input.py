"""Bad input of a compiled function: a clear error, inputs untouched, and the next call works."""

import asyncio
import functools
import threading

import numpy as np
import pytest

import aotlite as al
from aotlite import nn
from aotlite.eager.base.modes import STATE


def notes(caught):
    return "\n".join(getattr(caught.value, "__notes__", ()))


def modes_are_clean():
    return STATE.recorder is None and STATE.grad_mode


# ------------------------------------------------------------------------------------ arguments
@pytest.mark.rules("GEN-7")
@pytest.mark.parametrize("leaf", [object(), {1, 2}, print, np.dtype("f4")])
def test_an_argument_of_an_unknown_kind_is_refused_by_its_path(leaf):
    compiled = al.compile(lambda x, options: x)
    with pytest.raises(al.ArgumentError, match=r"compile: argument 1\['deep'\]\[0\] is ") as caught:
        compiled(al.ones(2), {"deep": [leaf]})
    assert "expected a tensor, ndarray, number, bool, str, None, Module or optimizer" in str(
        caught.value
    )
    with pytest.raises(TypeError, match="argument 'options' is "):
        compiled(al.ones(2), options=leaf)
    assert [1.0, 1.0] == compiled(al.ones(2), {"deep": [None]}).tolist()


@pytest.mark.rules("GEN-7")
def test_a_result_of_an_unknown_kind_is_refused():
    with pytest.raises(al.UnsupportedError, match="capture: the function returns .*Holder"):
        al.compile(lambda x: Holder())(al.ones(2))


class Holder:
    """Anything."""


@pytest.mark.parametrize("fn", [None, 3, "name"])
def test_what_is_not_callable_cannot_be_compiled(fn):
    with pytest.raises(al.ArgumentError, match="compile: argument 'fn' is "):
        al.api.CompiledFunction(fn, al.api.make_options())


def test_async_and_generator_functions_are_refused():
    async def waits(x):
        return x

    def yields(x):
        yield x

    async def both(x):
        yield x

    for fn, kind in (
        (waits, "an async function"),
        (yields, "a generator function"),
        (both, "an async gen"),
    ):
        with pytest.raises(al.UnsupportedError, match=f"is {kind}"):
            al.compile(fn)
    compiled = al.compile(lambda x: x * 2.0)

    async def caller():
        return compiled(al.ones(2))

    assert [2.0, 2.0] == asyncio.run(caller()).tolist()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"backend": "nonsense"}, "backend is 'nonsense'"),
        ({"backend": 3}, "backend is 3"),
        ({"partition": 3}, "partition is 3"),
        ({"passes": [3]}, "a pass is 3"),
        ({"passes": 3}, "passes is 3"),
        ({"stages": 3}, "stages is 3"),
        ({"observer": 3}, "observer is 3"),
        ({"dump": 3}, "dump is 3"),
        ({"verify": 7}, "verify is 7"),
        ({"stages": {"nonsense": len}}, "stages has 'nonsense'"),
        ({"stages": {"joint": 3}}, "stage 'joint' is 3"),
    ],
)
def test_a_wrong_option_is_refused_when_it_is_given(options, text):
    with pytest.raises(al.ArgumentError, match=text):
        al.compile(lambda x: x, **options)


# ---------------------------------------------------------------------------------- op failures
@pytest.mark.rules("GEN-2", "RT-10")
@pytest.mark.parametrize(
    ("body", "kind", "text"),
    [
        (lambda x, y: x.add_(1.0) + y, al.ShapeError, "add"),
        (lambda x, y: x.add_(1.0) @ y, al.ShapeError, "matmul"),
        (lambda x, y: x.add_(1.0).mul_(y), al.ShapeError, "mul"),
        (lambda x, y: x.add_(1.0).where(y, 0.0), al.DTypeError, "where: the condition has dtype"),
        (lambda x, y: x.add_(1.0)[5], al.IndexOutOfRangeError, "select: index is 5, expected"),
        (lambda x, y: x.add_(1.0).frobnicate(), AttributeError, "frobnicate"),
    ],
)
def test_a_failing_op_leaves_inputs_as_they_were(body, kind, text):
    """Eager has added 1 by then; a compiled call has changed nothing (GEN-11)."""
    compiled = al.compile(body)
    x, y = al.ones(2, 3), al.ones(4, 5)
    with pytest.raises(kind, match=text):
        compiled(x, y)
    assert ([[1.0] * 3] * 2, 0) == (x.tolist(), x.version)
    assert modes_are_clean()
    assert 0 == len(compiled.entries)


def test_an_op_of_an_unknown_name_is_refused_with_near_ones():
    with pytest.raises(al.ArgumentError, match="'matmull' is not an op.*matmul"):
        al.ops.matmull(al.ones(2), al.ones(2))


def test_a_leaf_that_requires_grad_cannot_be_written():
    x = al.ones(2, requires_grad=True)
    for body in (lambda x: x.mul_(2.0), lambda x: x.view(-1).mul_(2.0), lambda x: x[0].fill_(1.0)):
        with pytest.raises(al.AutogradError, match="leaf that requires grad"):
            al.compile(body)(x)
        with pytest.raises(al.AutogradError, match="view of a leaf that requires grad"):
            al.compile(body)(x[:1])
    assert 0 == x.version


@pytest.mark.rules("SAV-1", "SAV-5")
def test_backward_twice_is_refused_unless_the_graph_is_retained():
    x = al.ones(2, requires_grad=True)
    compiled = al.compile(lambda x: (x * x).sum())
    loss = compiled(x)
    loss.backward(retain_graph=True)
    loss.backward()
    assert [4.0, 4.0] == x.grad.tolist()
    with pytest.raises(al.AutogradError, match="saved for the backward are freed"):
        loss.backward()


@pytest.mark.rules("SAV-2")
def test_a_value_saved_and_then_written_by_the_caller_is_noticed():
    """SAV-2: an input, and a result that the backward reads."""
    x, w = al.ones(2), al.ones(2, requires_grad=True)
    loss = al.compile(lambda x, w: (x * w).sum())(x, w)
    x.add_(1.0)
    with pytest.raises(al.AutogradError, match="is at version 1, expected version 0"):
        loss.backward()
    y = al.compile(lambda w: w.exp())(w)
    y.mul_(2.0)
    with pytest.raises(al.AutogradError, match="modified in place"):
        y.sum().backward()


def test_a_value_saved_and_then_written_by_the_function_raises_in_the_backward_only():
    """JNT-15: and only for the results that need it."""

    def f(x):
        y = x * 1.0
        bad = y.sin()
        y.zero_()
        return bad.sum(), (x * 3.0).sum()

    x = al.ones(2, requires_grad=True)
    bad, good = al.compile(f)(x)
    good.backward(retain_graph=True)
    assert [3.0, 3.0] == x.grad.tolist()
    with pytest.raises(al.AutogradError, match="modified in place"):
        bad.backward()


@pytest.mark.rules("ALI-1", "SYN-1")
def test_overlapping_inputs_of_which_one_is_written_are_one_memory():
    data = al.arange(6.0)
    compiled = al.compile(lambda a, b: a.mul_(2.0) + b)
    result = compiled(data[0:3], data[2:5])
    assert [4.0, 5.0, 8.0] == result.tolist()
    assert ([0.0, 2.0, 4.0, 3.0, 4.0, 5.0], 1) == (data.tolist(), data.version)
    assert [3.0, 8.0, 13.0] == compiled(data[0:3], data[3:6]).tolist()


# -------------------------------------------------------------------------------------- ndarrays
def test_ndarrays_are_taken_written_and_returned():
    def f(a, b):
        a += b
        return a, a * 2.0

    a, b = np.ones(3), np.arange(3.0)
    same, double = al.compile(f)(a, b)
    assert same is a
    assert isinstance(double, np.ndarray)
    assert ([1.0, 2.0, 3.0], [2.0, 4.0, 6.0]) == (a.tolist(), double.tolist())


def _one_more(a):
    a += 1.0
    return a


@pytest.mark.rules("FUN-7")
def test_a_strided_ndarray_is_written_where_it_lies():
    base = np.zeros((4, 6))
    al.compile(_one_more)(base[1:3, ::2])
    assert 6.0 == base.sum()
    assert [0.0, 0.0, 0.0] == base[1, 1::2].tolist()


@pytest.mark.rules("ALI-1")
def test_ndarrays_that_overlap_are_seen_to():
    base = np.arange(6.0)

    def both(a, b):
        a *= 2.0
        return a.sum() + b.sum()

    compiled = al.compile(both)
    assert 12.0 + 4.0 + 6.0 + 4.0 + 5.0 == float(compiled(base[:4], base[2:]))
    assert [0.0, 2.0, 4.0, 6.0, 4.0, 5.0] == base.tolist()
    assert 4.0 + 4.0 + 6.0 == float(compiled(base[:2], base[2:4]))


def test_read_only_memory_is_read_and_not_written():
    a = np.ones(3)
    a.flags.writeable = False
    assert [2.0] * 3 == al.compile(lambda a: a * 2.0)(a).tolist()
    with pytest.raises(al.ArgumentError, match="read-only"):
        al.compile(_one_more)(a)
    b = np.ones(3)
    writes = al.compile(_one_more)
    writes(b)
    with pytest.raises(al.ArgumentError, match="read-only"):
        writes(a)


@pytest.mark.parametrize(
    ("array", "kind", "text"),
    [
        (np.arange(3.0)[::-1], al.ArgumentError, "strides .* expected none negative"),
        (np.arange(3.0).astype(">f8"), al.DTypeError, "big-endian|byte order|>f8"),
        (np.array([object()]), al.DTypeError, r"dtype\('O'\)"),
        (np.frombuffer(bytes(25), np.uint8)[1:].view(np.float64), al.ArgumentError, "misaligned"),
        (np.array(["text"]), al.DTypeError, "U4|str"),
    ],
)
def test_memory_that_no_tensor_can_lie_on_is_refused(array, kind, text):
    compiled = al.compile(lambda a: a)
    with pytest.raises(kind, match=text):
        compiled(array)
    assert [1.0] == compiled(np.ones(1)).tolist()


# ---------------------------------------------------------------------- captured tensors, nesting
def test_a_captured_tensor_kept_alive_is_of_no_use_and_says_so():
    kept = []

    def f(x):
        twice = x * 2.0
        kept.append(twice)
        return twice + 1.0

    assert [3.0, 3.0] == al.compile(f)(al.ones(2)).tolist()
    stray = kept[0]
    assert (2,) == stray.shape
    for use in (
        lambda: stray + 1.0,
        lambda: stray.view(-1),
        lambda: stray.add_(1.0),
        lambda: stray.tolist(),
        lambda: stray.item(),
        lambda: bool(stray),
        lambda: stray.backward(al.ones(2)),
        lambda: setattr(al.ones(2), "grad", stray),
        lambda: al.compile(lambda y: y + 1.0)(stray),
        lambda: al.compile(lambda y: y + stray)(al.ones(2)),
    ):
        with pytest.raises(al.UnsupportedError, match="capture"):
            use()
    assert "captured" in repr(stray)
    assert modes_are_clean()


def test_a_compiled_function_inside_another_is_part_of_it():
    inner = al.compile(lambda x: x.mul_(2.0).sum())
    outer = al.compile(lambda x: inner(x) + x)
    x = al.ones(2)
    assert [6.0, 6.0] == outer(x).tolist()
    assert [2.0, 2.0] == x.tolist()
    assert (0, 1) == (len(inner.entries), len(outer.entries))


def test_a_compiled_function_may_call_itself():
    @al.compile
    def power(x, n):
        return x if n == 1 else x * power(x, n - 1)

    assert [8.0] == power(al.tensor([2.0]), 3).tolist()


def test_endless_recursion_is_an_error_and_leaves_modes_clean():
    @al.compile
    def endless(x):
        return endless(x) + 1.0

    with pytest.raises(RecursionError):
        endless(al.ones(2))
    assert modes_are_clean()


# --------------------------------------------------------------------------- interruptions, threads
@pytest.mark.rules("GEN-8")
@pytest.mark.parametrize("error", [KeyboardInterrupt, ZeroDivisionError, SystemExit])
def test_an_exception_in_the_middle_leaves_modes_and_cache_clean(error):
    fail = True

    def f(x):
        with al.no_grad():
            x.add_(1.0)
            if fail:
                raise error
        return x * 2.0

    compiled = al.compile(f)
    x = al.ones(2)
    with pytest.raises(error):
        compiled(x)
    assert modes_are_clean()
    assert ([1.0, 1.0], 0, []) == (x.tolist(), x.version, compiled.entries)
    fail = False
    assert [4.0, 4.0] == compiled(x).tolist()


@pytest.mark.rules("GEN-8")
@pytest.mark.parametrize(
    "stage", ["analyze", "joint", "functionalize", "simplify", "partition", "lower"]
)
def test_an_interrupt_in_any_stage_leaves_modes_and_cache_clean(stage):
    def interrupted(*args):
        raise KeyboardInterrupt

    compiled = al.compile(lambda x: (x.mul_(2.0) * x).sum(), stages={stage: interrupted})
    x = al.ones(2, requires_grad=True) * 1.0
    with pytest.raises(KeyboardInterrupt):
        compiled(x)
    assert modes_are_clean()
    assert ([1.0, 1.0], []) == (x.tolist(), compiled.entries)


@pytest.mark.rules("RT-10")
def test_a_backend_that_fails_is_named_and_nothing_is_done():
    def bad(graph):
        raise ValueError("no kernel for you")

    x = al.ones(2)
    with pytest.raises(
        al.BackendError, match="lower: backend 'bad' raised ValueError on graph"
    ) as caught:
        al.compile(lambda x: x.add_(1.0), backend=bad)(x)
    assert "no kernel for you" in notes(caught)
    assert [1.0, 1.0] == x.tolist()
    with pytest.raises(al.BackendError, match="gave 3 for graph"):
        al.compile(
            lambda x: x.add_(1.0),
            stages={"lower": lambda g, b: al.stages.s9_lower.lower(g, Three())},
        )(x)


@pytest.mark.parametrize(
    ("result", "text"),
    [
        (None, "returned NoneType .* expected a list or tuple of 2 results"),
        ([np.ones(2, "f4")], "returned 1 .* expected a list or tuple of 2 results"),
        ([np.ones(3, "f4")] * 2, r"returned shape \(3,\) as result 0 .* expected \(2,\)"),
    ],
)
def test_a_backend_that_computes_something_else_is_named(result, text):
    x = al.ones(2)
    compiled = al.compile(lambda x: x.add_(1.0) * 2.0, backend=lambda graph: lambda *arrays: result)
    with pytest.raises(al.BackendError, match=text):
        compiled(x)
    assert ([1.0, 1.0], 0) == (x.tolist(), x.version)
    with pytest.raises(al.BackendError, match="gave None for graph"):
        al.compile(lambda x: x * 2.0, backend=lambda graph: None)(x)


class Three:
    """A backend whose result cannot be called."""

    name = "three"

    def compile(self, graph):
        return 3


@pytest.mark.rules("RT-10")
def test_a_kernel_that_raises_leaves_inputs_and_the_generator_as_they_were():
    def broken(graph):
        def run(*arrays):
            raise FloatingPointError("broken kernel")

        return run

    al.manual_seed(3)
    x = al.ones(2)
    with pytest.raises(FloatingPointError):
        al.compile(lambda x: x.mul_(al.rand(2)), backend=broken)(x)
    assert ([1.0, 1.0], 0, (3, 0)) == (x.tolist(), x.version, al.get_rng_state())


def test_two_threads_in_the_first_call_compile_once():
    runs = []
    barrier = threading.Barrier(4)

    def f(x):
        runs.append(1)
        y = x
        for _ in range(200):
            y = y * 1.0 + 0.0
        return y

    compiled = al.compile(f)
    results = []

    def call():
        barrier.wait()
        results.append(compiled(al.ones(2)).tolist())

    threads = [threading.Thread(target=call) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [[1.0, 1.0]] * 4 == results
    assert (1, 1) == (len(runs), len(compiled.entries))


def test_a_capture_in_one_thread_does_not_disturb_another():
    """Modules are read eagerly in one thread while the other captures."""
    module = nn.Linear(2, 2)
    started, done = threading.Event(), threading.Event()

    def slow(m, x):
        started.set()
        done.wait(5)
        return m(x)

    compiled = al.compile(slow)
    worker = threading.Thread(target=lambda: compiled(module, al.ones(1, 2)))
    worker.start()
    started.wait(5)
    eager = module(al.ones(1, 2)).tolist()
    done.set()
    worker.join()
    assert eager == compiled(module, al.ones(1, 2)).tolist()
    assert 1 == len(compiled.entries)


# ------------------------------------------------------------------------------------------- depth
@pytest.mark.slow("compiles twenty thousand nodes")
def test_twenty_thousand_nodes_in_depth_compile_run_and_differentiate():
    def f(x):
        y = x
        for _ in range(10_000):
            y = y + 1.0
            y.mul_(1.0)
        return y.sum()

    x = al.ones(1, requires_grad=True)
    loss = al.compile(f)(x)
    assert 10_001.0 == loss.item()
    loss.backward()
    assert [1.0] == x.grad.tolist()


def test_partials_lambdas_and_callable_objects_compile():
    class Adder:
        def __call__(self, x, amount=1.0):
            return x + amount

    x = al.ones(2)
    assert [2.0, 2.0] == al.compile(Adder())(x).tolist()
    assert [4.0, 4.0] == al.compile(functools.partial(Adder(), amount=3.0))(x).tolist()


def test_views_of_views_cost_the_same_each():
    """Chains of views are linked lists: thousands of them are no more than thousands of ops."""

    def f(x):
        y = x
        for _ in range(3_000):
            y = y.t()
            y = y.unsqueeze(0).squeeze(0)
        return y.sum(), y

    x = al.ones(2, 2, requires_grad=True)
    loss, y = al.compile(f)(x)
    loss.backward()
    assert [[1.0, 1.0], [1.0, 1.0]] == x.grad.tolist()
    assert y.base is x
