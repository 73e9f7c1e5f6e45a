"""RNG-1 to RNG-7: the generator's state in graphs, in calls and in backwards."""

import threading

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import aotlite as al
from aotlite.ir.graph.role import BackwardOffset, BackwardSeed, NextOffset, Offset, Seed
from aotlite.ir.op import OPS
from aotlite.ir.run.interpreter import run_graph
from tests.rules.helpers.rng_programs import DRAWS, Drawing, programs, run_program

BACKENDS = ["reference", "cpu"]


def observed(function, seed, sizes=(3,), arrived=None, asked=None):
    """All that can be seen of a call and its backward: results, gradients, the generator.

    Gradients of some results and of some inputs, by bits; of all where these are None.
    """
    al.manual_seed(seed)
    inputs = [(al.arange(float(n)) + 1).requires_grad_() for n in sizes]
    results = function(*inputs)
    results = results if isinstance(results, tuple) else (results,)
    states = [al.get_rng_state()]
    wanted = [r for k, r in enumerate(results) if arrived is None or arrived >> k & 1]
    wanted = [r for r in wanted if r.requires_grad]
    if wanted and asked is not None:
        some = [each for k, each in enumerate(inputs) if asked >> k & 1]
        found = al.autograd.grad(sum(r.sum() for r in wanted), some, allow_unused=True)
    else:
        if wanted:
            sum(r.sum() for r in wanted).backward()
        found = [each.grad for each in inputs]
    states.append(al.get_rng_state())
    gradients = [None if each is None else each.tolist() for each in found]
    return [r.tolist() for r in results], gradients, states


@pytest.mark.draws(long=200)
@settings(max_examples=8)
@pytest.mark.rules("RNG-1", "RNG-6", "RNG-11")
@pytest.mark.parametrize("backend", BACKENDS)
@given(program=programs, seed=st.integers(0, 5))
@example(program=(("get",), ("draw", "rand"), ("set", 0), ("draw", "rand")), seed=0)
@example(program=(("draw", "rand"), ("get",), ("seed", 7), ("draw", "rand"), ("set", 0)), seed=0)
def test_a_program_that_moves_the_generator_is_eagers_to_the_bit(backend, program, seed):
    def function(x):
        return run_program(program, x, [])

    compiled = al.compile(function, backend=backend)
    for _ in range(2):
        assert observed(function, seed) == observed(compiled, seed)


@pytest.mark.draws(long=200)
@settings(max_examples=8)
@pytest.mark.rules("RNG-5", "RNG-6")
@pytest.mark.parametrize("backend", BACKENDS)
@given(forward=programs, backward=programs, seed=st.integers(0, 5))
@example(forward=(("draw", "rand"),), backward=(("draw", "rand"),), seed=0)
@example(
    forward=(("get",), ("draw", "rand")),
    backward=(("fork", (("set", 0), ("draw", "rand"))), ("draw", "rand")),
    seed=0,
)
@example(forward=(("get",),), backward=(("set", 0), ("draw", "rand")), seed=0)
def test_a_backward_that_draws_is_eagers_to_the_bit(backend, forward, backward, seed):
    def function(x):
        return Drawing.apply(x, forward, backward)

    compiled = al.compile(function, backend=backend)
    for _ in range(2):
        assert observed(function, seed) == observed(compiled, seed)


@pytest.mark.rules("RNG-5", "RNG-4", "TEN-44")
@given(
    backwards=st.lists(programs, min_size=3, max_size=3),
    arrived=st.integers(1, 7),
    asked=st.sampled_from([None, 1, 2, 3]),
    seed=st.integers(0, 3),
)
@example(backwards=[(("draw", "rand"),)] * 3, arrived=2, asked=None, seed=0)
@example(backwards=[(("draw", "rand"),)] * 3, arrived=7, asked=1, seed=0)
@example(
    backwards=[(("seed", 7),), (("draw", "rand"),), (("draw", "rand"),)],
    arrived=6,
    asked=None,
    seed=0,
)
@example(
    backwards=[(("draw", "rand"),), (("seed", 0),), (("draw", "rand"),)],
    arrived=5,
    asked=None,
    seed=1,
)
def test_backwards_that_eager_would_not_run_draw_nothing(backwards, arrived, asked, seed):
    """Which results gradients arrive at, and of which inputs they are asked for, decides where
    each backward's draws begin.
    """

    def function(x, y):
        first, second, third = backwards
        return (
            Drawing.apply(x, (), first),
            Drawing.apply(y, (("draw", "rand"),), second) * al.rand(3),
            Drawing.apply(x + y, (("get",),), third),
        )

    compiled = al.compile(function, backend="reference")
    eager = observed(function, seed, (3, 3), arrived, asked)
    assert eager == observed(compiled, seed, (3, 3), arrived, asked)
    assert eager == observed(compiled, seed, (3, 3), arrived, asked)


@pytest.mark.rules("RNG-5", "TEN-44")
@pytest.mark.parametrize("asked", [0, 1])
def test_one_gradient_of_a_single_result_draws_for_one(asked):
    """Without an engine, which a compiled call with leaves alone does not need otherwise."""
    draw = (("draw", "rand"),)

    def function(x, y):
        return (Drawing.apply(x, (), draw) + Drawing.apply(y, (), draw)).sum()

    found = []
    for run in (function, al.compile(function, backend="reference")):
        inputs = [al.ones(3).requires_grad_() for _ in range(2)]
        al.manual_seed(1)
        (grad,) = al.autograd.grad(run(*inputs), [inputs[asked]])
        found.append((grad.tolist(), al.get_rng_state()))
    assert found[0] == found[1]
    assert (1, 4) == found[0][1]


@pytest.mark.rules("RNG-2", "RNG-3", "RNG-4")
@given(sizes=st.lists(st.integers(0, 9), min_size=1, max_size=4), wide=st.booleans())
def test_the_graph_returns_the_offset_that_the_generator_has_afterwards(sizes, wide):
    dtype = al.float64 if wide else al.float32

    def function(x):
        return tuple([al.rand(n, dtype=dtype) for n in sizes] + [x * 2])

    compiled = al.compile(function, backend="reference")
    al.set_rng_state((11, 24))
    compiled(al.ones(2))
    graph = compiled.forward_graph
    roles = [node.role for node in graph.placeholders]
    assert [Seed(), Offset()] == roles[-2:]
    assert NextOffset() == graph.output_roles[-1]
    inputs = [np.ones(2, "float32"), np.array(11, "uint64"), np.array(24, "uint64")]
    after = run_graph(graph, *inputs)[-1]
    assert (11, int(after)) == al.get_rng_state()
    assert 0 == after % 4
    assert after - 24 == sum(OPS["rand"].consumes(al.empty(n, dtype=dtype).meta) for n in sizes)


@pytest.mark.rules("RNG-2", "RNG-3", "RNG-5")
def test_both_graphs_take_the_state_last_and_return_the_offset_behind_their_results():
    def function(x):
        return Drawing.apply(x, (("draw", "rand"),), (("draw", "rand"),))

    compiled = al.compile(function, backend="reference")
    compiled(al.ones(3).requires_grad_())
    forward, backward = compiled.forward_graph, compiled.backward_graph
    assert ["primals_0", "seed", "offset"] == [str(n.role) for n in forward.placeholders]
    assert ["output_0", "next_offset"] == list(map(str, forward.output_roles))[:2]
    assert [BackwardSeed(), BackwardOffset()] == [n.role for n in backward.placeholders][-2:]
    assert ["grad_primals_0", "next_backward_offset"] == list(map(str, backward.output_roles))


@pytest.mark.rules("RNG-4")
def test_a_function_that_draws_nothing_takes_no_state_and_leaves_the_generator():
    compiled = al.compile(lambda x: x * 2)
    al.set_rng_state((5, 12))
    compiled(al.ones(2))
    assert (5, 12) == al.get_rng_state()
    assert ["primals_0"] == [str(n.role) for n in compiled.forward_graph.placeholders]
    assert ["output_0"] == list(map(str, compiled.forward_graph.output_roles))


@pytest.mark.rules("RNG-6", "GEN-8")
@pytest.mark.parametrize("name", sorted(DRAWS))
def test_compiling_leaves_the_generator_where_it_was(name):
    def function(x):
        al.manual_seed(3)
        return Drawing.apply(x, (("draw", name),), (("draw", name), ("seed", 4)))

    al.set_rng_state((5, 12))
    al.compile(function).prepare(al.ones(3).requires_grad_())
    al.capture(function)(al.ones(3))
    assert (5, 12) == al.get_rng_state()


@pytest.mark.rules("RNG-6")
def test_numbers_of_a_state_are_there_where_the_function_sets_the_seed():
    def function(x):
        al.manual_seed(3)
        y = al.rand(5) * x
        return y, al.get_rng_state(), al.initial_seed()

    y, state, seed = al.compile(function)(al.ones(5))
    assert ((3, 8), 3) == (state, seed)
    assert y.tolist() == function(al.ones(5))[0].tolist()


KEPT: list = []
WRONG: list = [1.5, "1"]


@pytest.mark.rules("RNG-6")
@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda x: (x, al.get_rng_state()[1]), "the seed or the offset of a generator's state"),
        (lambda x: (x, *al.get_rng_state()), "the seed or the offset of a generator's state"),
        (lambda x: (x, al.get_rng_state()), "returns <a state of the generator"),
        (lambda x: (x, al.initial_seed()), r"initial_seed\(\) cannot be captured"),
        (lambda x: (x, al.default_generator.seed), r"initial_seed\(\) cannot be captured"),
        (lambda x: (x, al.default_generator.offset), "the seed or the offset of a generator's"),
        (lambda x: (al.rand(2, generator=al.Generator()), x)[1], "a generator of your own"),
    ],
)
def test_a_state_without_numbers_is_refused_where_numbers_are_asked_for(function, message):
    al.set_rng_state((5, 12))
    with pytest.raises(al.UnsupportedError, match=message):
        al.compile(function)(al.ones(2))
    assert (5, 12) == al.get_rng_state()


@pytest.mark.rules("RNG-6")
def test_a_state_that_a_capture_has_left_behind_is_of_no_use():
    def keep(x):
        KEPT[:] = [al.get_rng_state()]
        return x * 1

    al.compile(keep, backend="reference").prepare(al.ones(2))
    with pytest.raises(al.RngError, match="set_rng_state: the state is <a state of the generator"):
        al.set_rng_state(KEPT[0])
    with pytest.raises(al.UnsupportedError, match="that another captured function has kept"):
        al.compile(lambda x: (al.set_rng_state(KEPT[0]), x)[1])(al.ones(2))


@pytest.mark.rules("RNG-12")
@pytest.mark.parametrize(
    ("act", "message"),
    [
        (lambda: al.manual_seed(WRONG[0]), "seed is 1.5, expected -2**63 <= seed < 2**64"),
        (lambda: al.manual_seed(1 << 64), "manual_seed: seed is 18446744073709551616, expected"),
        (lambda: al.manual_seed(WRONG[1]), "manual_seed: seed is '1', expected"),
        (lambda: al.set_rng_state((1, 2)), "set_rng_state: the offset is 2, expected a multiple"),
        (lambda: al.set_rng_state((1, -4)), "set_rng_state: the offset is -4, expected 0 <="),
        (lambda: al.set_rng_state((1, 1 << 63)), "the offset is 9223372036854775808, expected 0"),
        (lambda: al.set_rng_state((1, 4.0)), "the offset is 4.0, expected an integer"),
        (lambda: al.set_rng_state((1.0, 4)), "set_rng_state: seed is 1.0, expected"),
        (lambda: al.set_rng_state([1, 4]), "the state is [1, 4], expected what get_rng_state"),
        (lambda: al.set_rng_state((1, 4, 8)), "expected what get_rng_state gives"),
        (lambda: al.set_rng_state(None), "the state is None, expected what get_rng_state gives"),
        (lambda: al.default_generator.set_state(3), "set_state: the state is 3, expected"),
        (lambda: al.Generator(seed=WRONG[0]), "Generator: seed is 1.5, expected"),
        (lambda: al.Generator(offset=3), "Generator: the offset is 3, expected a multiple of 4"),
    ],
)
def test_what_can_be_no_state_is_refused_and_nothing_is_set(act, message):
    """In eager code, and while a function is captured."""
    al.set_rng_state((5, 12))
    for call in (act, lambda: al.compile(lambda x: (act(), x)[1])(al.ones(2))):
        with pytest.raises(al.RngError) as caught:
            call()
        assert message in str(caught.value)
        assert "RNG-" in "".join(caught.value.__notes__)
        assert (5, 12) == al.get_rng_state()


@pytest.mark.rules("RNG-12")
@pytest.mark.parametrize(
    ("seed", "offset", "message"),
    [
        (np.array(1.0), np.array(4, "uint64"), "the seed is f64[], expected one element of uint64"),
        (np.array(1, "uint64"), np.array(4.0), "the offset is f64[], expected one element of"),
        (np.array(1, "int32"), np.array(4, "uint64"), "the seed is i32[], expected one element"),
        (np.array([1, 2]), np.array(4, "uint64"), "the seed is i64[2], expected one element"),
        (1.5, 4, "the seed is a float, expected an integer"),
        (1, 6, "the offset is 6, expected a multiple of 4"),
        (1, -4, "the offset is -4, expected 0 <= offset < 2**63"),
    ],
)
def test_a_pure_draw_refuses_what_can_be_no_place(seed, offset, message):
    given_ = [al.from_numpy(v) if isinstance(v, np.ndarray) else v for v in (seed, offset)]
    with pytest.raises(al.RngError, match="^uniform: ") as caught:
        al.ops.uniform(*given_, 0, (3,))
    assert message in str(caught.value)


@pytest.mark.rules("RNG-12")
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("offset", [2, (1 << 63) + 4])
def test_a_compiled_graph_refuses_an_offset_that_can_be_none(backend, offset):
    from aotlite.backends.lookup import backend_from

    compiled = al.compile(lambda: al.rand(3), backend="reference")
    compiled()
    run = backend_from(backend).compile(compiled.forward_graph)
    windows = [(np.array(v, "uint64"), 0) for v in (1, offset)]
    with pytest.raises(al.RngError, match=f"the offset is {offset}, expected"):
        run(windows)


@pytest.mark.rules("RNG-2", "RNG-12")
@pytest.mark.parametrize(
    ("seed", "offset", "message"),
    [
        (np.array(1.5), 4, r"^run: input seed is float64\[\], expected a number, or an array of"),
        (1, np.array(4, "int32"), r"^run: input offset is int32\[\], expected a number"),
        (np.array([1], "uint64"), 4, r"^run: input seed is uint64\[1\], expected a number"),
        (1.5, 4, r"^run: input seed is float64\[\], expected a number"),
        (1, 6, "the offset is 6, expected a multiple of 4"),
    ],
)
def test_a_graph_is_run_on_a_seed_and_an_offset_and_nothing_else(seed, offset, message):
    compiled = al.compile(lambda: al.rand(3), backend="reference")
    compiled()
    with pytest.raises(al.RngError, match=message) as caught:
        run_graph(compiled.forward_graph, seed, offset)
    assert "RNG-" in "".join(caught.value.__notes__)


@pytest.mark.rules("RNG-3", "RNG-8")
def test_a_backward_that_draws_again_leaves_the_generator_to_other_threads():
    """While one thread computes regions again, others draw from where the generator stands."""
    drawn: list = []
    done = threading.Event()

    def work():
        while not done.is_set() or len(drawn) < 20:
            drawn.append(tuple(al.rand(4).tolist()))

    def region(x):
        return al.nn.functional.dropout(x.exp(), 0.5)

    x = al.ones(64).requires_grad_()
    results = [al.checkpoint(region, x) for _ in range(20)]
    al.manual_seed(6)
    thread = threading.Thread(target=work)
    thread.start()
    for y in results:
        x.grad = None
        y.sum().backward()
        assert y.tolist() == x.grad.tolist()
    done.set()
    thread.join()
    assert (6, 4 * len(drawn)) == al.get_rng_state()
    al.manual_seed(6)
    assert drawn == [tuple(al.rand(4).tolist()) for _ in drawn]


@pytest.mark.rules("RNG-3")
@pytest.mark.parametrize("half", ["forward", "backward"])
def test_a_half_that_fails_leaves_the_generator_where_it_was(half):
    calls = []

    def failing(graph):
        def run(*arrays):
            calls.append(al.get_rng_state())
            raise ValueError("the machine is on fire")

        return run

    def function(x):
        return Drawing.apply(x, (("draw", "rand"),), (("draw", "rand"),))

    where = {"fw_compiler" if half == "forward" else "bw_compiler": failing}
    compiled = al.compile(function, backend="reference", **where)
    x = al.ones(3).requires_grad_()
    al.set_rng_state((5, 12))
    if half == "forward":
        with pytest.raises(ValueError, match="on fire"):
            compiled(x)
    else:
        y = compiled(x).sum()
        al.set_rng_state((5, 12))
        with pytest.raises(ValueError, match="on fire"):
            y.backward()
    assert [(5, 16)] == calls, "the generator moves on before the half runs"
    assert (5, 12) == al.get_rng_state()


@pytest.mark.rules("RNG-3", "RNG-4")
def test_threads_that_draw_at_once_draw_different_numbers():
    compiled = al.compile(lambda x: al.rand(8) * x, backend="reference")
    ones = al.ones(8)
    compiled(ones)
    al.manual_seed(3)
    found: list = []

    def work():
        found.extend([tuple(compiled(ones).tolist()) for _ in range(50)])

    threads = [threading.Thread(target=work) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert 200 == len(set(found))
    assert (3, 200 * 8) == al.get_rng_state()
    al.manual_seed(3)
    assert {tuple(al.rand(8).tolist()) for _ in range(200)} == set(found)


@pytest.mark.rules("RNG-12")
@pytest.mark.parametrize("seed", [True, 3.0, "3", None, al.tensor(3), np.bool_(True)])
def test_seeds_are_integers_and_nothing_like_them(seed):
    before = al.get_rng_state()
    for use in (al.manual_seed, lambda seed: al.set_rng_state((seed, 0))):
        with pytest.raises(al.RngError, match="seed is"):
            use(seed)
    assert al.get_rng_state() == before
    assert al.manual_seed(np.int32(3)).initial_seed() == 3
    al.set_rng_state(before)
